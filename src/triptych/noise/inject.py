"""Inject noise: draw triplets and give each one wrong field."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np

from triptych.errors import DataError, UsageError
from triptych.noise.corruption import Corruption, Kind, TripletField
from triptych.noise.lookalike import Progress, pair_lookalikes, thumbnails
from triptych.noise.manifest import COLUMN, NoiseManifest
from triptych.triplets.table import TripletTable

if TYPE_CHECKING:
    from triptych.triplets.images import ImageStore

WriteBack: TypeAlias = Literal["pop", "indexed"]

KINDS: dict[Kind, str] = {
    "mix": "the published protocol: a third of the drawn triplets each get a wrong reference, text or target",
    "hard": "texts swapped between look-alike triplets of one category; reference and target stay",
    "reference": "the references of the drawn triplets are shuffled among themselves",
    "text": "the texts of the drawn triplets are shuffled among themselves",
    "target": "the targets of the drawn triplets are shuffled among themselves",
}
"""Every kind of noise, in one line."""

FIELDS: tuple[TripletField, ...] = get_args(TripletField)


def inject(
    table: TripletTable,
    *,
    kind: Kind,
    ratio: float,
    seed: int,
    images: ImageStore | None = None,
    write_back: WriteBack = "pop",
    progress: Progress | None = None,
) -> NoiseManifest:
    """Draw noise for a clean training table and list it; ``manifest.apply(table)`` gives the noisy table.

    Args:
        table: clean training triplets, every one with a target.
        kind: one of :data:`KINDS`.
        ratio: share of the triplets to draw, in ``[0, 1]``; the real rate is a little lower, because a
            shuffle leaves some values where they were and some rows share a value.
        seed: seed of Python's ``random.Random``, not negative.
        images: the pictures, needed by ``hard`` only.
        write_back: order in which shuffled values are handed out, see :func:`mix_sources`.
        progress: called with (done, total) while ``hard`` reads pictures.

    Raises:
        UsageError: unknown kind, ratio outside ``[0, 1]``, negative seed, or ``hard`` without pictures.
        DataError: a triplet has no target, or a picture that ``hard`` needs cannot be read.

    Source: spec 1.4 (``mix``).
    """
    if kind not in KINDS:
        raise UsageError(f"unknown kind of noise: {kind!r}; choose one of {', '.join(KINDS)}")
    targets = table.column("target")
    if None in targets:
        problem = (
            f"triplet {table.triplet_ids[targets.index(None)]} has no target, so it is not a training triplet"
        )
        raise DataError(problem, field="target", mend="Give the training table.")

    drawn = num_drawn(len(table), ratio)
    if kind == "mix":
        sources = mix_sources(len(table), ratio, seed, write_back)
    elif kind == "hard":
        if images is None:
            raise UsageError(
                "hard noise compares pictures: give the images of the data (images=benchmark.images)"
            )
        drawn -= drawn % 2
        sources = _hard_sources(table, drawn, seed, images, progress)
    else:
        sources = np.tile(np.arange(len(table))[:, None], 3)
        sources[:, FIELDS.index(kind)] = permuted_sources(len(table), ratio, seed, write_back)

    corruptions = _by_value(table, sources)
    return NoiseManifest(
        kind=kind,
        seed=seed,
        ratio_asked=float(ratio),
        num_triplets=len(table),
        table_fingerprint=table.fingerprint(),
        corruptions=corruptions,
        fixed_points=drawn - len(corruptions),
    )


def mix_sources(n: int, ratio: float, seed: int, write_back: WriteBack = "pop") -> np.ndarray:
    """Draw the published "mix" noise: from which row each row takes its reference, text and target.

    ``int(ratio * n)`` distinct rows are drawn and cut into thirds; the references are shuffled inside
    the first third, the texts inside the second, the targets inside the last.

    Args:
        n: number of triplets.
        ratio: share to draw, in ``[0, 1]``.
        seed: seed of Python's ``random.Random``.
        write_back: ``pop`` hands out the shuffled values from the end (all released code but one),
            ``indexed`` from the start (TME on CIRR). The same distribution, another instance.

    Returns:
        ``[n, 3]`` int64 source rows for (reference, text, target); the identity where nothing is drawn.

    Raises:
        UsageError: a ratio outside ``[0, 1]``, or a negative seed.

    Source: spec 1.4.
    """
    rng, rows = _draw(n, ratio, seed)
    sources = np.tile(np.arange(n)[:, None], 3)
    cuts = (0, int(len(rows) / 3), int(2 * len(rows) / 3), len(rows))
    for column in range(3):
        third = rows[cuts[column] : cuts[column + 1]]
        sources[third, column] = _shuffled(third, rng, write_back)
    return sources


def permuted_sources(n: int, ratio: float, seed: int, write_back: WriteBack = "pop") -> np.ndarray:
    """Draw ``int(ratio * n)`` rows and shuffle one field among them.

    Returns:
        ``[n]`` int64 source rows.

    Raises:
        UsageError: a ratio outside ``[0, 1]``, or a negative seed.
    """
    rng, rows = _draw(n, ratio, seed)
    sources = np.arange(n)
    sources[rows] = _shuffled(rows, rng, write_back)
    return sources


def num_drawn(n: int, ratio: float) -> int:
    """Return how many of ``n`` triplets a ratio draws: ``int(ratio * n)``, as published."""
    if not 0 <= ratio <= 1:
        raise UsageError(f"the ratio of noise must lie between 0 and 1, not {ratio}")
    return int(ratio * n)


def _draw(n: int, ratio: float, seed: int) -> tuple[random.Random, list[int]]:
    count = num_drawn(n, ratio)
    rng = _generator(seed)
    return rng, rng.sample(range(n), count)


def _generator(seed: int) -> random.Random:
    if seed < 0:
        raise UsageError(f"the seed must not be negative: {seed}")
    return random.Random(seed)


def _shuffled(rows: Sequence[int], rng: random.Random, write_back: WriteBack) -> list[int]:
    if write_back not in get_args(WriteBack):
        raise UsageError(f"unknown write-back order: {write_back!r}; choose pop or indexed")
    values = list(rows)
    rng.shuffle(values)
    return values[::-1] if write_back == "pop" else values


def _hard_sources(
    table: TripletTable, drawn: int, seed: int, images: ImageStore, progress: Progress | None
) -> np.ndarray:
    sources = np.tile(np.arange(len(table))[:, None], 3)
    order = list(range(len(table)))
    _generator(seed).shuffle(order)
    if drawn:
        pairs = pair_lookalikes(
            table, thumbnails(table.column("target"), images, progress), order, drawn // 2
        )
        for left, right in pairs:
            sources[left, 1], sources[right, 1] = right, left
    return sources


def _by_value(table: TripletTable, sources: np.ndarray) -> tuple[Corruption, ...]:
    ids = table.triplet_ids
    columns = [table.column(COLUMN[field]) for field in FIELDS]
    return tuple(
        Corruption(ids[row], FIELDS[column], columns[column][row], columns[column][sources[row, column]])
        for row, column in np.argwhere(sources != np.arange(len(table))[:, None]).tolist()
        if columns[column][row] != columns[column][sources[row, column]]
    )
