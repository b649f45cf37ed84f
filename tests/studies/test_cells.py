"""Cells: names, what a folder says of them, and which studies may share a folder."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from triptych.errors import UsageError
from triptych.studies.cells import Cell, NoiseLevel, Study, settings_of

HALF = NoiseLevel("mix", 0.5)


def test_a_name_says_all_that_sets_a_cell_apart() -> None:
    assert Cell("rcl", HALF, 0).name == "rcl-mix-0.5-seed0"  # as grids of earlier versions call it
    settings = settings_of({"method.mu": 0.2, "method.sod": "neglog"})
    cell = Cell("intent", HALF, 3, settings=settings, data="FashionIQ", backbone="clip")
    assert cell.name == "FashionIQ-clip-intent-mu=0.2-sod=neglog-mix-0.5-seed3"
    assert cell.variant == "mu=0.2, sod=neglog"
    assert Cell("intent", HALF, 0, row="intent.A1").name == "intent.A1-mix-0.5-seed0"
    slash = Cell("intent", HALF, 0, settings=settings_of({"backbone.weights": "../a b"}))
    assert Path(slash.name).name == slash.name


def test_a_cell_comes_back_from_its_file() -> None:
    cell = Cell("intent", HALF, 3, row="intent.A1", settings=settings_of({"method.mu": 0.2}), data="d")
    assert Cell.read(json.loads(json.dumps({**asdict(cell), "seconds": 1.0}))) == cell
    older = {
        "method": "rcl",
        "noise": {"kind": "mix", "ratio": 0.5, "oracle": False},
        "seed": 1,
        "seconds": 2,
    }
    assert Cell.read(older) == Cell("rcl", HALF, 1)


def test_a_folder_is_one_studys(tmp_path: Path) -> None:
    one = Study({"a": tmp_path / "a"}, tmp_path / "s", (), training={"epochs": 2})
    one.claim()
    one.claim()
    Study({"a": tmp_path / "a", "b": tmp_path / "b"}, tmp_path / "s", (), training={"epochs": 2}).claim()
    one.claim()  # with less of the data it is still the same
    assert set(json.loads((tmp_path / "s" / "study.json").read_text())["data"]) == {"a", "b"}
    with pytest.raises(UsageError, match="another data"):
        Study({"a": tmp_path / "c"}, tmp_path / "s", (), training={"epochs": 2}).claim()
    with pytest.raises(UsageError, match="another training"):
        Study({"a": tmp_path / "a"}, tmp_path / "s", (), training={"epochs": 3}).claim()
    with pytest.raises(UsageError, match="another backbone"):
        Study({"a": tmp_path / "a"}, tmp_path / "s", (), training={"epochs": 2}, backbone={"dim": 8}).claim()
    with pytest.raises(UsageError, match="another kind of study"):
        Study({"": tmp_path / "a"}, tmp_path / "s", (), marker="grid.json").claim()
