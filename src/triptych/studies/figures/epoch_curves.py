"""A metric after each epoch, from what runs wrote while they were trained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from triptych.errors import DataError, UsageError
from triptych.evaluation import Reference
from triptych.studies.figures.line_panels import Line, draw_lines
from triptych.training.run import Run

LOSS = "loss"


def validation_curve(run: Run, metric: str, reference: Reference) -> Line:
    """Read a metric of a run's validation after each epoch, or its mean training loss (``loss``).

    Epochs are counted from 1.

    Raises:
        DataError: no epoch is finished yet.
        UsageError: the run's validation has no such metric; lists those it has.
    """
    entries = run.metrics()
    by_epoch: dict[int, list[float]] = {}
    for entry in entries:
        if metric == LOSS and entry["kind"] == "step":
            by_epoch.setdefault(entry["epoch"] + 1, []).append(entry["losses"]["total"])
        if metric != LOSS and entry["kind"] == "validation":
            found = entry["metrics"][reference]
            if metric not in found:
                raise UsageError(
                    f'{run.folder}: there is no metric "{metric}"; it has: {", ".join(found)}, loss'
                )
            by_epoch[entry["epoch"] + 1] = [found[metric]]
    if not by_epoch:
        raise DataError(
            "no epoch of this run is finished, so there is no curve",
            file=run.folder,
            mend=f"Go on with `triptych train --resume {run.folder}`.",
        )
    epochs = sorted(by_epoch)
    means = tuple(float(np.mean(by_epoch[epoch])) for epoch in epochs)
    return Line(tuple(map(float, epochs)), means, (0.0,) * len(epochs), (1,) * len(epochs))


def validation_curves(folders: Sequence[Path], metric: str, reference: Reference) -> dict[str, Line]:
    """Read the curves of several runs, by the names of their folders (with the parent's where two are alike)."""
    names = run_names(folders)
    return {
        name: validation_curve(Run.open(folder)[0], metric, reference)
        for name, folder in zip(names, folders, strict=True)
    }


def run_names(folders: Sequence[Path]) -> list[str]:
    """Name runs by their folders, with the parent folder before it where two are alike.

    Raises:
        UsageError: a folder is named twice.
    """
    resolved = [folder.resolve() for folder in folders]
    for at, folder in enumerate(resolved):
        if folder in resolved[:at]:
            raise UsageError(f"{folders[at]} is named twice")
    short = [folder.name for folder in resolved]
    return [
        name if short.count(name) == 1 else f"{folder.parent.name}/{name}"
        for name, folder in zip(short, resolved, strict=True)
    ]


def draw_validation_curves(curves: dict[str, Line], metric: str, reference: Reference) -> Any:
    """Draw the curves; the best epoch of each is ringed."""
    loss = metric == LOSS
    ylabel = "training loss, mean of the epoch" if loss else f"{metric}, percent (reference {reference})"
    return draw_lines(curves, xlabel="epoch", ylabel=ylabel, best=not loss, whole=True)
