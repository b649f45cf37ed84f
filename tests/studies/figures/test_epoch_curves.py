"""Learning curves from a run's own log."""

from pathlib import Path

import pytest

from triptych.errors import DataError, UsageError
from triptych.studies.figures.epoch_curves import draw_validation_curves, run_names, validation_curve
from triptych.training.run import Run


def test_a_curve_is_what_the_run_logged(tiny_run: Path) -> None:
    run = Run(tiny_run)
    logged = [e["metrics"]["removed"]["R@10"] for e in run.metrics() if e["kind"] == "validation"]
    line = validation_curve(run, "R@10", "removed")
    assert line.at == (1.0, 2.0)
    assert list(line.mean) == logged
    steps = [e for e in run.metrics() if e["kind"] == "step"]
    first = [e["losses"]["total"] for e in steps if e["epoch"] == 0]
    assert validation_curve(run, "loss", "kept").mean[0] == pytest.approx(sum(first) / len(first))
    with pytest.raises(UsageError, match='no metric "R@11"; it has: R@'):
        validation_curve(run, "R@11", "kept")


def test_a_run_without_a_finished_epoch(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no epoch of this run is finished"):
        validation_curve(Run(tmp_path), "R@10", "kept")


def test_names_are_apart(tmp_path: Path) -> None:
    folders = [tmp_path / "a" / "run", tmp_path / "b" / "run", tmp_path / "c"]
    assert run_names(folders) == ["a/run", "b/run", "c"]
    with pytest.raises(UsageError, match="named twice"):
        run_names([folders[0], folders[0]])


def test_the_best_epoch_is_written(tiny_run: Path) -> None:
    line = validation_curve(Run(tiny_run), "R@50", "kept")
    figure = draw_validation_curves({"tiny": line}, "R@50", "kept")
    assert f"{max(line.mean):.1f}" in [text.get_text() for text in figure.axes[0].texts]
