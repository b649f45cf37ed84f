"""Figures that papers print, to stand beside ours where the setting is the same; averages are computed anew.

The figures lie in ``quoted.json`` with their source. Some averages that the papers print do not follow from
their own cells (specification, appendix C), so every mean here is the mean of the cells, and
:func:`misprints` lists where the papers say otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from triptych.evaluation.protocols import CIRR, FASHIONIQ, Reference

_AVERAGES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "fashioniq": FASHIONIQ.averages,
    "cirr": CIRR.averages,
}


@dataclass(frozen=True)
class Quoted:
    """One row of a paper's table.

    Attributes:
        data: ``fashioniq`` or ``cirr``.
        split: the split it was scored on.
        gallery_hash: of the official galleries of that split.
        method: as Triptych calls it.
        noise: the rate of mix noise, in [0, 1].
        reference: whether the reference was removed; None where the paper does not say for this method.
        backbone: what the figures were made with.
        source: papers and tables that print it.
        categories: category to metric to figure, percent, as printed.
        mean: metric to the mean over the categories, and the averages of those; recomputed.
        printed: paper to metric to the average as printed there.
    """

    data: str
    split: str
    gallery_hash: str
    method: str
    noise: float
    reference: Reference | None
    backbone: str
    source: str
    categories: Mapping[str, Mapping[str, float]]
    mean: Mapping[str, float]
    printed: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Misprint:
    """An average that does not follow from its own cells.

    Attributes:
        row: the row it stands in.
        metric: such as ``R@10``.
        printed: the average as printed.
        recomputed: the mean of the cells.
        papers: who prints it.
    """

    row: Quoted
    metric: str
    printed: float
    recomputed: float
    papers: tuple[str, ...]


@cache
def quoted_rows() -> tuple[Quoted, ...]:
    """Read every quoted row: FashionIQ, then CIRR, by noise."""
    document = json.loads(files("triptych.evaluation").joinpath("quoted.json").read_text(encoding="utf-8"))
    return tuple(_row(row, document) for row in document["rows"])


def misprints(tolerance: float = 0.0151) -> tuple[Misprint, ...]:
    """List the printed averages that are further from the mean of their cells than rounding explains.

    Args:
        tolerance: in percentage points; cells and averages are rounded to 0.01, some of them downwards.
    """
    found: dict[tuple[int, str, float], list[str]] = {}
    rows = quoted_rows()
    for number, row in enumerate(rows):
        for paper, averages in row.printed.items():
            for metric, value in averages.items():
                if abs(value - row.mean[metric]) > tolerance:
                    found.setdefault((number, metric, value), []).append(paper)
    return tuple(
        Misprint(rows[number], metric, value, float(as_printed(rows[number].mean[metric])), tuple(papers))
        for (number, metric, value), papers in found.items()
    )


def as_printed(value: float) -> str:
    """Write a figure as papers do: two decimals, halves upwards."""
    return str(Decimal(repr(round(value, 6))).quantize(Decimal("0.01"), ROUND_HALF_UP))


def _row(row: Mapping[str, Any], document: Mapping[str, Any]) -> Quoted:
    data, papers = document["data"][row["data"]], document["papers"]
    categories: dict[str, dict[str, float]] = {}
    for (category, metric), value in zip(data["cells"], row["cells"], strict=True):
        categories.setdefault(category, {})[metric] = value
    metrics = dict.fromkeys(metric for own in categories.values() for metric in own)
    mean = {metric: float(np.mean([own[metric] for own in categories.values()])) for metric in metrics}
    for name, parts in _AVERAGES[row["data"]].items():
        mean[name] = float(np.mean([mean[part] for part in parts]))
    return Quoted(
        data=row["data"],
        split=data["split"],
        gallery_hash=data["gallery_hash"],
        method=row["method"],
        noise=row["noise"],
        reference=document["reference"].get(row["method"]),
        backbone=data["backbone"],
        source="; ".join(f"{papers[name]['title']}, {papers[name][row['data']]}" for name in row["printed"]),
        categories=categories,
        mean=mean,
        printed={
            name: dict(zip(data["printed"], values, strict=True)) for name, values in row["printed"].items()
        },
    )
