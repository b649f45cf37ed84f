"""Folds: parts of the triplets, so that each is scored by models that were trained on the others."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt

from triptych.randomness import generator
from triptych.triplets.table import TripletTable

IntArray = npt.NDArray[np.int64]


def assign_folds(table: TripletTable, folds: int, seed: int) -> IntArray:
    """Deal the triplets to folds, each category evenly; triplets of the same two pictures stay together.

    A model that has learnt "A to B" has an opinion on "B to A" and on another text between the two, so such triplets
    must not lie on both sides.

    Args:
        table: triplets with targets.
        folds: how many; fewer come out where there are fewer different pairs of pictures.
        seed: of the draw.

    Returns:
        ``[N]`` the fold of each row, from 0.

    Example:
        >>> from triptych.triplets import Triplet
        >>> rows = [Triplet("1", "a", ("red",), "b"), Triplet("2", "b", ("blue",), "a"), Triplet("3", "c", ("x",), "d")]
        >>> parts = assign_folds(TripletTable.from_triplets(rows), 5, seed=0)
        >>> bool(parts[0] == parts[1]), len(set(parts.tolist()))
        (True, 2)
    """
    groups: dict[tuple[str, frozenset[str]], list[int]] = defaultdict(list)
    first: dict[frozenset[str], tuple[str, frozenset[str]]] = {}
    columns = (table.column("category"), table.column("reference"), table.column("target"))
    for row, (category, reference, target) in enumerate(zip(*columns, strict=True)):
        pair = frozenset((reference, target))
        groups[first.setdefault(pair, (category, pair))].append(row)
    by_category: dict[str, list[list[int]]] = defaultdict(list)
    for (category, _), rows in groups.items():
        by_category[category].append(rows)
    count = min(folds, len(groups))
    parts = np.zeros(len(table), dtype=np.int64)
    dealt = 0
    for category in sorted(by_category):
        order = generator(seed, "audit folds", category).permutation(len(by_category[category]))
        for place in order:
            parts[by_category[category][place]] = dealt % count
            dealt += 1
    return parts
