"""Refuses a cell that cannot run, before the first one does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from triptych.errors import explain_validation
from triptych.methods import registry
from triptych.methods.ablations import apply_ablations
from triptych.studies.cells import Cell, Study
from triptych.training.config import TrainingConfig


def check_cells(study: Study) -> None:
    """Check the settings of every cell.

    Raises:
        UsageError: a setting is unknown, a value does not fit, a row and a setting contradict, or a method does not
            fit a backbone; names it.
    """
    name = str(study.backbone.get("name", ""))
    for cell in dict.fromkeys(study.cells):
        method = method_of(study, cell)
        registry.configure(cell.method, {key: value for key, value in method.items() if key != "name"})
        registry.refuse_unfit(cell.method, cell.backbone or name or "lite")
        explain_validation(TrainingConfig, training_of(study, cell), "training")


def method_of(study: Study, cell: Cell) -> dict[str, Any]:
    """Return a cell's method as ``{"name": ..., switches}``."""
    switches = {**study.switches.get(cell.method, {}), **section_of(cell, "method")}
    return apply_ablations([cell.row] if cell.row else [], {"name": cell.method, **switches})


def training_of(study: Study, cell: Cell) -> dict[str, Any]:
    """Return a cell's settings of training."""
    return {**study.training, **section_of(cell, "training")}


def section_of(cell: Cell, section: str) -> Mapping[str, Any]:
    """Return what sets a cell apart, of one section."""
    return {
        key.partition(".")[2]: json.loads(value)
        for key, value in cell.settings
        if key.partition(".")[0] == section
    }
