"""The grid: cells that are runs, kept when finished, and one table."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from triptych.cli.study import app
from triptych.errors import TriptychError, UsageError
from triptych.studies import run_cells as module
from triptych.studies.cells import Cell, NoiseLevel, parse_noise
from triptych.studies.grid import make_grid, run_grid, to_markdown
from triptych.studies.run_cells import manifest_of, options_of
from triptych.triplets import read_benchmark

CLEAN, HALF = NoiseLevel("mix", 0.0), NoiseLevel("mix", 0.5)


def test_noise_is_read() -> None:
    assert parse_noise("mix:0,0.5") == [CLEAN, HALF]
    assert parse_noise("oracle:hard:0.2") == [NoiseLevel("hard", 0.2, oracle=True)]
    assert parse_noise("oracle:hard:0.2")[0].name == "oracle hard 0.2"
    for wrong in ("mix", "mix:", "mix:2", "odd:0.5", "mix:a"):
        with pytest.raises(UsageError, match="KIND:RATE"):
            parse_noise(wrong)


def test_the_data_sets_own_manifest_comes_first(tiny_benchmark: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(tiny_benchmark, data)
    assert manifest_of(read_benchmark(data), CLEAN, tmp_path / "noise") is None
    made = manifest_of(read_benchmark(data), HALF, tmp_path / "noise")
    assert made == tmp_path / "noise" / "mix-0.5-seed42.json"
    (data / "noise").mkdir()
    shutil.copy(made, data / "noise" / made.name)
    assert manifest_of(read_benchmark(data), HALF, tmp_path / "noise") == data / "noise" / made.name


def test_a_grid_runs_keeps_what_is_done_and_writes_a_table(
    lite_weights: None, tiny_benchmark: Path, tmp_path: Path, tiny_runs: list[tuple[str, ...]]
) -> None:
    cells = (Cell("infonce", CLEAN, 0), Cell("infonce", HALF, 0), Cell("rcl", HALF, 0))
    grid = make_grid(tiny_benchmark, tmp_path / "grid", cells[:2])
    first = run_grid(grid)
    assert [outcome.cell for outcome in first] == list(cells[:2])
    assert first[0].detection is None
    assert first[1].detection is not None
    assert first[1].detection.auroc is not None
    assert first[1].detection.wrong > 5
    assert len(tiny_runs) == 6

    told: list[Cell] = []
    wider = make_grid(tiny_benchmark, tmp_path / "grid", cells)
    run_grid(wider, told=lambda cell, seconds: told.append(cell))
    assert told == [cells[2]]
    assert len(tiny_runs) == 9
    table = (tmp_path / "grid" / "grid.md").read_text()
    row = next(line for line in table.splitlines() if line.startswith("| mix 0 | `infonce` | 0 | **"))
    assert all(float(cell) >= 0 for cell in row.split("|")[8:10])  # image-only and text-only
    assert "not run" not in table
    run_grid(make_grid(tiny_benchmark, tmp_path / "grid", cells[2:]))
    assert (tmp_path / "grid" / "grid.md").read_text() == table  # what was finished before stays in it
    assert "not run" in to_markdown(make_grid(tiny_benchmark, tmp_path / "x", cells), [])

    with pytest.raises(UsageError, match="another training"):
        run_grid(make_grid(tiny_benchmark, tmp_path / "grid", cells, training={"epochs": 3}))


def test_a_cell_that_fails_is_named_and_the_others_are_finished(
    lite_weights: None, tiny_benchmark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_runs: Any
) -> None:
    import subprocess

    works = module._triptych

    def verb(environment: Any, *arguments: Any) -> None:
        if "rcl" in arguments:
            raise subprocess.CalledProcessError(1, "triptych", stderr="error: no luck")
        works(environment, *arguments)

    monkeypatch.setattr(module, "_triptych", verb)
    cells = (Cell("rcl", CLEAN, 0), Cell("infonce", CLEAN, 0))
    grid = make_grid(tiny_benchmark, tmp_path / "grid", cells)
    with pytest.raises(TriptychError, match="1 of 2 cells failed:\nrcl-mix-0-seed0: error: no luck"):
        run_grid(grid)
    assert [grid.is_done(cell) for cell in cells] == [False, True]


def test_the_command_lists_its_cells(tiny_benchmark: Path, tmp_path: Path) -> None:
    words = [
        "grid",
        str(tiny_benchmark),
        "-o",
        str(tmp_path / "g"),
        "--method",
        "rcl",
        "--noise",
        "mix:0,0.5",
        "--dry-run",
    ]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.stdout.split("\n")[:2] == ["rcl-mix-0-seed0  to run", "rcl-mix-0.5-seed0  to run"]
    assert not (tmp_path / "g").exists()
    with pytest.raises(UsageError, match=r"METHOD\.SWITCH"):
        CliRunner().invoke(app, [*words, "--set", "other.x=1"], catch_exceptions=False)
    with pytest.raises(UsageError, match="alpha"):
        CliRunner().invoke(
            app, [*words, "--method", "intent", "--set", "intent.alpha=-1"], catch_exceptions=False
        )


def test_cells_get_their_settings(tmp_path: Path) -> None:
    grid = make_grid(tmp_path, tmp_path, (), tmp_path / "al", {"epochs": 2}, {"intent": {"window": "px64"}})
    level = NoiseLevel("mix", 0.5, oracle=True)
    words = [str(w) for w in options_of(grid, Cell("intent", level, 3), tmp_path / "n.json")]
    assert "--drop-noisy" in words
    assert words[words.index("--seed") + 1] == "3"
    assert [json.loads(w.partition("=")[2]) for w in words if "=" in w] == [2, "px64"]
