"""How long cells will take: counted operations at this machine's speed, corrected by cells that are finished."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from triptych.studies.cells import CELL, Cell, Study
from triptych.studies.check_cells import method_of, section_of, training_of
from triptych.training.config import TrainingConfig
from triptych.training.model import WEIGHTS, model_folder, read_settings
from triptych.training.plan import Options, Planner, measured_flops


@dataclass(frozen=True)
class Prediction:
    """What is left to do.

    Attributes:
        seconds: of all cells that are not finished, one after the other.
        measured: how many finished cells the speed is taken from; 0: the speed of matrix products, a lower bound.
    """

    seconds: float
    measured: int

    @property
    def sentence(self) -> str:
        """Say it."""
        length = readable_time(self.seconds)
        if not self.measured:
            return f"at least {length} of training, at the full speed of matrix products; evaluation comes on top"
        return f"about {length}, by the {self.measured} cells that are finished"


def predict(study: Study, triplets: Mapping[str, int], *, flops: float | None = None) -> Prediction:
    """Predict how long the unfinished cells of a study take.

    Args:
        study: its cells.
        triplets: training triplets of each data set.
        flops: operations a second of this machine; measured where not given.
    """
    counts = _Counts(study, triplets, flops or measured_flops(seconds=0.2))
    ratios = []
    for cell in study.cells:
        path = study.folder / cell.name / CELL
        if path.is_file() and counts.seconds(cell):
            ratios.append(json.loads(path.read_text(encoding="utf-8"))["seconds"] / counts.seconds(cell))
    missing = [counts.seconds(cell) for cell in study.cells if not study.is_done(cell)]
    return Prediction(sum(missing) * (statistics.median(ratios) if ratios else 1.0), len(ratios))


class _Counts:
    """The operations of each cell; cells that differ in seed, noise or weights of losses are counted once."""

    def __init__(self, study: Study, triplets: Mapping[str, int], flops: float) -> None:
        self.study, self.triplets, self.flops = study, triplets, flops
        self._epochs: dict[tuple[object, ...], float] = {}

    def seconds(self, cell: Cell) -> float:
        """Return a cell's seconds at full speed."""
        settings = TrainingConfig.model_validate(training_of(self.study, cell))
        key = (cell.method, cell.row, _as_cost(cell), cell.backbone, cell.data)
        if key not in self._epochs:
            backbone = {**self._start(cell), **self.study.backbone, **section_of(cell, "backbone")}
            options = Options(
                batch_size=settings.batch_size,
                micro_batch=settings.micro_batch,
                precision=settings.precision,
                device="cpu",
            )
            planner = Planner(backbone, method_of(self.study, cell), options)
            steps = self.triplets[cell.data] // settings.batch_size
            self._epochs[key] = steps * planner.step_flops(options) / self.flops
        return settings.epochs * self._epochs[key]

    def _start(self, cell: Cell) -> Mapping[str, object]:
        init = self.study.init
        if cell.backbone or init is None or not (model_folder(init) / WEIGHTS).is_file():
            return {"name": cell.backbone or "lite"}
        found: Mapping[str, object] = read_settings(model_folder(init))["backbone"]
        return found


def _as_cost(cell: Cell) -> tuple[tuple[str, str], ...]:
    """Return a cell's settings, those that cost nothing alike: of a weight it matters only whether it is 0."""
    return tuple(
        (key, "weight" if isinstance(json.loads(value), float) and json.loads(value) > 0 else value)
        for key, value in cell.settings
    )


def readable_time(seconds: float) -> str:
    """Write a time as people read it.

    Example:
        >>> readable_time(42), readable_time(5400), readable_time(90000)
        ('42 s', '1.5 h', '25.0 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def cells_in_words(cells: Sequence[Cell], study: Study) -> str:
    """Count cells and those that are done."""
    done = sum(study.is_done(cell) for cell in cells)
    return f"{len(cells)} cells, {done} of them done"
