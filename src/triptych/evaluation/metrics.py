"""Figures from ranks, a value per query; the mean, and how sure it is, come last."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from triptych.evaluation.ranking import UNRANKED, IntArray
from triptych.randomness import generator

FloatArray = npt.NDArray[np.float64]

_BOOTSTRAP_CELLS = 8 * 2**20  # draws held at once


def recall_at_k(ranks: IntArray, k: int) -> FloatArray:
    """Say for each query whether its target is among the first k: ``[N]`` of 0 or 1.

    Args:
        ranks: ``[N]`` zero-based rank of the one target of each query.
        k: how many places count, at least 1.

    Example:
        >>> recall_at_k(np.array([0, 9, 10]), 10).tolist()
        [1.0, 1.0, 0.0]
    """
    return (np.asarray(ranks) < _checked_k(k)).astype(np.float64)


def average_precision_at_k(answer_ranks: Sequence[IntArray], k: int) -> FloatArray:
    r"""Reward every right answer near the top: average precision of each query, ``[N]`` in [0, 1].

    .. math:: AP@K = \frac{1}{\min(K, |G|)} \sum_{k=1}^{K} rel_k \cdot Prec@k

    Args:
        answer_ranks: per query the zero-based ranks of all its right answers G, in any order, at least one.
        k: how many places count, at least 1.

    Raises:
        ValueError: a query has no right answer.

    Source: specification, section 2.4 (CIRCO). The mean over queries is mAP@K.

    Example: the right answers stand first and third, so precision is 1 and 2/3.

        >>> average_precision_at_k([np.array([2, 0])], 5).round(4).tolist()
        [0.8333]
    """
    _checked_k(k)
    counts = np.array([len(ranks) for ranks in answer_ranks], dtype=np.int64)
    if (counts == 0).any():
        raise ValueError(f"query {int(np.argmin(counts))} has no right answer")
    padded = np.full((len(counts), int(counts.max(initial=0))), UNRANKED, dtype=np.int64)
    padded[np.arange(padded.shape[1]) < counts[:, None]] = np.concatenate(
        [*answer_ranks, np.empty(0, np.int64)]
    )
    padded.sort(axis=1)
    found = np.arange(1, padded.shape[1] + 1)
    precision = found / (
        np.minimum(padded, k) + 1.0
    )  # of a rank below k: right answers so far / places so far
    total: FloatArray = np.where(padded < k, precision, 0.0).sum(axis=1)
    return total / np.minimum(counts, k)


def without_reference(ranks: IntArray, reference_ranks: IntArray) -> IntArray:
    """Give the ranks as they are once the reference image is taken out of the gallery.

    Args:
        ranks: ``[N]`` or ``[N, M]`` ranks with the reference kept in.
        reference_ranks: ``[N]`` ranks of the reference image; :data:`UNRANKED` where the gallery lacks it.

    Returns:
        The same shape; :data:`UNRANKED` for an image that is the reference itself.
    """
    ranks = np.asarray(ranks)
    reference = np.asarray(reference_ranks).reshape(-1, *([1] * (ranks.ndim - 1)))
    moved = ranks - ((reference < ranks) & (ranks != UNRANKED))
    return np.where(ranks == reference, UNRANKED, moved)


def subset_ranks(target_ranks: IntArray, member_ranks: Sequence[IntArray]) -> IntArray:
    """Give the target's rank among a few images only, as CIRR's subset recall asks: ``[N]``.

    Args:
        target_ranks: ``[N]`` ranks of the target in the whole gallery.
        member_ranks: per query the ranks, in the same gallery, of the subset's images without the
            reference; the target itself may be among them.

    Source: specification, section 2.3.
    """
    ahead = [
        int((members < target).sum()) for target, members in zip(target_ranks, member_ranks, strict=True)
    ]
    return np.where(np.asarray(target_ranks) == UNRANKED, UNRANKED, np.array(ahead, dtype=np.int64))


def macro_mean(values: FloatArray, groups: Sequence[Hashable]) -> FloatArray:
    """Average ``[N]`` or ``[N, M]`` within each group, then over the groups: a scalar array or ``[M]``."""
    means = [values[rows].mean(axis=0) for rows in _rows_by_group(groups, len(values)).values()]
    return np.asarray(np.mean(means, axis=0))


def bootstrap_interval(
    values: FloatArray,
    groups: Sequence[Hashable],
    *,
    seed: int,
    samples: int = 1000,
    level: float = 0.95,
) -> tuple[FloatArray, FloatArray]:
    """Bound the macro mean by the percentile bootstrap: queries are drawn again within each group.

    Columns share their draws, so that metrics of the same queries can be compared.

    Args:
        values: ``[N]`` or ``[N, M]``, a value per query (and metric).
        groups: ``[N]`` the category of each query.
        seed: of the named generator ``bootstrap/<group>``; a group's draws do not depend on the other groups.
        samples: how often to draw.
        level: share of the samples between the bounds, in (0, 1).

    Returns:
        The lower and the upper bound, each a scalar array or ``[M]``, in the units of ``values``.

    Raises:
        ValueError: there are no values, the lengths differ, or a setting is out of range.
    """
    if samples < 1 or not 0 < level < 1:
        raise ValueError(f"samples must be positive and level in (0, 1), got {samples} and {level}")
    table = np.asarray(values, dtype=np.float64)
    total = np.zeros((samples, *table.shape[1:]))
    by_group = _rows_by_group(groups, len(table))
    for group, rows in by_group.items():
        total += _resampled_means(table[rows], generator(seed, "bootstrap", str(group)), samples)
    tail = 50 * (1 - level)
    low, high = np.percentile(total / len(by_group), [tail, 100 - tail], axis=0)
    return np.asarray(low), np.asarray(high)


def _resampled_means(values: FloatArray, random: np.random.Generator, samples: int) -> FloatArray:
    """Draw ``len(values)`` rows with replacement, ``samples`` times, and average: ``[samples, ...]``."""
    size = len(values)
    step = max(_BOOTSTRAP_CELLS // size, 1)
    means = []
    for start in range(0, samples, step):
        count = min(step, samples - start)
        drawn = random.integers(size, size=(count, size)) + np.arange(count)[:, None] * size
        times = np.bincount(drawn.ravel(), minlength=count * size).reshape(count, size)
        means.append(np.tensordot(times / size, values, axes=1))
    return np.concatenate(means)


def _rows_by_group(groups: Sequence[Hashable], length: int) -> dict[Hashable, IntArray]:
    if len(groups) != length or not length:
        raise ValueError(
            f"expected one group for each of {length} values and at least one, got {len(groups)}"
        )
    rows: dict[Hashable, list[int]] = {}
    for row, group in enumerate(groups):
        rows.setdefault(group, []).append(row)
    return {group: np.array(members, dtype=np.int64) for group, members in rows.items()}


def _checked_k(k: int) -> int:
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    return k
