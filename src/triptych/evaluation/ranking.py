"""Exact ranking of a gallery, in pieces that fit a memory budget: scores in, places out; no model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from triptych.errors import DataError

IntArray = npt.NDArray[np.int64]
Progress = Callable[[int, int], None]

MEMORY_BUDGET_BYTES = 256 * 2**20
"""What a ranking may hold at once beside the caller's features, unless told otherwise: 256 MiB."""

UNRANKED = int(np.iinfo(np.int64).max)
"""The rank of an image that is not in the gallery, or was taken out of it: worse than any place."""

_WORK_BYTES = (
    24  # of one score: the row buffer, the partition's copy, comparison masks and their running count
)


class ScoreBlock(Protocol):
    """Scores of some queries against some gallery images, higher is better."""

    def __call__(self, queries: slice, gallery: slice) -> npt.NDArray[np.floating]:
        """Return ``[len(queries), len(gallery)]`` finite scores, float32 or float64."""
        ...


@dataclass(frozen=True)
class Ranking:
    """Where things stand in the gallery of each query.

    Attributes:
        indices: ``[N, k]`` int64 gallery indices, best first; -1 where the gallery holds fewer than k images.
        scores: ``[N, k]`` their scores; -inf where the index is -1.
        ranks: per query the zero-based ranks of the images that were asked for, int64, in the order they
            were asked in; :data:`UNRANKED` for an excluded one.
    """

    indices: IntArray
    scores: npt.NDArray[np.floating]
    ranks: tuple[IntArray, ...]


def rank(
    score: ScoreBlock,
    num_queries: int,
    gallery_size: int,
    *,
    top_k: int = 0,
    ranks_of: Sequence[Sequence[int]] | None = None,
    exclude: Sequence[int | None] | None = None,
    names: Sequence[str] | None = None,
    memory_budget_bytes: int = MEMORY_BUDGET_BYTES,
    bytes_per_score: int = 4,
    progress: Progress | None = None,
) -> Ranking:
    """Rank a gallery for each query: exact, in one pass over the scores, ties in gallery order.

    The rank of an image is the number of images with a better score plus the number of earlier ones with the
    same score, so it is exact beyond ``top_k`` too and no chunk size changes it.

    Args:
        score: gives a block of scores; called with slices that cover queries x gallery once.
        num_queries: N.
        gallery_size: G, at least 1.
        top_k: how many of the best images to return per query; 0 for none.
        ranks_of: per query the gallery indices whose ranks are wanted (right answers, the reference).
        exclude: per query the gallery index that is taken out before ranking (the reference), or None.
        names: what to call the queries in an error; their position otherwise.
        memory_budget_bytes: upper bound of what is held at once; at least one query's row of scores is.
        bytes_per_score: what ``score`` itself needs for one score (4 Q for the best of Q float32 vectors).
        progress: called with (queries done, N).

    Raises:
        DataError: the gallery is empty, or a score is not a finite number; names the query.
        ValueError: lengths, indices or the shape of a block do not fit.

    Source: specification, section 2.1.

    Example:
        >>> scores = np.array([[0.1, 0.9, 0.9, 0.3]])
        >>> result = rank(lambda q, g: scores[q, g], 1, 4, top_k=2, ranks_of=[[2, 0]])
        >>> result.indices.tolist(), [ranks.tolist() for ranks in result.ranks]
        ([[1, 2]], [[1, 3]])
    """
    if gallery_size < 1:
        raise DataError(
            "the gallery is empty: there is nothing to rank", mend="Check the image split of this category."
        )
    wanted = _checked_lists(ranks_of, num_queries, gallery_size)
    excluded = _checked_exclusions(exclude, num_queries, gallery_size)
    k = min(top_k, gallery_size)
    indices = np.full((num_queries, k), -1, dtype=np.int64)
    best: list[npt.NDArray[np.floating]] = []
    ranks: list[IntArray] = []
    rows, columns = _block_shape(num_queries, gallery_size, memory_budget_bytes, bytes_per_score)
    for queries in _slices(num_queries, rows):
        scores = _score_rows(score, queries, gallery_size, columns)
        _check_finite(scores, queries.start, names)
        if excluded is not None:
            out = np.flatnonzero(excluded[queries] >= 0)
            scores[out, excluded[queries][out]] = -np.inf
        if k:
            indices[queries], top = _best(scores, k)
            best.append(top)
        ranks.extend(_count_ranks(scores, wanted[queries]))
        if progress is not None:
            progress(queries.stop, num_queries)
    top_scores = np.concatenate(best) if best else np.empty((num_queries, k), dtype=np.float32)
    return Ranking(indices, top_scores, tuple(ranks))


