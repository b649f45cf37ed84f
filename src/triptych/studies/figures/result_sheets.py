"""The best five pictures for the same queries: several runs side by side, or a query and its negative query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from triptych.errors import UsageError
from triptych.evaluation.ranking import UNRANKED, rank
from triptych.randomness import generator
from triptych.studies.figures.board import RIGHT, Board, Loader
from triptych.studies.figures.canvas import ORANGE, style
from triptych.studies.figures.opened_run import OpenedRun
from triptych.studies.figures.query_batch import KnownQuery
from triptych.training.evaluate import scorer
from triptych.training.splits import find_split


@dataclass(frozen=True)
class SheetColumn:
    """What one side found.

    Attributes:
        label: the run, or the kind of query.
        found: for each query the ids of its best pictures, best first, the reference left out.
        target_rank: for each query where its target stands, 1 = first; 0 where it is not ranked.
    """

    label: str
    found: tuple[tuple[str, ...], ...]
    target_rank: tuple[int, ...]


@dataclass(frozen=True)
class Sheet:
    """Queries and what was found for them."""

    queries: tuple[KnownQuery, ...]
    columns: tuple[SheetColumn, ...]

    def only(self, rows: Sequence[int]) -> Sheet:
        """Keep some queries, in the order given."""
        columns = tuple(
            SheetColumn(
                column.label,
                tuple(column.found[row] for row in rows),
                tuple(column.target_rank[row] for row in rows),
            )
            for column in self.columns
        )
        return Sheet(tuple(self.queries[row] for row in rows), columns)


def best_pictures(
    run: OpenedRun, queries: Sequence[KnownQuery], vectors: Tensor, split: str, label: str, *, top: int = 5
) -> SheetColumn:
    """Rank each query's gallery by its vector, the reference taken out.

    Args:
        run: embeds the galleries.
        queries: N.
        vectors: ``[N, D]``.
        split: whose galleries.
        label: of the column.
        top: how many pictures to keep.
    """
    found: dict[int, tuple[str, ...]] = {}
    ranks: dict[int, int] = {}
    for part in find_split(run.benchmark, split):
        rows = [at for at, query in enumerate(queries) if query.category == part.category]
        if not rows:
            continue
        place = {name: at for at, name in enumerate(part.gallery)}
        targets = run.targets(part.gallery)
        ranking = rank(
            scorer(vectors[rows], targets),
            len(rows),
            len(part.gallery),
            top_k=top,
            ranks_of=[[place[queries[row].target]] for row in rows],
            exclude=[place.get(queries[row].reference) for row in rows],
            bytes_per_score=4 * targets.shape[1],
        )
        for row, indices, own in zip(rows, ranking.indices, ranking.ranks, strict=True):
            found[row] = tuple(part.gallery[at] for at in indices if at >= 0)
            ranks[row] = 0 if own[0] == UNRANKED else int(own[0]) + 1
    rows = list(range(len(queries)))
    return SheetColumn(label, tuple(found[row] for row in rows), tuple(ranks[row] for row in rows))


def with_failures(
    target_rank: Sequence[int] | npt.NDArray[np.int64], count: int, failures: int, seed: int
) -> list[int]:
    """Draw queries, a number of failures (the target not first) among them: evenly, not the prettiest.

    Args:
        target_rank: of every query, 1 = first.
        count: how many queries.
        failures: at least so many of them failed; fewer only where there are not so many.
        seed: of the draw.

    Returns:
        Places of the queries: first those that succeeded, then the failures, each in the data's order.

    Raises:
        UsageError: more failures than queries were asked for.
    """
    if not 0 <= failures <= count or count < 1:
        raise UsageError(f"at least one query, and 0 to {count} failures among them: got {failures}")
    order = [int(at) for at in generator(seed, "figure", "results").permutation(len(target_rank))]
    failed = [at for at in order if target_rank[at] != 1]
    chosen = failed[:failures]
    chosen += [at for at in order if at not in chosen][: count - len(chosen)]
    return sorted(chosen, key=lambda at: (target_rank[at] != 1, at))


def draw_sheet(sheet: Sheet, load: Loader, *, failures: bool = True, note: str = "") -> Any:
    """Draw a row a query: reference, text, target, and the best pictures of every column; right answers framed.

    ``failures`` marks where the target is not first.
    """
    side, gap, between = 0.78, 0.06, 0.3
    head, row_height = 0.62, side + 0.42
    top = max(len(found) for column in sheet.columns for found in column.found)
    left = 0.2 + side + 0.1 + 1.75 + 0.1 + side + between
    block = top * (side + gap) - gap + between
    width = left + len(sheet.columns) * block - between + 0.25
    height = head + len(sheet.queries) * row_height + 0.65
    with style():
        board = Board(width, height)
        bold: dict[str, Any] = {"fontweight": "bold", "va": "baseline"}
        board.text("reference", 0.2, 0.48, side, **bold)
        board.text("what to change", 0.3 + side, 0.48, 1.75, **bold)
        board.text("target", 2.15 + side, 0.48, side, **bold)
        for number, column in enumerate(sheet.columns):
            x = left + number * block
            board.text(column.label, x, 0.48, block - between, lines=1, **bold)
        for row, query in enumerate(sheet.queries):
            y = head + row * row_height
            board.line(0.2, y, width - 0.25, y)
            y += 0.12
            board.picture(load(query.reference), 0.2, y, side)
            board.text(query.text, 0.3 + side, y, 1.75, lines=6, size=8.5)
            board.picture(load(query.target), 2.15 + side, y, side, frame=RIGHT)
            for number, column in enumerate(sheet.columns):
                x = left + number * block
                for at, image_id in enumerate(column.found[row]):
                    right = image_id in query.answers
                    spot = x + at * (side + gap)
                    board.picture(load(image_id), spot, y, side, frame=RIGHT if right else None)
                place = column.target_rank[row]
                said = f"target at {place}" if place else "target not ranked"
                failed = "  (failure)" if failures and place != 1 else ""
                colour = ORANGE if failed else "#374151"
                board.text(said + failed, x, y + side + 0.06, block, size=8, color=colour)
        said = "Framed: right answers. The reference is not among the results."
        board.note(f"{said} {note}".strip(), height - 0.52)
        return board.figure
