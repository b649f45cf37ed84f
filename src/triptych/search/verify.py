"""Check that a gallery is whole: every row read, every vector looked at."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from triptych.search.columns import HASH, ID, POOLED, TARGETS, THUMBNAIL, TOKENS
from triptych.search.gallery import Gallery

Progress = Callable[[int, int], None]

_BATCH = 512
_LENGTH, _POOLED = 5e-3, 5e-3
"""How far a row may be longer than 1, and a pooled vector from the mean of its rows: what half precision costs."""


@dataclass
class Verified:
    """What a check found.

    Attributes:
        images: how many were looked at.
        problems: sentence to how many images it is true of; empty where all is well.
        examples: sentence to the first such image.
    """

    images: int = 0
    problems: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def add(self, problem: str, image_ids: list[str]) -> None:
        """Count a problem of some images."""
        if image_ids:
            self.problems[problem] += len(image_ids)
            self.examples.setdefault(problem, image_ids[0])


def verify(gallery: Gallery, *, progress: Progress | None = None) -> Verified:
    """Read every row of a gallery and check ids, hashes, thumbnails and vectors, and that its model loads.

    Raises:
        DataError: the table cannot be read at all, or the model is damaged or another one.
    """
    gallery.load_model()
    result = Verified()
    seen: set[str] = set()
    shape, total = gallery.info.shape, len(gallery)
    columns = [ID, HASH, THUMBNAIL, POOLED, TARGETS, *([TOKENS] if shape.tokens else [])]
    for batch in gallery.store.batches(columns, _BATCH):
        ids: list[str] = batch[ID].to_pylist()
        result.images += len(ids)
        twice = [image_id for image_id in ids if image_id in seen]
        result.add("the id is there twice", twice)
        seen.update(ids)

        def where(wrong: Any, ids: list[str] = ids) -> list[str]:
            return [image_id for image_id, bad in zip(ids, wrong, strict=True) if bad]

        hashes = batch[HASH].to_pylist()
        result.add("the content hash is no SHA-256", where(np.array([len(h) != 64 for h in hashes])))
        result.add(
            "the thumbnail is no picture",
            where(np.array([_broken(t) for t in batch[THUMBNAIL].to_pylist()])),
        )
        targets = np.asarray(batch[TARGETS].flatten(), np.float32).reshape(len(ids), shape.queries, shape.dim)
        pooled = np.asarray(batch[POOLED].flatten(), np.float32).reshape(len(ids), shape.dim)
        finite = np.isfinite(targets).all(axis=(1, 2)) & np.isfinite(pooled).all(axis=1)
        result.add("a vector is not finite", where(~finite))
        lengths = np.linalg.norm(np.where(np.isfinite(targets), targets, 0), axis=2).max(axis=1)
        result.add("a target vector is longer than 1", where(finite & (lengths > 1 + _LENGTH)))
        mean = targets.mean(axis=1)
        mean /= np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-12)
        off = np.abs(mean - pooled).max(axis=1) > _POOLED
        result.add("the pooled vector is not the mean of the target vectors", where(finite & off))
        if shape.tokens:
            tokens = np.asarray(batch[TOKENS].flatten(), np.float32).reshape(len(ids), -1)
            result.add("an image token is not finite", where(~np.isfinite(tokens).all(axis=1)))
        if progress:
            progress(result.images, total)
    if result.images != total:
        result.add(f"the table counts {total:,} images, but {result.images:,} can be read", ["the table"])
    return result


def _broken(thumbnail: bytes) -> bool:
    try:
        with Image.open(io.BytesIO(thumbnail), formats=("JPEG",)) as picture:
            picture.load()
    except Exception:  # a decoder may raise anything
        return True
    return False
