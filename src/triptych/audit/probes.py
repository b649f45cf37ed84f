"""Probes: triplets of the user's own data that we make wrong on purpose, to learn what wrong ones look like."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from triptych.noise.corruption import TripletField
from triptych.randomness import generator
from triptych.triplets.table import TripletTable

Reach: TypeAlias = Literal["any", "near"]
"""Where the wrong value comes from: any other triplet, or the most similar of some of the same category."""

IntArray = npt.NDArray[np.int64]

CORNERS: tuple[TripletField, ...] = get_args(TripletField)
REACHES: tuple[Reach, ...] = get_args(Reach)
CLASSES: tuple[str, ...] = tuple(f"{corner} {reach}" for corner in CORNERS for reach in REACHES)
"""The kinds of wrong triplet that the classifier tells apart, as ``text near``."""

NEAR_OF = 48
"""A near value is the most similar one of so many that are drawn."""


@dataclass(frozen=True)
class Probes:
    """M triplets, each a copy of a row with one field taken from another row.

    Attributes:
        base: ``[M]`` the row that was copied.
        donor: ``[M]`` the row that gave the wrong value.
        corner: ``[M]`` which field, as an index of :data:`CORNERS`.
        kind: ``[M]`` corner and reach, as an index of :data:`CLASSES`.
    """

    base: IntArray
    donor: IntArray
    corner: IntArray
    kind: IntArray

    def __len__(self) -> int:
        return len(self.base)

    def sources(self) -> IntArray:
        """Return from which row each probe takes its reference, text and target, ``[M, 3]``."""
        rows = np.repeat(self.base[:, None], len(CORNERS), axis=1)
        rows[np.arange(len(self)), self.corner] = self.donor
        return rows

    def take(self, chosen: npt.NDArray[np.bool_]) -> Probes:
        """Return some of them."""
        return Probes(self.base[chosen], self.donor[chosen], self.corner[chosen], self.kind[chosen])


def draw_probes(
    table: TripletTable, count: int, seed: int, *, looks: npt.NDArray[np.floating] | None = None
) -> Probes:
    """Draw rows and donors, for each class of :data:`CLASSES` as many; where no value changes there is no probe.

    Args:
        table: the triplets.
        count: how many, about.
        seed: of the draw.
        looks: ``[N, F]`` what reference and target of each row look like, rows of length 1, by which a near donor is
            chosen; without it a near donor is any of the category.
    """
    random = generator(seed, "audit probes")
    rows = len(table)
    pictures = _codes([*table.column("reference"), *table.column("target")])
    values = [pictures[:rows], _codes(table.column("captions")), pictures[rows:]]
    category = _codes(table.column("category"))
    members = [np.flatnonzero(category == code) for code in range(int(category.max(initial=-1)) + 1)]
    base = np.resize(random.permutation(rows), count)
    kind = np.arange(count) % len(CLASSES)
    corner = kind // len(REACHES)
    donor = random.integers(rows, size=count)
    for at in np.flatnonzero(kind % len(REACHES) == REACHES.index("near")):
        drawn = random.choice(members[category[base[at]]], size=NEAR_OF)
        drawn = drawn[values[corner[at]][drawn] != values[corner[at]][base[at]]]
        if len(drawn):
            best = 0 if looks is None else int((looks[drawn] @ looks[base[at]]).argmax())
            donor[at] = drawn[best]
    changed = np.array(
        [values[c][d] != values[c][b] for b, c, d in zip(base, corner, donor, strict=True)], bool
    )
    reference = np.where(corner == 0, values[0][donor], values[0][base])
    target = np.where(corner == 2, values[2][donor], values[2][base])
    return Probes(base, donor, corner, kind).take(
        changed & (reference != target)
    )  # a rule finds one picture twice


def _codes(values: Sequence[Hashable]) -> IntArray:
    code: dict[Hashable, int] = {}
    return np.array([code.setdefault(value, len(code)) for value in values], dtype=np.int64)
