"""A model folder: the same embeddings after loading, and every way it can be broken."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from triptych.errors import DataError, UsageError
from triptych.methods.registry import create as create_method
from triptych.training.model import Model, load_model, save_model

TOKENS = torch.randn(3, 4, 32, generator=torch.Generator().manual_seed(0))
TEXTS = ["make it red", "", "a longer text than the others"]


@pytest.fixture
def saved(small: Any, sizes: dict[str, Any], tmp_path: Path) -> tuple[Path, Model]:
    """A model of method intent, whose weights are not those that a new one starts with."""
    settings = {"backbone": sizes, "method": {"name": "intent", "alpha": 0.3}}
    method = create_method("intent", {"alpha": 0.3}, small.shape, seed=5)
    with torch.no_grad():
        for value in [*method.parameters(), *(v for v in small.parameters() if v.requires_grad)]:
            value.add_(torch.randn(value.shape, generator=torch.Generator().manual_seed(1)), alpha=0.1)
    info = {"epoch": 3, "score": 41.25}
    save_model(tmp_path / "model", small, method, settings, info)
    return tmp_path / "model", Model(small, method.eval(), settings, info)


def test_round_trip(saved: tuple[Path, Model]) -> None:
    folder, model = saved
    loaded = load_model(folder)
    assert loaded.info == model.info
    assert loaded.settings == model.settings
    assert not loaded.backbone.training
    assert torch.equal(loaded.embed_queries(TOKENS, TEXTS), model.embed_queries(TOKENS, TEXTS))
    assert torch.equal(loaded.embed_targets(TOKENS), model.embed_targets(TOKENS))
    assert loaded.method is not None
    assert model.method is not None
    for name, value in model.method.state_dict().items():
        assert torch.equal(loaded.method.state_dict()[name], value)


def test_the_folder_is_small_and_readable(saved: tuple[Path, Model]) -> None:
    """The towers are not in it; the card says what it is."""
    folder, _ = saved
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    assert (folder / "model.safetensors").stat().st_size < 400_000
    card = (folder / "README.md").read_text()
    assert '"name": "intent"' in card
    assert "score: 41.25" in card


def test_an_aligned_model_has_no_method(small: Any, sizes: dict[str, Any], tmp_path: Path) -> None:
    save_model(tmp_path, small, None, {"backbone": sizes, "method": None}, {})
    loaded = load_model(tmp_path)
    assert loaded.method is None
    with torch.no_grad():
        expected = small.compose(TOKENS, TEXTS).vector
    assert torch.equal(loaded.embed_queries(TOKENS, TEXTS), expected)
    assert "aligned on captions only" in (tmp_path / "README.md").read_text()


def change_weights(folder: Path, **changes: torch.Tensor | None) -> None:
    tensors = load_file(folder / "model.safetensors")
    for name, value in changes.items():
        key = name.replace("__", ".")
        if value is None:
            del tensors[key]
        else:
            tensors[key] = value
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"backbone__query_tokens": None}, r"missing.*query_tokens"),
        ({"backbone__surprise": torch.ones(1)}, r"unknown.*surprise"),
        ({"backbone__query_tokens": torch.ones(1, 5, 32)}, "query_tokens"),
        ({"method__causal__weight": None}, r"causal\.weight"),
        ({"method__surprise": torch.ones(1)}, "surprise"),
        ({"elsewhere__surprise": torch.ones(1)}, "elsewhere"),
    ],
)
def test_weights_that_do_not_fit_are_named(
    saved: tuple[Path, Model], changes: dict[str, Any], said: str, small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = saved
    change_weights(folder, **changes)
    monkeypatch.setattr("triptych.training.model.create_backbone", lambda settings: small)  # takes a second
    with pytest.raises(DataError, match=said) as caught:
        load_model(folder)
    assert str(folder / "model.safetensors") in str(caught.value)


def test_damaged_weights_are_named(saved: tuple[Path, Model]) -> None:
    path = saved[0] / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(DataError, match="the weights cannot be read") as caught:
        load_model(saved[0])
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("{cut", "not valid JSON"),
        ("[]", "not a model of this version"),
        ('{"format": "triptych-model-9"}', '"format" should be "triptych-model-1"'),
        ('{"format": "triptych-model-1"}', '"backbone" is missing'),
    ],
)
def test_damaged_settings_are_named(saved: tuple[Path, Model], config: str, said: str) -> None:
    (saved[0] / "config.json").write_text(config)
    with pytest.raises(DataError, match=said):
        load_model(saved[0])


def test_unknown_settings_are_named(saved: tuple[Path, Model]) -> None:
    path = saved[0] / "config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, "backbone": {"name": "huge"}}))
    with pytest.raises(UsageError, match='unknown backbone "huge"'):
        load_model(saved[0])


@pytest.mark.parametrize("gone", ["config.json", "model.safetensors"])
def test_a_folder_without_a_model(saved: tuple[Path, Model], gone: str) -> None:
    (saved[0] / gone).unlink()
    with pytest.raises(DataError, match="there is no model here") as caught:
        load_model(saved[0])
    assert "config.json and model.safetensors" in str(caught.value)


def test_the_best_model_of_a_run_folder(saved: tuple[Path, Model], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(saved[0], run / "best")
    (run / "config.json").write_text("{}")
    assert load_model(run).info["epoch"] == 3
