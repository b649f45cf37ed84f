"""A whole reproduction, by the command line alone: the same command gives the same table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SMALL = {"image_size": 64, "image_width": 32, "hidden": 32, "heads": 2, "queries": 4, "dim": 16}
METHODS, RATES, SEEDS = ("rcl", "intent"), ("0", "0.5"), ("0", "1")


def reproduce(folder: Path) -> dict[str, str]:
    """Run it in a folder, with a token cache of its own, and return the table's files."""
    words = [
        "study",
        "reproduce",
        "INTENT-2",
        "-o",
        str(folder / "study"),
        "--noise",
        f"mix:{','.join(RATES)}",
    ]
    words += [word for name in METHODS for word in ("--method", name)]
    words += [word for seed in SEEDS for word in ("--seed", seed)]
    words += ["--train", "48", "--val", "6", "--align-epochs", "1", "--set", "training.batch_size=16"]
    words += ["--set", "training.epochs=2", "--set", "intent.counterfactual_bank=4"]
    words += [word for name, size in SMALL.items() for word in ("--set", f"backbone.{name}={size}")]
    environment = {**os.environ, "TRIPTYCH_CACHE": str(folder / "cache")}
    command = [sys.executable, "-m", "triptych", *words]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    tables = folder / "study" / "tables"
    return {path.suffix: path.read_text(encoding="utf-8") for path in sorted(tables.glob("INTENT-2.*"))}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_same_table_twice(lite_weights: None, tmp_path: Path) -> None:
    first = reproduce(tmp_path / "one")
    assert first == reproduce(tmp_path / "two")
    figures = json.loads(first[".json"])["figures"]
    composed = [each for each in figures if each["query"] == "composed" and each["category"] == "mean"]
    lines = {(each["method"], each["noise"]) for each in composed}
    assert lines == {(method, noise) for method in METHODS for noise in ("none", "mix 50 %")}
    assert all(each["seeds"] == "0 1" and each["runs"] == 2 for each in composed)
    assert {each["query"] for each in figures} >= {"image-only", "text-only"}
    assert {each["reference"] for each in figures} == {"kept", "removed"}
