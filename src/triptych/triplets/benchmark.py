"""Benchmark: a training table and, per split and category, queries with the gallery that they search."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from triptych.triplets.images import ImageStore
from triptych.triplets.table import TripletTable


@dataclass(frozen=True)
class QuerySet:
    """The queries of one category of one split, and the gallery that is ranked for each.

    Attributes:
        split: such as ``val``.
        category: such as ``dress``; ``all`` where the data has none.
        queries: the query triplets; ``target`` may be null in a test split.
        gallery: the ids of the ranked images, each once.
        answers: per ``triplet_id`` every right image, the target first; empty where only the target is known.
        aspects: per ``triplet_id`` what its text asks for (CIRCO's semantic aspects); empty where not annotated.
    """

    split: str
    category: str
    queries: TripletTable
    gallery: tuple[str, ...]
    answers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    aspects: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Benchmark:
    """A data set as training, evaluation and search see it.

    Attributes:
        name: the folder's name.
        path: where it was read from.
        train: all training triplets, the categories one after the other in sorted order.
        splits: split name to its query sets, one a category, in sorted order (``train`` is not among them).
        images: every picture of the data.
        licence: what the data says of its licence, or a note that it says nothing.
        warnings: what was odd but usable, one sentence each, with counts.
        protocol: name of the protocol that the data is scored by unless told otherwise.
        gallery_known: whether the galleries are complete; not so for CIRCO without COCO's list or pictures.
        notes: what a report on this data must say, such as queries that were left out; one sentence each.
    """

    name: str
    path: Path
    train: TripletTable
    splits: Mapping[str, tuple[QuerySet, ...]]
    images: ImageStore
    licence: str = "not stated"
    warnings: tuple[str, ...] = ()
    protocol: str = "fashioniq"
    gallery_known: bool = True
    notes: tuple[str, ...] = ()

    def gallery_hash(self, split: str) -> str:
        """Return a SHA-256 over the galleries of a split, so that two results can be told to rank the same images."""
        digest = hashlib.sha256()
        for query_set in self.splits[split]:
            digest.update(repr((query_set.category, query_set.gallery)).encode())
        return digest.hexdigest()
