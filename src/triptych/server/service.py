"""What the server does, without HTTP: search in batches, write one at a time, look for new versions."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import pyarrow as pa
from torch import Tensor

from triptych.errors import DataError, TriptychError, UsageError
from triptych.search.browse import Browser, Page
from triptych.search.columns import ID, check_id, kind_of, metadata_fields
from triptych.search.embed_queries import Ready
from triptych.search.explain import Explanation, explain
from triptych.search.facets import Facet, facets
from triptych.search.feedback import append_triplet
from triptych.search.gallery import FEEDBACK, REJECTED, Gallery
from triptych.search.gallery_engine import Answer, GalleryEngine, UnknownImageError
from triptych.search.indexing import embed_rows, prepare
from triptych.search.query import Query
from triptych.server.batching import Batcher
from triptych.server.metrics import Metrics
from triptych.server.schemas import GalleryName, ModelName
from triptych.server.settings import ServerSettings

_COMPACT_EVERY = 256
"""Writes after which the table's pieces are merged."""

Outcome = Literal["added", "changed", "same", "removed"]


class Service:
    """A gallery that is searched and written by many.

    Args:
        engine: its model is used by one thread at a time.
        settings: the limits.
        metrics: what is counted.
    """

    def __init__(self, engine: GalleryEngine, settings: ServerSettings, metrics: Metrics) -> None:
        self.engine, self.settings, self.metrics = engine, settings, metrics
        self._writer = Gallery.open(engine.gallery.folder)  # a handle of its own: searches keep their version
        self._writing, self._model = asyncio.Lock(), threading.Lock()
        self._writes = 0
        self._browser = Browser()
        self._facets: tuple[int, list[Facet]] | None = None
        self._batcher: Batcher[Ready, Tensor] | None = None
        self._following: asyncio.Task[None] | None = None
        self._measure()

    def start(self) -> None:
        """Begin to work, in the running loop."""
        self._batcher = Batcher(self._embed, self.settings.batch, self.metrics.batch.observe)
        self._batcher.start()
        self._following = asyncio.get_running_loop().create_task(self._follow())

    async def stop(self) -> None:
        """End."""
        if self._following:
            self._following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._following
        if self._batcher:
            await self._batcher.stop()
        self._batcher = None

    @property
    def ready(self) -> bool:
        """Whether searches are answered."""
        return self._batcher is not None

    @property
    def model(self) -> ModelName:
        """The model's name."""
        info = self.engine.gallery.info
        return ModelName(name=info.model, fingerprint=info.fingerprint)

    @property
    def gallery(self) -> GalleryName:
        """The version that is searched."""
        return GalleryName(version=self.engine.snapshot.version, images=self.engine.snapshot.images)

    async def search(self, query: Query) -> Answer:
        """Answer a query.

        Raises:
            TriptychError: it cannot be answered.
        """
        snapshot = self.engine.snapshot
        read = partial(self.engine.prepare, query, max_pixels=self.settings.pixels, snapshot=snapshot)
        ready = await asyncio.to_thread(read)
        vector = await self._batched(ready)
        answer = await asyncio.to_thread(partial(self.engine.find, ready, vector, snapshot=snapshot))
        self.metrics.find_seconds.observe(answer.milliseconds / 1000)
        return answer

    async def thumbnail(self, image_id: str) -> bytes:
        """Return a JPEG.

        Raises:
            UnknownImageError: there is no such image.
        """
        found = await asyncio.to_thread(self.engine.thumbnail, image_id)
        if found is None:
            raise UnknownImageError(image_id)
        return found

    async def add(self, image_id: str, data: bytes, name: str, metadata: dict[str, Any] | None) -> Outcome:
        """Embed a picture and write it; on return it is on disk.

        Raises:
            TriptychError: the picture, the id or the metadata cannot be used, or another process is writing.
        """
        check_id(image_id)
        async with self._writing:
            row = None if metadata is None else await asyncio.to_thread(self._metadata_row, metadata)
            outcome: Outcome = await self._settled(asyncio.to_thread(self._add, image_id, data, name, row))
            return outcome

    async def remove(self, image_id: str) -> None:
        """Remove an image; on return that is on disk.

        Raises:
            UnknownImageError: there is no such image.
            BusyError: another process is writing.
        """
        async with self._writing:
            if not await self._settled(asyncio.to_thread(self._remove, image_id)):
                raise UnknownImageError(image_id)

    async def feedback(
        self, reference: str, text: str, target: str, category: str | None, *, right: bool = True
    ) -> str:
        """Write a triplet to disk, and return its id; a wrong one goes to another file than the right ones.

        Raises:
            UnknownImageError: a picture is not in the gallery.
            DataError: it cannot be written.
        """
        known = await asyncio.to_thread(self.engine.snapshot.rows_of, [reference, target])
        for image_id in (reference, target):
            if image_id not in known:
                raise UnknownImageError(image_id)
        write = partial(
            append_triplet,
            self.engine.gallery.folder / (FEEDBACK if right else REJECTED),
            reference=reference,
            text=text,
            target=target,
            category=category,
            most_bytes=self.settings.feedback_bytes,
        )
        triplet_id = await asyncio.to_thread(write)
        self.metrics.feedback.inc()
        return triplet_id

    async def page(self, after: str | None, skip: int, limit: int, where: str | None) -> Page:
        """Return a page of the gallery.

        Raises:
            TriptychError: the filter cannot be read, or the table is damaged.
        """
        read = partial(self._browser.page, self.engine.snapshot, after=after, skip=skip)
        return await asyncio.to_thread(partial(read, limit=limit, where=where))

    async def facets(self) -> list[Facet]:
        """Describe the metadata columns of the version that is searched; computed once a version."""
        snapshot = self.engine.snapshot
        if self._facets is None or self._facets[0] != snapshot.version:
            self._facets = (snapshot.version, await asyncio.to_thread(facets, snapshot))
        return self._facets[1]

    async def explain(self, query: Query) -> Explanation:
        """Say what the query vector of a query's last turn was made of.

        Raises:
            TriptychError: that cannot be said of this query or model.
        """
        return await asyncio.to_thread(self._explain, query)

    def feedback_refusal(self) -> str | None:
        """Say why no feedback can be taken, if so."""
        folder = self.engine.gallery.folder
        path = folder / FEEDBACK
        if not os.access(path if path.exists() else folder, os.W_OK):
            return "the gallery's folder cannot be written here"
        if path.exists() and path.stat().st_size >= self.settings.feedback_bytes:
            return f"the file of feedback has reached its {self.settings.feedback_bytes:,} bytes"
        return None

    def _explain(self, query: Query) -> Explanation:
        with self._model:
            return explain(self.engine, query, max_pixels=self.settings.pixels)

    def _embed(self, ready: Sequence[Ready]) -> list[Tensor]:
        with self._model:
            return list(self.engine.embed(ready))

    async def _batched(self, ready: Ready) -> Tensor:
        if self._batcher is None:
            raise DataError("the server is not ready")
        return await self._batcher(ready)

    async def _settled(self, work: Any) -> Any:
        """Finish a write even if its request is given up, so that the lock is not let go in the middle of it."""
        task = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):
                await task
            raise

    def _add(self, image_id: str, data: bytes, name: str, row: dict[str, pa.Array] | None) -> Outcome:
        gallery, model = self._writer, self.engine.model
        with gallery.writing(wait=min(1.0, self.settings.deadline / 4)):
            known = gallery.take([image_id], ["content_hash"]).get(image_id, {}).get("content_hash")
            prepared = prepare(
                image_id, name, data, gallery, model, known=known, max_pixels=self.settings.pixels
            )
            if prepared is None:
                if row:
                    gallery.put(pa.table({ID: [image_id], **row}))
                    self._written()
                return "same"
            with self._model:
                table = embed_rows(gallery, model, [prepared])
            for column, value in (row or {}).items():
                table = table.append_column(column, value)
            gallery.put(table)
            self._written()
            return "added" if known is None else "changed"

    def _remove(self, image_id: str) -> bool:
        with self._writer.writing(wait=min(1.0, self.settings.deadline / 4)):
            removed = self._writer.remove([image_id]) > 0
            if removed:
                self._written()
            return removed

    def _metadata_row(self, metadata: dict[str, Any]) -> dict[str, pa.Array]:
        """Check values against the gallery's columns; a request adds none.

        Raises:
            UsageError: a column is unknown, or a value of another kind.
        """
        own = metadata_fields(self._writer.schema)
        row = {}
        for name, value in metadata.items():
            if name not in own:
                known = ", ".join(own) or "none"
                raise UsageError(f'the gallery has no metadata column "{name[:60]}"; it has: {known}')
            kind = kind_of(own[name])
            fits = {"text": isinstance(value, str), "truth value": isinstance(value, bool)}
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not fits.get(kind, number):
                raise UsageError(f'the metadata column "{name}" holds {kind}s, not {str(value)[:60]!r}')
            try:
                row[name] = pa.array([value], own[name])
            except (pa.ArrowException, OverflowError, UnicodeError):
                raise UsageError(f'the metadata column "{name}" cannot hold {str(value)[:60]!r}') from None
        return row

    def _written(self) -> None:
        self._writes += 1
        if self._writes % _COMPACT_EVERY == 0:
            self._writer.compact()
        if self.engine.snapshot.exact:  # small: the change is seen at once; a large gallery is looked at soon
            self.engine.refresh()
        self._measure()

    async def _follow(self) -> None:
        """Go to new versions of the gallery, whoever wrote them."""
        while True:
            await asyncio.sleep(self.settings.refresh)
            with contextlib.suppress(TriptychError):  # a gallery that cannot be read now may be later
                if await asyncio.to_thread(self.engine.refresh):
                    self._measure()

    def _measure(self) -> None:
        self.metrics.images.set(self.engine.snapshot.images)
        self.metrics.version.set(self.engine.snapshot.version)
