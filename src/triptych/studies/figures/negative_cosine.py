"""How far negative queries point away from their queries: cosines <c, n> (ConeSep, figure 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triptych.studies.figures.canvas import COLOURS, caption, new_figure, style, wrapped
from triptych.studies.figures.opened_run import OpenedRun
from triptych.studies.figures.query_batch import KnownQuery

CLAIM = (0.0, 0.1)
"""Where the paper says that the mass is."""
_RANGE, _BINS, _POINTS, _MARGIN = (-0.2, 0.6), 50, 241, 4


@dataclass(frozen=True)
class CosineHistogram:
    """Cosines of one run's queries, binned.

    Attributes:
        edges: ``[51]`` borders of the bins; 50 on [-0.2, 0.6], or on a wider range of bins of the same width where
            a cosine lies outside.
        share: ``[50]`` percent of the queries in each bin.
        at: where the density was estimated.
        density: the kernel estimate there, percent of the queries in a bin's width; empty where all are equal.
        mean: of the cosines.
        median: of the cosines.
        claimed: percent of the cosines in [0, 0.1].
        queries: how many.
    """

    edges: npt.NDArray[np.float64]
    share: npt.NDArray[np.float64]
    at: npt.NDArray[np.float64]
    density: npt.NDArray[np.float64]
    mean: float
    median: float
    claimed: float
    queries: int


def cosine_histogram(cosines: npt.ArrayLike) -> CosineHistogram:
    """Bin cosines and estimate their density by Gaussian kernels (Scott's rule).

    Args:
        cosines: ``[N]`` in [-1, 1], at least one.

    Raises:
        ValueError: there is none, or one is not finite.
    """
    values = np.asarray(cosines, dtype=np.float64)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise ValueError(f"expected finite cosines [N], got shape {values.shape}")
    width = (_RANGE[1] - _RANGE[0]) / _BINS
    below, above = (
        0 if outside <= 1e-9 else int(np.ceil(outside / width)) + _MARGIN
        for outside in (_RANGE[0] - values.min(), values.max() - _RANGE[1])
    )
    edges = np.asarray(_RANGE[0] + width * np.arange(-below, _BINS + above + 1), dtype=np.float64)
    counts, _ = np.histogram(values.clip(edges[0], edges[-1]), bins=edges)
    at = np.linspace(edges[0], edges[-1], _POINTS)
    density = np.empty(0)
    if values.std() > 0:
        bandwidth = values.std(ddof=1) * len(values) ** -0.2
        kernels = np.exp(-0.5 * ((at[:, None] - values) / bandwidth) ** 2)
        density = 100 * width * kernels.mean(axis=1) / (bandwidth * np.sqrt(2 * np.pi))
    low, high = CLAIM
    inside = (values >= low) & (values <= high)
    return CosineHistogram(
        edges,
        100 * counts / len(values),
        at,
        density,
        float(values.mean()),
        float(np.median(values)),
        100 * float(inside.mean()),
        len(values),
    )


def negative_cosines(run: OpenedRun, queries: Sequence[KnownQuery]) -> npt.NDArray[np.float64]:
    """Return the cosine of every query with its negative query, ``[N]``.

    Raises:
        UsageError: the run is none of ConeSep.
    """
    references, texts = [query.reference for query in queries], [query.text for query in queries]
    negatives = run.negatives(references, texts, "the cosine with the negative query")
    cosines: npt.NDArray[np.float64] = (
        (run.queries(references, texts) * negatives).sum(dim=1).double().numpy()
    )
    return cosines


def draw_negative_cosines(histograms: Mapping[str, CosineHistogram], *, note: str = "") -> Any:
    """Draw one panel a run: bars, the density over them, and the range that the paper claims."""
    with style():
        figure = new_figure(7, 0.9 + 2.5 * len(histograms))
        panels = figure.subplots(len(histograms), 1, sharex=True, squeeze=False)[:, 0]
        for at, (axes, (name, each)) in enumerate(zip(panels, histograms.items(), strict=True)):
            colour = COLOURS[at % len(COLOURS)]
            axes.axvspan(
                *CLAIM, color="#000000", alpha=0.07, linewidth=0, label="[0, 0.1], the paper's claim"
            )
            widths = np.diff(each.edges)
            axes.bar(
                each.edges[:-1], each.share, widths, align="edge", color=colour, alpha=0.45, label="queries"
            )
            if len(each.density):
                axes.plot(each.at, each.density, color=colour, linewidth=2, label="kernel density")
            axes.axvline(each.median, color="black", linewidth=1, linestyle="--", label="median")
            said = f"median {each.median:.3f}, {each.claimed:.0f} % in [0, 0.1], {each.queries:,} queries"
            axes.set_title(f"{wrapped(name, 40)}: {said}", loc="left")
            axes.set_ylabel(f"queries in {widths[0]:.3f}, percent")
            axes.margins(x=0)
        panels[0].legend(loc="best", fontsize=9)
        panels[-1].set_xlabel("cosine of query c and negative query n")
        if note:
            caption(figure, note, characters=105)
        return figure
