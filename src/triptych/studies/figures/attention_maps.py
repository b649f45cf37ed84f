"""Which regions of the reference and which words a query was mixed from, drawn over the picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from triptych.studies.figures.board import Board
from triptych.studies.figures.canvas import BLUE, GREY, style
from triptych.studies.figures.opened_run import OpenedRun
from triptych.studies.figures.query_batch import KnownQuery
from triptych.training.query_attention import QueryAttention, query_attention


def attention_of(run: OpenedRun, queries: Sequence[KnownQuery]) -> list[QueryAttention]:
    """Follow the attention of queries.

    Raises:
        UsageError: backbone or method have no such attention.
    """
    tokens = run.tokens([query.reference for query in queries])
    return query_attention(run.model, tokens, [query.text for query in queries])


def strongest_words(attention: QueryAttention, count: int) -> list[int]:
    """Return the places of the words with the largest shares, in the order of the text."""
    order = np.argsort(-attention.word_shares, kind="stable")[:count]
    return sorted(int(at) for at in order)


def draw_attention(
    run: OpenedRun,
    queries: Sequence[KnownQuery],
    found: Sequence[QueryAttention],
    *,
    words: int = 4,
    note: str = "",
) -> Any:
    """Draw a row a query: the picture, its regions in the query, the words' shares, and some words' own regions.

    A map is clear where its share is largest and dark where it is smallest; the ratio of the two stands below it.
    """
    side, gap, head = 1.25, 0.14, 0.5
    maps = 0.2 + side + gap
    bars = maps + side + 0.25
    singles = bars + 2.5
    width, row_height = singles + words * (side + gap) + 0.1, side + 0.72
    height = head + len(queries) * row_height + 0.65
    with style():
        board = Board(width, height)
        for words_above, x in (
            ("reference", 0.2),
            ("its regions", maps),
            ("words, percent", bars),
            ("regions in what single words became", singles),
        ):
            board.text(words_above, x, 0.35, 4, fontweight="bold", va="baseline")
        for row, (query, each) in enumerate(zip(queries, found, strict=True)):
            y = head + row * row_height
            board.line(0.2, y, width - 0.2, y)
            board.text(query.text, 0.2, y + 0.07, width - 0.4, lines=1, size=8.5, color="#374151")
            y += 0.32
            pixels = run.model.backbone.preprocess(run.benchmark.images.load(query.reference))
            picture = Image.fromarray(np.round(pixels.transpose(1, 2, 0) * 255).astype(np.uint8))
            board.picture(picture, 0.2, y, side)
            board.heat(picture, each.regions, maps, y, side)
            said = f"{100 * each.regions.sum():.0f} %, × {contrast(each.regions):.1f}"
            board.text(said, maps, y + side + 0.05, side, size=8, color=GREY)
            _bars(board, each, bars, y, side)
            for column, word in enumerate(strongest_words(each, words)):
                x = singles + column * (side + gap)
                board.heat(picture, each.by_word[word], x, y, side)
                said = f"{each.words[word]}, × {contrast(each.by_word[word]):.1f}"
                board.text(said, x, y + side + 0.05, side, size=8, lines=1)
        said = (
            "Attention through all layers says what was mixed, not what would change the answer. A map is clear where"
            " its share is largest; × is how many times the smallest that is."
        )
        board.note(f"{said} {note}".strip(), height - 0.5)
        return board.figure


def contrast(shares: npt.NDArray[np.float32]) -> float:
    """Return how many times the smallest share the largest is; infinite where one is 0."""
    low, high = float(shares.min()), float(shares.max())
    return high / low if low > 0 else float("inf")


def _bars(board: Board, attention: QueryAttention, x: float, y: float, height: float) -> None:
    from matplotlib.patches import Rectangle

    shown = strongest_words(attention, 9)
    step = min(0.2, height / max(len(shown), 1))
    largest = float(attention.word_shares.max()) if len(shown) else 1.0
    for row, at in enumerate(shown):
        share = float(attention.word_shares[at])
        top = y + row * step
        board.text(
            attention.words[at],
            x + 0.95,
            top + step / 2,
            0.95,
            size=8,
            lines=1,
            va="center_baseline",
            ha="right",
        )
        wide = 0.9 * share / max(largest, 1e-12)
        board.axes.add_patch(
            Rectangle((x + 1.02, top + 0.2 * step), wide, 0.6 * step, facecolor=BLUE, linewidth=0)
        )
        board.text(f"{100 * share:.1f}", x + 1.07 + wide, top + step / 2, 0.5, size=7.5, va="center_baseline")
    left_out = len(attention.words) - len(shown)
    if left_out:
        board.text(f"{left_out} more words", x, y + height + 0.04, 2, size=8, color=GREY)
