"""Build, describe, verify and repair the token cache from the command line; train from it without the tower."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SMALL = [
    "--set",
    "backbone.image_size=32",
    "--set",
    "backbone.image_width=16",
]


@pytest.fixture
def built(triptych: Callable[..., Any], tiny_benchmark: Path, lite_weights: None, tmp_path: Path) -> Path:
    done = triptych(
        "cache",
        "build",
        tiny_benchmark,
        *SMALL,
        "--dtype",
        "int8",
        "--bank",
        4,
        "--cache",
        tmp_path / "cache",
    )
    assert done.code == 0, done.err
    assert "encoded, 0 were there" in done.out
    return tmp_path / "cache"


def test_build_info_verify_repair(
    triptych: Callable[..., Any], tiny_benchmark: Path, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [facts] = json.loads(triptych("cache", "info", "--cache", built, "--json").out)
    used = 24 + 24  # train and val pictures
    assert facts["images"] == used
    assert (facts["dtype"], facts["backbone"], facts["shards"]) == ("int8", "lite", 1)
    assert (facts["preprocessing"], facts["image_size"]) == ("target_pad", 32)
    [bank] = facts["banks"]
    assert (bank["variants"], bank["references"]) == (4, 20)
    entries = facts["images"] + 80
    assert facts["bytes"] == entries * (16 + 4 * 16 + 44)  # one token of 16 values, 16 scales, a key
    assert facts["free_disk"] > 0

    shown = triptych("cache", "info", "--cache", built).out
    for word in ("images", "4 each", "int8", "target_pad, 32 px", "free disk", str(built.name)):
        assert word in shown

    assert triptych("cache", "verify", "--cache", built).code == 0
    values = built / "00000.i8"
    data = bytearray(values.read_bytes())
    data[5] ^= 64
    values.write_bytes(bytes(data))
    bad = triptych("cache", "verify", "--cache", built)
    assert bad.code == 1
    assert "shard 00000" in bad.out
    assert "--repair" in bad.out
    assert json.loads(triptych("cache", "verify", "--cache", built, "--json").out)[0]["bad"].keys() == {
        "00000"
    }
    assert triptych("cache", "verify", "--cache", built, "--repair").code == 0
    again = triptych(
        "cache", "build", tiny_benchmark, *SMALL, "--dtype", "int8", "--bank", 4, "--cache", built
    )
    assert f"{entries} encoded, 0 were there" in again.out
    assert triptych("cache", "verify", "--cache", built).code == 0


def test_training_from_it_needs_no_tower(
    triptych: Callable[..., Any],
    tiny_benchmark: Path,
    built: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from triptych.backbones.lite import LiteBackbone

    def never(*_: Any) -> None:
        raise AssertionError("the vision tower was run")

    monkeypatch.setattr(LiteBackbone, "encode_images", never)
    sizes = ["backbone.hidden=24", "backbone.heads=2", "backbone.queries=3", "backbone.dim=12"]
    words = [word for size in sizes for word in ("--set", size)]
    done = triptych(
        "train", "--data", tiny_benchmark, "-o", tmp_path / "run", *SMALL, *words, "--cache", built,
        "--set", "method.counterfactual_bank=4", "--set", "training.cache_dtype=int8",
        "--epochs", 1, "--batch-size", 8,
    )  # fmt: skip
    assert done.code == 0, done.err
    scored = triptych("evaluate", tmp_path / "run", "--cache", built)
    assert scored.code == 0, scored.err
    refused = triptych(
        "train", "--data", tiny_benchmark, "-o", tmp_path / "other", *SMALL, *words, "--cache", built,
        "--set", "training.cache_dtype=float16", "--epochs", 1, "--batch-size", 8,
    )  # fmt: skip
    assert refused.code == 1
    assert "dtype int8, not float16" in refused.said


def test_a_cache_of_other_preprocessing_is_refused_by_name(
    triptych: Callable[..., Any], tiny_benchmark: Path, built: Path
) -> None:
    refused = triptych(
        "cache", "build", tiny_benchmark, "--set", "backbone.image_size=64", "--set", "backbone.image_width=16",
        "--cache", built, "--dtype", "int8",
    )  # fmt: skip
    assert refused.code == 1
    assert "32px:16" in refused.said
    assert "64px:16" in refused.said


def test_too_little_disk_for_images_and_bank_together(
    triptych: Callable[..., Any],
    tiny_benchmark: Path,
    lite_weights: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """48 pictures and 80 counterfactuals of 76 bytes each; the disk has room for the pictures alone."""
    real = shutil.disk_usage

    def nearly_full(path: Any) -> Any:
        return type(real("/"))(10**9, 10**9 - 4000, 4000)

    monkeypatch.setattr(shutil, "disk_usage", nearly_full)
    refused = triptych("cache", "build", tiny_benchmark, *SMALL, "--bank", 4, "--cache", tmp_path / "cache")
    assert refused.code == 1
    assert "128 images need 9.7 kB, and the disk has 4.0 kB free" in refused.said
    assert not (tmp_path / "cache").exists()
    assert triptych("cache", "build", tiny_benchmark, *SMALL, "--cache", tmp_path / "cache").code == 0


def test_wrong_usage(triptych: Callable[..., Any], tiny_benchmark: Path, tmp_path: Path) -> None:
    nothing = triptych("cache", "info", "--cache", tmp_path / "none")
    assert nothing.code == 1
    assert "there is no cache here" in nothing.said
    both = triptych("cache", "verify", "--cache", tmp_path, "--backbone", "lite")
    assert both.code == 2
    assert triptych("cache", "build", tmp_path / "no-data").code != 0


def test_an_unknown_dtype(triptych: Callable[..., Any], tiny_benchmark: Path, lite_weights: None) -> None:
    refused = triptych("cache", "build", tiny_benchmark, "--dtype", "int4")
    assert refused.code == 2
    assert "float16, int8" in refused.said
