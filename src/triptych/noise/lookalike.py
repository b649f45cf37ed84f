"""Look-alike triplets: whose targets are close in colour and layout, but whose texts differ."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from PIL import Image

from triptych.triplets.table import TripletTable

if TYPE_CHECKING:
    from triptych.triplets.images import ImageStore

Progress: TypeAlias = Callable[[int, int], None]

SIDE = 8
BLOCK = 256


def thumbnails(ids: Sequence[str], images: ImageStore, progress: Progress | None = None) -> np.ndarray:
    """Return the pictures of ``ids`` as tiny colour thumbnails; each picture is read once.

    Returns:
        ``[len(ids), 192]`` float32 in ``[0, 1]``: 8 x 8 pixels, RGB.

    Raises:
        DataError: a picture is missing or cannot be read.
    """
    unique = list(dict.fromkeys(ids))
    small = np.empty((len(unique), SIDE * SIDE * 3), dtype=np.float32)
    for row, image_id in enumerate(unique):
        picture = images.load(image_id).resize((SIDE, SIDE), Image.Resampling.BOX)
        small[row] = np.asarray(picture, dtype=np.float32).reshape(-1) / 255
        if progress is not None:
            progress(row + 1, len(unique))
    row_of = {image_id: row for row, image_id in enumerate(unique)}
    return small[[row_of[image_id] for image_id in ids]]


def pair_lookalikes(
    table: TripletTable, features: np.ndarray, order: Sequence[int], count: int
) -> list[tuple[int, int]]:
    """Pair rows greedily with their nearest unused look-alike.

    A partner is of the same category, has other captions (by value) and another target: a text may describe
    the target, and would stay right with the same one.

    Args:
        table: the triplets.
        features: ``[N, F]`` float32 look of each row's target.
        order: the rows in the order in which they seek a partner; ties go to the lower row.
        count: pairs wanted.

    Returns:
        At most ``count`` pairs of rows; every row in at most one. Fewer, where the data has no more.
    """
    category = _codes(table.column("category"))
    captions, target = _codes(table.column("captions")), _codes(table.column("target"))
    norms = np.einsum("nf,nf->n", features, features)
    free = np.ones(len(table), dtype=bool)
    pairs: list[tuple[int, int]] = []
    for start in range(0, len(order), BLOCK):
        seekers = [row for row in order[start : start + BLOCK] if free[row]]
        if len(pairs) == count:
            break
        distances = norms[None, :] - 2 * features[seekers] @ features.T
        for row, distance in zip(seekers, distances, strict=True):
            if len(pairs) == count:
                break
            if not free[row]:
                continue
            allowed = (
                free & (category == category[row]) & (captions != captions[row]) & (target != target[row])
            )
            if not allowed.any():
                continue
            partner = int(np.where(allowed, distance, np.inf).argmin())
            free[row] = free[partner] = False
            pairs.append((row, partner))
    return pairs


def _codes(values: Sequence[Hashable]) -> np.ndarray:
    code: dict[Hashable, int] = {}
    return np.array([code.setdefault(value, len(code)) for value in values], dtype=np.int64)
