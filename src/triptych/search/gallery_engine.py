"""GalleryEngine: search a gallery on disk, exactly where it is small, in two stages where it is large."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

from triptych.errors import UsageError
from triptych.search.columns import HEIGHT, ID, SOURCE, THUMBNAIL, TOKENS, WIDTH, filter_fields
from triptych.search.embed_queries import Ready, embed_queries, prepare_query
from triptych.search.filters import parse_filter
from triptych.search.gallery import Gallery
from triptych.search.query import Query
from triptych.search.store import APPROXIMATE_FROM, Snapshot, Stages
from triptych.training.model import Model
from triptych.triplets.decoding import MAX_PIXELS, decode_image

Mode = Literal["auto", "exact", "approximate"]

MEMORY = 2**30
"""Bytes that target vectors may take in memory, the first stage's included; 300,000 images of ``lite``."""

PROBES = 32
"""Partitions of the approximate index that are searched where the vectors are not in memory."""


@dataclass(frozen=True)
class GalleryHit:
    """An image that was found.

    Attributes:
        rank: its place, from 1.
        image_id: its id in the gallery.
        score: ``max_q <c, t_q>``, in [-1, 1].
        vector: which of its Q target vectors won, from 0.
        source: the file that it was indexed from.
        width: of the picture, in pixels.
        height: of the picture, in pixels.
        metadata: its metadata columns.
    """

    rank: int
    image_id: str
    score: float
    vector: int
    source: str
    width: int
    height: int
    metadata: dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What a search gives.

    Attributes:
        hits: best first.
        method: ``exact`` (every image that passes the filter was scored) or ``approximate`` (the candidates were).
        scored: how many images were scored exactly.
        images: how many the gallery has.
        version: of the gallery.
        model: the model's name.
        fingerprint: of the model.
        milliseconds: what finding took, encoding apart.
    """

    hits: tuple[GalleryHit, ...]
    method: Literal["exact", "approximate"]
    scored: int
    images: int
    version: int
    model: str
    fingerprint: str
    milliseconds: float


class GalleryEngine:
    """A gallery and its model, opened once and searched many times, from several threads.

    Args:
        gallery: a gallery or its folder.
        model: its model; by default the one that lies in it, loaded at the first query.
        mode: ``auto`` scans small galleries exactly; ``exact`` or ``approximate`` forces one.
        candidates: what the first stage of an approximate search hands on; by default 1,000, or one image in 40
            where that is more.
        probes: partitions of the index that it searches.
        small: below how many images ``auto`` scans.
        memory: bytes that the target vectors may take in memory; where they do not fit they are read from disk.

    Raises:
        UsageError: there is no gallery, or a setting does not fit.
        DataError: it is damaged, or was made by another model.

    Example::

        engine = GalleryEngine("gallery")
        answer = engine.search(Query.of(image="10023", text="make it red", where="price < 50"))
    """

    def __init__(
        self,
        gallery: Gallery | str | Path,
        *,
        model: Model | None = None,
        mode: Mode = "auto",
        candidates: int | None = None,
        probes: int = PROBES,
        small: int = APPROXIMATE_FROM,
        memory: int = MEMORY,
    ) -> None:
        if (candidates is not None and candidates < 1) or probes < 1:
            raise UsageError("candidates and probes must be at least 1")
        if mode not in ("auto", "exact", "approximate"):
            raise UsageError(f'unknown mode "{mode}"; choose auto, exact or approximate')
        self.gallery = gallery if isinstance(gallery, Gallery) else Gallery.open(gallery)
        if model is not None:
            self.gallery.require(model, "the given model")
        self._model, self._loading = model, threading.Lock()
        exact = {"auto": None, "exact": True, "approximate": False}[mode]
        self._stages = Stages(exact, small, candidates, probes, memory)
        self._refreshing = threading.Lock()
        self.snapshot = self._open()

    @property
    def model(self) -> Model:
        """The gallery's model, loaded when it is first needed.

        Raises:
            DataError: its files are damaged, or are another model's.
        """
        with self._loading:
            if self._model is None:
                self._model = self.gallery.load_model()
            return self._model

    def refresh(self) -> bool:
        """Go to the gallery's newest version; returns whether it is another. Searches meanwhile are not disturbed."""
        with self._refreshing:
            self.gallery.refresh()
            if self.gallery.version == self.snapshot.version:
                return False
            self.snapshot = self._open()
            return True

    def search(self, query: Query) -> Answer:
        """Find the images that fit a query.

        Raises:
            UsageError: the query says nothing, names an unknown image, or its filter cannot be read.
            DataError: a picture cannot be decoded, or the table is damaged.
        """
        return self.search_many([query])[0]

    def search_many(self, queries: Sequence[Query]) -> list[Answer]:
        """Find what fits each query; their pictures and texts are embedded together."""
        snapshot = self.snapshot
        ready = [self.prepare(query, snapshot=snapshot) for query in queries]
        vectors = embed_queries(ready, self.model)
        return [self.find(one, vector, snapshot=snapshot) for one, vector in zip(ready, vectors, strict=True)]

    def prepare(
        self, query: Query, *, max_pixels: int = MAX_PIXELS, snapshot: Snapshot | None = None
    ) -> Ready:
        """Check a query, filter included, and read its pictures.

        Raises:
            UsageError: the query says nothing, names an unknown image, or its filter cannot be read.
            ImageError: a picture cannot be decoded.
        """
        now = snapshot or self.snapshot
        if query.where is not None:
            parse_filter(query.where, filter_fields(now.schema))
        return prepare_query(query, self.model, lambda ids: self.stored(now, ids), max_pixels=max_pixels)

    def embed(self, ready: Sequence[Ready]) -> Tensor:
        """Embed prepared queries together: ``[N, D]``."""
        return embed_queries(ready, self.model)

    def find(self, ready: Ready, vector: Tensor, *, snapshot: Snapshot | None = None) -> Answer:
        """Find the images nearest to a query vector ``[D]``."""
        now, started, query = snapshot or self.snapshot, time.perf_counter(), ready.query
        where = None if query.where is None else parse_filter(query.where, filter_fields(now.schema))
        ids = [image.id for image in query.references if image.id is not None]
        same = set() if query.keep_references else now.copies(ids, ready.hashes)
        wanted = query.top + len(same)
        found = now.find(vector, wanted, where)
        hits = self._hits(now, found.rows, found.scores, vector, same, query.top)
        return Answer(
            tuple(hits),
            "exact" if found.exact else "approximate",
            found.scored,
            now.images,
            now.version,
            self.gallery.info.model,
            self.gallery.info.fingerprint,
            (time.perf_counter() - started) * 1000,
        )

    def thumbnail(self, image_id: str) -> bytes | None:
        """Return an image's thumbnail (JPEG), or None where it is not in the gallery."""
        found: dict[str, bytes] = self.snapshot.pictures([image_id], THUMBNAIL)
        return found.get(image_id)

    def thumbnails(self, image_ids: Sequence[str]) -> dict[str, bytes]:
        """Return the thumbnails (JPEG) of images by id."""
        return self.snapshot.pictures(image_ids, THUMBNAIL)

    def _open(self) -> Snapshot:
        return self.gallery.store.snapshot(self.gallery.info.shape, self._stages)

    def stored(self, snapshot: Snapshot, ids: Sequence[str]) -> dict[str, np.ndarray]:
        """Return the tokens ``[P, V]`` of images, or the pixels ``[3, H, W]`` of their thumbnails."""
        size = self.gallery.info.shape.tokens
        found = snapshot.pictures(ids, TOKENS if size else THUMBNAIL)
        missing = [image_id for image_id in ids if image_id not in found]
        if missing:
            raise UnknownImageError(missing[0])
        if size:
            return {image_id: flat.reshape(size) for image_id, flat in found.items()}
        preprocess = self.model.backbone.preprocess
        return {image_id: preprocess(decode_image(data, image_id)) for image_id, data in found.items()}

    def _hits(
        self,
        snapshot: Snapshot,
        rows: np.ndarray,
        scores: np.ndarray,
        vector: Tensor,
        same: set[str],
        top: int,
    ) -> list[GalleryHit]:
        details = snapshot.details(rows.tolist(), [ID, SOURCE, WIDTH, HEIGHT, *snapshot.metadata])
        winners = (snapshot.targets(rows).float() @ vector.float()).argmax(dim=1).tolist()
        hits: list[GalleryHit] = []
        for row, score, winner in zip(details, scores.tolist(), winners, strict=True):
            if row[ID] not in same and len(hits) < top:
                metadata = {name: row[name] for name in snapshot.metadata}
                place = len(hits) + 1
                hits.append(
                    GalleryHit(place, row[ID], score, winner, row[SOURCE], row[WIDTH], row[HEIGHT], metadata)
                )
        return hits


class UnknownImageError(UsageError):
    """A query names an image that is not in the gallery."""

    def __init__(self, image_id: str) -> None:
        super().__init__(f'there is no image "{image_id}" in the gallery')
        self.image_id = image_id
