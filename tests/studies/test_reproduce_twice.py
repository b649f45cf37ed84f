"""A whole reproduction by the command line: the same command gives the same table, in processes and in one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from triptych.cli.main import app
from triptych.studies import run_cells

SMALL = {"image_size": 64, "image_width": 32, "hidden": 32, "heads": 2, "queries": 4, "dim": 16}
METHODS, RATES, SEEDS = ("rcl", "intent"), ("0", "0.5"), ("0", "1")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def words_of(
    folder: Path, methods: tuple[str, ...], rates: tuple[str, ...], seeds: tuple[str, ...]
) -> list[str]:
    words = ["study", "reproduce", "INTENT-2", "-o", str(folder), "--noise", f"mix:{','.join(rates)}"]
    words += [word for name in methods for word in ("--method", name)]
    words += [word for seed in seeds for word in ("--seed", seed)]
    words += ["--train", "48", "--val", "6", "--align-epochs", "1", "--set", "training.batch_size=16"]
    words += ["--set", "training.epochs=2", "--set", "intent.counterfactual_bank=4"]
    return words + [word for name, size in SMALL.items() for word in ("--set", f"backbone.{name}={size}")]


def tables_of(folder: Path) -> dict[str, str]:
    return {
        path.suffix: path.read_text(encoding="utf-8") for path in sorted(folder.glob("tables/INTENT-2.*"))
    }


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the verbs of cells here: the same words, without starting an interpreter for each."""

    def verb(environment: Any, *arguments: Any) -> None:
        result = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
        assert result.exit_code == 0, result.output

    monkeypatch.setattr(run_cells, "_triptych", verb)


def test_the_same_table_twice(lite_weights: None, tmp_path: Path, in_this_process: None) -> None:
    found = []
    for name in ("one", "two"):
        words = words_of(tmp_path / name, METHODS, RATES, SEEDS)
        result = CliRunner().invoke(app, words, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        found.append(tables_of(tmp_path / name))
    assert set(found[0]) == {".md", ".csv", ".json"}
    assert found[0] == found[1]
    figures = json.loads(found[0][".json"])["figures"]
    composed = [each for each in figures if each["query"] == "composed" and each["category"] == "mean"]
    lines = {(each["method"], each["noise"]) for each in composed}
    assert lines == {(method, noise) for method in METHODS for noise in ("none", "mix 50 %")}
    assert all(each["seeds"] == "0 1" and each["runs"] == 2 for each in composed)
    assert {each["query"] for each in figures} >= {"image-only", "text-only"}
    assert {each["reference"] for each in figures} == {"kept", "removed"}


def test_processes_of_their_own(lite_weights: None, tmp_path: Path) -> None:
    words = words_of(tmp_path / "study", ("rcl",), ("0.5",), ("0",))
    environment = {**os.environ, "TRIPTYCH_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "triptych", *words]
    for expected in ("0 of them done", "1 of them done"):
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        assert f"1 cells, {expected}" in result.stdout
    assert "| rcl | mix 50 % | 0 |" in tables_of(tmp_path / "study")[".md"]
