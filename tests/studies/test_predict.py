"""Predicted time: from counted operations, then from cells that are finished."""

from __future__ import annotations

from pathlib import Path

import pytest

from triptych.studies import predict as module
from triptych.studies.cells import Cell, NoiseLevel, Study, settings_of
from triptych.studies.predict import predict

NONE = NoiseLevel("mix", 0.0)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A planner whose steps take 100 operations a triplet."""
    asked: list[str] = []

    class Fake:
        def __init__(self, backbone: object, method: dict[str, object], options: object) -> None:
            asked.append(str(method["name"]))

        def step_flops(self, options: module.Options) -> float:
            return 100.0 * options.batch_size

    monkeypatch.setattr(module, "Planner", Fake)
    return asked


def test_time_by_hand(tmp_path: Path, planned: list[str]) -> None:
    """40 triplets in batches of 8 for 3 epochs: 15 steps of 800 operations, at 1000 a second 12 s a cell."""
    cells = (Cell("rcl", NONE, 0), Cell("rcl", NONE, 1), Cell("infonce", NONE, 0))
    study = Study({"": tmp_path}, tmp_path / "s", cells, training={"epochs": 3, "batch_size": 8})
    found = predict(study, {"": 40}, flops=1000.0)
    assert (found.seconds, found.measured) == (pytest.approx(36.0), 0)
    assert planned == ["rcl", "infonce"]
    study.note(cells[0], seconds=60.0)
    later = predict(study, {"": 40}, flops=1000.0)
    assert (later.seconds, later.measured) == (pytest.approx(2 * 60.0), 1)
    assert later.sentence == "about 2 min, by the 1 cells that are finished"


def test_weights_of_losses_are_planned_once(tmp_path: Path, planned: list[str]) -> None:
    cells = tuple(
        Cell("intent", NONE, 0, settings=settings_of({"method.alpha": value})) for value in (0.2, 0.4, 0.0)
    )
    predict(Study({"": tmp_path}, tmp_path / "s", cells), {"": 256}, flops=1.0)
    assert len(planned) == 2  # 0 leaves a pass out