def _block_shape(num_queries: int, gallery_size: int, budget: int, bytes_per_score: int) -> tuple[int, int]:
    """Split the budget in two: whole rows for us, a block of them for the caller's ``score``."""
    if budget < 1:
        raise ValueError(f"memory_budget_bytes must be positive, got {budget}")
    rows = min(max(budget // 2 // (_WORK_BYTES * gallery_size), 1), max(num_queries, 1))
    columns = min(max(budget // 2 // (max(bytes_per_score, 1) * rows), 1), gallery_size)
    return rows, columns


def _slices(length: int, step: int) -> Iterator[slice]:
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))


def _score_rows(
    score: ScoreBlock, queries: slice, gallery_size: int, columns: int
) -> npt.NDArray[np.floating]:
    """Put whole rows together, ``[q, G]``, float32 at least."""
    rows: npt.NDArray[np.floating] | None = None
    for gallery in _slices(gallery_size, columns):
        block = np.asarray(score(queries, gallery))
        expected = (queries.stop - queries.start, gallery.stop - gallery.start)
        if block.shape != expected:
            raise ValueError(f"score gave a block of shape {block.shape}, expected {expected}")
        if rows is None:
            rows = np.empty((expected[0], gallery_size), dtype=np.promote_types(block.dtype, np.float32))
        rows[:, gallery] = block
    assert rows is not None
    return rows


def _check_finite(scores: npt.NDArray[np.floating], first: int, names: Sequence[str] | None) -> None:
    wrong = np.count_nonzero(~np.isfinite(scores), axis=1)
    if wrong.any():
        row = int(np.argmax(wrong > 0))
        name = names[first + row] if names is not None else str(first + row)
        raise DataError(
            f"query {name}: {wrong[row]} of {scores.shape[1]} scores are not finite numbers",
            mend="The model or its features hold NaN or infinite values; use an earlier checkpoint.",
        )


def _best(scores: npt.NDArray[np.floating], k: int) -> tuple[IntArray, npt.NDArray[np.floating]]:
    """Return the k best of each row, best first, ties in column order, without sorting the whole row."""
    size = scores.shape[1]
    threshold = np.partition(scores, size - k, axis=1)[:, size - k, None]
    better, equal = scores > threshold, scores == threshold
    room = k - better.sum(axis=1, keepdims=True)
    kept = better | (equal & (np.cumsum(equal, axis=1, dtype=np.int32) <= room))
    columns = np.nonzero(kept)[1].reshape(len(scores), k)
    values = np.take_along_axis(scores, columns, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    columns, values = np.take_along_axis(columns, order, axis=1), np.take_along_axis(values, order, axis=1)
    return np.where(np.isneginf(values), -1, columns), values


def _count_ranks(scores: npt.NDArray[np.floating], wanted: Sequence[IntArray]) -> list[IntArray]:
    """Count, for each wanted image of each row, what stands before it."""
    lengths = [len(images) for images in wanted]
    row = np.repeat(np.arange(len(wanted)), lengths)
    column = np.concatenate(wanted) if wanted else np.empty(0, dtype=np.int64)
    own = scores[row, column]
    ranks = np.empty(len(row), dtype=np.int64)
    positions = np.arange(scores.shape[1])
    for pairs in _slices(len(row), len(scores)):  # as many at once as there are rows: the budget holds
        theirs, mine = scores[row[pairs]], own[pairs, None]
        earlier_ties = (theirs == mine) & (positions < column[pairs, None])
        ranks[pairs] = np.count_nonzero(theirs > mine, axis=1) + np.count_nonzero(earlier_ties, axis=1)
    ranks[np.isneginf(own)] = UNRANKED
    return np.split(ranks, np.cumsum(lengths)[:-1]) if lengths else []


def _checked_lists(ranks_of: Sequence[Sequence[int]] | None, num_queries: int, size: int) -> list[IntArray]:
    if ranks_of is None:
        return [np.empty(0, dtype=np.int64)] * num_queries
    if len(ranks_of) != num_queries:
        raise ValueError(f"ranks_of names {len(ranks_of)} queries, expected {num_queries}")
    wanted = [np.asarray(images, dtype=np.int64).reshape(-1) for images in ranks_of]
    for query, images in enumerate(wanted):
        if images.size and (images.min() < 0 or images.max() >= size):
            raise ValueError(f"ranks_of of query {query} points outside the gallery of {size}")
    return wanted


def _checked_exclusions(exclude: Sequence[int | None] | None, num_queries: int, size: int) -> IntArray | None:
    if exclude is None:
        return None
    if len(exclude) != num_queries:
        raise ValueError(f"exclude names {len(exclude)} queries, expected {num_queries}")
    for query, image in enumerate(exclude):
        if image is not None and not 0 <= image < size:
            raise ValueError(f"exclude of query {query} points outside the gallery of {size}")
    return np.array([-1 if image is None else image for image in exclude], dtype=np.int64)
