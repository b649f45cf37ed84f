"""How much the wording of the text decides: the same queries with their captions joined otherwise."""

from __future__ import annotations

from triptych.evaluation.protocols import Reference
from triptych.evaluation.report import Evaluation

_PREFIX = "text "


def phrasing_row(name: str) -> str:
    """Name the row of a join such as ``B and A``."""
    return _PREFIX + f'"{name}"'


def phrasing_spread(evaluation: Evaluation, metric: str, reference: Reference) -> tuple[float, float] | None:
    """Return the lowest and the highest figure over the joins that were scored, the composed row's among them.

    Args:
        evaluation: a result; None is returned where it scored only one join.
        metric: such as ``R@10``.
        reference: whether the reference is kept or removed.
    """
    rows = [row for row in evaluation.rows if row.reference == reference and metric in row.mean]
    others = [row.mean[metric] for row in rows if row.name.startswith(f'{_PREFIX}"')]
    if not others:
        return None
    figures = [*others, *(row.mean[metric] for row in rows if row.name == "composed")]
    return min(figures), max(figures)
