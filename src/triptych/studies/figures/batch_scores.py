"""One batch of queries and their targets: the matrix of scores, and where the right answers stand in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from triptych.methods.intent import Intent
from triptych.objectives.loyalty import loyalty
from triptych.objectives.similarity import similarity
from triptych.studies.figures.canvas import BLUE, GREEN, HEAT, caption, new_figure, style, wrapped
from triptych.studies.figures.opened_run import OpenedRun
from triptych.studies.figures.query_batch import KnownQuery

FloatArray = npt.NDArray[np.float64]
TEMPERATURE = 0.07


@dataclass(frozen=True)
class ScoreMatrix:
    """Scores of a batch, the right answers on the diagonal.

    Attributes:
        scores: ``[B, B]`` similarity of each query (rows) and each target.
        diagonal: mean of the right pairs.
        off_diagonal: mean of the others.
        gap: mean lead of a right pair over the others of its query, in standard deviations of those from the mean
            of their query: what ranking sees, whatever the level of a row is.
        first: percent of the queries whose right answer scores highest (ties count as lost).
    """

    scores: FloatArray
    diagonal: float
    off_diagonal: float
    gap: float
    first: float


def score_matrix(scores: npt.ArrayLike) -> ScoreMatrix:
    """Describe a square matrix of scores.

    Raises:
        ValueError: it is not square, or smaller than two.
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 2 or values.shape[0] != values.shape[1] or len(values) < 2:
        raise ValueError(f"expected [B, B] with B of at least 2, got {values.shape}")
    off = ~np.eye(len(values), dtype=bool)
    others = values[off].reshape(len(values), -1)
    right, wrong = values.diagonal(), others.mean(axis=1)
    spread = (others - wrong[:, None]).std()
    gap = (right - wrong).mean() / spread if spread > 0 else float("nan")
    return ScoreMatrix(
        values,
        float(right.mean()),
        float(wrong.mean()),
        float(gap),
        100 * float((diagonal_ranks(values) == 1).mean()),
    )


def diagonal_ranks(scores: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return where the diagonal stands in each row, ``[B]``, 1 = first; a tie counts against it."""
    values = np.asarray(scores)
    own = values.diagonal()[:, None]
    ranks: npt.NDArray[np.int64] = (values >= own).sum(axis=1)  # itself among them
    return ranks


def batch_similarity(run: OpenedRun, batch: Sequence[KnownQuery]) -> FloatArray:
    """Score every query of a batch against every target, ``[B, B]``."""
    queries = run.queries([query.reference for query in batch], [query.text for query in batch])
    targets = run.targets([query.target for query in batch])
    scores: FloatArray = similarity(queries, targets).double().numpy()
    return scores


def batch_loyalty(scores: FloatArray, temperature: float = TEMPERATURE) -> FloatArray:
    """Weigh the scores by INTENT's loyalty (equations 6 to 9), ``[B, B]`` in (0, 1)."""
    degrees: FloatArray = loyalty(torch.from_numpy(scores), temperature=temperature).numpy()
    return degrees


def loyalty_temperature(run: OpenedRun) -> float:
    """Return the temperature that the run's own loyalty has; 0.07 for other methods than INTENT."""
    method = run.model.method
    return method.config.temperature if isinstance(method, Intent) else TEMPERATURE


@dataclass(frozen=True)
class AnswerRanks:
    """Where the right answer of each query stands in its batch.

    Attributes:
        by: what it was sorted by.
        ranks: ``[B]``, 1 = first.
        first: percent of the queries that rank it first.
        mean: of the ranks.
    """

    by: str
    ranks: npt.NDArray[np.int64]
    first: float
    mean: float


def answer_ranks(scores: npt.ArrayLike, by: str) -> AnswerRanks:
    """Rank the diagonal of ``[B, B]`` scores."""
    ranks = diagonal_ranks(scores)
    return AnswerRanks(by, ranks, 100 * float((ranks == 1).mean()), float(ranks.mean()))


def places(size: int) -> list[int]:
    """Choose the ticks of an axis from 1 to ``size``."""
    step = 10 if size > 20 else 5 if size > 10 else 1
    return sorted({1, *range(step, size + 1, step)})


def draw_score_matrices(matrices: Mapping[str, ScoreMatrix], *, note: str = "") -> Any:
    """Draw heat maps side by side on one scale of colours."""
    with style():
        figure = new_figure(1.2 + 4.1 * len(matrices), 5.2)
        panels = figure.subplots(1, len(matrices), squeeze=False, sharey=True)[0]
        low = min(each.scores.min() for each in matrices.values())
        high = max(each.scores.max() for each in matrices.values())
        image = None
        for axes, (name, each) in zip(panels, matrices.items(), strict=True):
            size = len(each.scores)
            image = axes.imshow(
                each.scores,
                cmap=HEAT,
                vmin=low,
                vmax=high,
                interpolation="nearest",
                extent=(0.5, size + 0.5, size + 0.5, 0.5),
            )
            axes.set_xticks(places(size))
            axes.set_yticks(places(size))
            said = (
                f"right pairs {each.diagonal:.2f}, others {each.off_diagonal:.2f}\n"
                f"gap {each.gap:.1f} standard deviations; right first {each.first:.0f} %"
            )
            axes.set_title(f"{wrapped(name, 38)}\n{said}", loc="left", fontsize=10)
            axes.set_xlabel("target of query")
            for spine in axes.spines.values():
                spine.set_visible(False)
        panels[0].set_ylabel("query")
        figure.colorbar(image, ax=list(panels), label="similarity s", shrink=0.8)
        if note:
            caption(figure, note, characters=int(15 * (1.2 + 4.1 * len(matrices))))
        return figure


def draw_answer_ranks(
    left: tuple[str, AnswerRanks], right: tuple[str, AnswerRanks], *, note: str = ""
) -> Any:
    """Draw the rank of each query's right answer, two ways side by side; a line joins them down the batch."""
    size = len(left[1].ranks)
    with style():
        figure = new_figure(8.6, min(2.2 + 0.075 * size, 11))
        panels = figure.subplots(1, 2, sharey=True, sharex=True)
        for axes, (name, each), colour in zip(panels, (left, right), (BLUE, GREEN), strict=True):
            queries = np.arange(1, size + 1)
            axes.plot(each.ranks, queries, "--", color=colour, linewidth=0.8, alpha=0.6)
            first = each.ranks == 1
            axes.plot(each.ranks[first], queries[first], "o", color=colour, markersize=4, label="first")
            axes.plot(
                each.ranks[~first],
                queries[~first],
                "o",
                markersize=4,
                markerfacecolor="white",
                markeredgecolor=colour,
                label="not first",
            )
            axes.set_title(
                f"{wrapped(name, 40)}\nby {each.by}: first {each.first:.0f} %, mean rank {each.mean:.1f}",
                loc="left",
                fontsize=10,
            )
            axes.set_xlabel(f"rank of the right answer among {size}")
            axes.set_xlim(0, size + 1)
            axes.set_xticks(places(size))
        panels[0].set_ylabel("query of the batch")
        panels[0].set_ylim(size + 1, 0)
        handles, labels = panels[0].get_legend_handles_labels()
        labels = [f"right answer {label}" for label in labels]
        figure.legend(handles, labels, loc="outside upper center", ncols=2, fontsize=9)
        if note:
            caption(figure, note, characters=125)
        return figure
