"""Corpus: the audited triplets as numbers, which is what models and matrices work with."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from triptych.triplets.table import TripletTable
from triptych.triplets.text import join_captions

IntArray = npt.NDArray[np.int64]

SMALL_GALLERY = 50
"""Where a category has fewer pictures, all pictures of the data are searched instead."""


@dataclass(frozen=True)
class Items:
    """M triplets to be judged, real ones or probes.

    Attributes:
        reference: ``[M]`` number of the picture.
        text: ``[M]`` number of the text.
        target: ``[M]`` number of the picture.
        category: ``[M]`` number of the category.
        base: ``[M]`` the row of the table that it is, or was made from.
        own: ``[M, 3]`` the rows that gave its reference, text and target; they are no neighbours of it.
    """

    reference: IntArray
    text: IntArray
    target: IntArray
    category: IntArray
    base: IntArray
    own: IntArray

    def __len__(self) -> int:
        return len(self.reference)


class Corpus:
    """N triplets, their pictures and texts, each numbered.

    Attributes:
        images: the ids of all pictures.
        texts: all different texts, captions joined and cleaned.
        categories: the names of all categories.
        rows: every triplet, as items in the table's order.
        galleries: per category the numbers of the pictures that its triplets name, or of all where these are few.
        home: ``[number of images]`` the category that a picture is named in most often.

    Args:
        table: triplets with targets.
    """

    def __init__(self, table: TripletTable) -> None:
        self.table = table
        self.images = table.image_ids()
        number = {image: at for at, image in enumerate(self.images)}
        joined = [join_captions(captions) for captions in table.column("captions")]
        self.texts = list(dict.fromkeys(joined))
        text_number = {text: at for at, text in enumerate(self.texts)}
        self.categories = table.categories
        category_number = {name: at for at, name in enumerate(self.categories)}
        category = np.array([category_number[name] for name in table.column("category")], dtype=np.int64)
        every = np.arange(len(table), dtype=np.int64)
        self.rows = Items(
            np.array([number[image] for image in table.column("reference")], dtype=np.int64),
            np.array([text_number[text] for text in joined], dtype=np.int64),
            np.array([number[image] for image in table.column("target")], dtype=np.int64),
            category,
            every,
            np.repeat(every[:, None], 3, axis=1),
        )
        self.galleries = [self._gallery(at) for at in range(len(self.categories))]
        named: dict[int, Counter[int]] = defaultdict(Counter)
        for pictures in (self.rows.reference, self.rows.target):
            for picture, at in zip(pictures.tolist(), category.tolist(), strict=True):
                named[picture][at] += 1
        self.home = np.array(
            [named[at].most_common(1)[0][0] for at in range(len(self.images))], dtype=np.int64
        )

    def __len__(self) -> int:
        return len(self.table)

    def items(self, sources: IntArray) -> Items:
        """Make triplets of others' parts: ``[M, 3]`` rows that give reference, text and target.

        The category is that of two of the three rows at least, which for a probe is the copied one.
        """
        base = np.where(sources[:, 0] == sources[:, 1], sources[:, 0], sources[:, 2])
        return Items(
            self.rows.reference[sources[:, 0]],
            self.rows.text[sources[:, 1]],
            self.rows.target[sources[:, 2]],
            self.rows.category[base],
            base,
            sources,
        )

    def _gallery(self, category: int) -> IntArray:
        chosen = self.rows.category == category
        pictures = np.unique(np.concatenate([self.rows.reference[chosen], self.rows.target[chosen]]))
        return pictures if len(pictures) >= SMALL_GALLERY else np.arange(len(self.images), dtype=np.int64)
