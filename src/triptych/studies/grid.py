"""A grid: methods x noise x seeds on one data set, and the table of recall and of how well noise was found."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triptych.evaluation import Evaluation
from triptych.evaluation.detection import Detection
from triptych.files import atomic_write
from triptych.studies.cells import CELL, Cell, Study
from triptych.studies.run_cells import Told, run_cells


def make_grid(
    data: Path,
    folder: Path,
    cells: Sequence[Cell],
    init: Path | None = None,
    training: Mapping[str, Any] | None = None,
    switches: Mapping[str, Mapping[str, Any]] | None = None,
) -> Study:
    """Make the study of a grid; the arguments are as :class:`~triptych.studies.cells.Study` has them."""
    return Study(
        {"": data},
        folder,
        tuple(cells),
        init,
        training or {},
        switches or {},
        marker="grid.json",
        scored=("best", "last"),
    )


@dataclass(frozen=True)
class Outcome:
    """What a finished cell found."""

    cell: Cell
    best: Evaluation
    last: Evaluation
    detection: Detection | None
    seconds: float


def run_grid(grid: Study, *, jobs: int = 1, told: Told = lambda cell, seconds: None) -> list[Outcome]:
    """Run what is missing and write ``grid.md``; the arguments are as :func:`run_cells` has them.

    Raises:
        UsageError: the folder holds another grid.
        TriptychError: a cell failed; the others are finished first.
    """
    grid.claim()

    def write() -> None:
        write_tables(grid)

    try:
        run_cells(grid, jobs=jobs, told=told, after=write)
    finally:
        found = write_tables(grid)
    return [outcome for outcome in found if outcome.cell in grid.cells]


def outcomes(grid: Study) -> Iterator[Outcome]:
    """Read what is finished in the folder, cells that were asked for at another time too."""
    for path in sorted(grid.folder.glob(f"*/{CELL}")):
        noted = json.loads(path.read_text(encoding="utf-8"))
        cell = Cell.read(noted)
        found = Detection(**noted["detection"]) if noted["detection"] else None
        best, last = (Evaluation.read(path.parent / f"evaluation-{which}.json") for which in ("best", "last"))
        yield Outcome(cell, best, last, found, noted["seconds"])


def write_tables(grid: Study) -> list[Outcome]:
    """Write ``grid.md`` from what is finished."""
    found = list(outcomes(grid))
    with atomic_write(grid.folder / "grid.md") as file:
        file.write(to_markdown(grid, found))
    return found


def to_markdown(grid: Study, found: Sequence[Outcome]) -> str:
    """Write the table; a cell that was asked for and is not finished says so."""
    by_cell = {outcome.cell: outcome for outcome in found}
    cells = {*grid.cells, *by_cell}
    lines = [
        "| training data | method | seed | R@10 best epoch | R@10 last epoch | R@50 best | R@50 last "
        "| image-only R@10 | text-only R@10 | cleanliness AUROC | cleanliness AP |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in sorted(cells, key=lambda cell: (cell.noise.oracle, cell.noise, cell.method, cell.seed)):
        head = f"| {cell.noise.name} | `{cell.method}` | {cell.seed} |"
        outcome = by_cell.get(cell)
        if outcome is None:
            lines.append(f"{head} not run | | | | | | | |")
            continue
        best, last = (each.row("composed", "removed") for each in (outcome.best, outcome.last))
        low, high = best.intervals["R@10"]
        scores = outcome.detection or Detection(None, None, 0, 0)
        lines.append(
            f"{head} **{best.mean['R@10']:.1f}** [{low:.1f}, {high:.1f}] (epoch {outcome.best.model.epoch}) | "
            f"{last.mean['R@10']:.1f} (epoch {outcome.last.model.epoch}) | {best.mean['R@50']:.1f} | "
            f"{last.mean['R@50']:.1f} | {_half(outcome, 'image-only')} | {_half(outcome, 'text-only')} | "
            f"{_figure(scores.auroc)} | {_figure(scores.average_precision)} |"
        )
    return "\n".join(lines) + "\n"


def _half(outcome: Outcome, name: str) -> str:
    """Give what half of the query finds, where it can be asked alone."""
    rows = [row for row in outcome.best.rows if (row.name, row.reference) == (name, "removed")]
    return f"{rows[0].mean['R@10']:.1f}" if rows else "-"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
