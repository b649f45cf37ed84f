"""Store: where a gallery's rows lie. A folder or object storage (LanceDB), or a Qdrant server; by its address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from triptych.errors import UsageError
from triptych.search.columns import Shape
from triptych.search.filter_tree import Filter

if TYPE_CHECKING:
    from torch import Tensor

STORE = "store"
"""The folder of the rows in a gallery that names no other store."""

ADDRESSES = "s3://bucket/path (gs:// and az:// likewise), or qdrant://host:port/collection"

APPROXIMATE_FROM = 20_000
"""Images from which a search is approximate first: below it the exact scan takes some milliseconds."""

CANDIDATES = 1_000
"""Images that the first stage hands to the exact second one, at least."""

CANDIDATE_SHARE = 40
"""One image in so many is a candidate in large galleries: how far a right one can fall grows with the gallery."""

FILTERED_EXACT = 5_000
"""A filter that passes at most so many images is scanned exactly, whatever the gallery's size."""

_BUCKETS = ("s3://", "gs://", "az://")


@dataclass(frozen=True)
class Stages:
    """How a gallery is searched.

    Attributes:
        exact: whether every image is scored; None leaves it to the gallery's size.
        small: below how many images all are scored.
        candidates: what the first stage hands on; None makes it grow with the gallery.
        probes: partitions of a table's approximate index that the first stage searches.
        memory: bytes that the target vectors may take in memory.
    """

    exact: bool | None
    small: int
    candidates: int | None
    probes: int
    memory: int

    def is_exact(self, images: int) -> bool:
        """Whether all of so many images are scored."""
        return images < self.small if self.exact is None else self.exact

    def first(self, images: int, wanted: int) -> int:
        """How many of so many images the first stage hands on, to find ``wanted``."""
        return max(self.candidates or max(CANDIDATES, images // CANDIDATE_SHARE), 4 * wanted)


@dataclass(frozen=True)
class Found:
    """The best images for a query vector.

    Attributes:
        rows: ``[K]`` uint64 keys of the store, best first.
        scores: ``[K]`` float32, ``max_q <c, t_q>``.
        scored: how many images were scored exactly.
        exact: whether these were all that pass the filter.
    """

    rows: np.ndarray
    scores: np.ndarray
    scored: int
    exact: bool


class Snapshot(Protocol):
    """What a search reads of a gallery; of LanceDB one version that does not change.

    Attributes:
        version: counts the changes of the store.
        images: how many there are.
        exact: whether all of them are scored.
        schema: of the rows.
        metadata: names of the metadata columns.
    """

    version: int
    images: int
    exact: bool
    schema: pa.Schema
    metadata: list[str]

    def find(self, vector: Tensor, wanted: int, where: Filter | None) -> Found:
        """Find the images nearest to a query vector ``[D]``."""
        ...

    def rows_of(self, image_ids: Sequence[str]) -> dict[str, int]:
        """Return the rows of images; those that are not there are left out."""
        ...

    def copies(self, image_ids: Sequence[str], hashes: set[str]) -> set[str]:
        """Return ids and the content hashes that they have, and every image of these or the given hashes."""
        ...

    def details(self, rows: Sequence[int], columns: Sequence[str]) -> list[dict[str, Any]]:
        """Read columns of rows, in that order."""
        ...

    def targets(self, rows: np.ndarray) -> Tensor:
        """Return the target vectors of rows, ``[len(rows), Q, D]``."""
        ...

    def pictures(self, image_ids: Sequence[str], column: str) -> dict[str, Any]:
        """Return the tokens, or the thumbnails, of images by id."""
        ...

    def read(
        self, columns: Sequence[str], *, where: Filter | None = None, limit: int | None = None
    ) -> pa.Table:
        """Read columns and ``_rowid`` of all images, or of those that pass a filter; the first ``limit`` only."""
        ...


class Store(Protocol):
    """The rows of a gallery, which one process writes at a time and any number read.

    Attributes:
        place: its address, for messages.
    """

    place: str

    @property
    def version(self) -> int:
        """Counts the changes; of what is open."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """Of the rows, metadata included."""
        ...

    def refresh(self) -> None:
        """Go to the newest version."""
        ...

    def count(self, where: Filter | None = None) -> int:
        """Count images, all or those that pass a filter."""
        ...

    def read(self, columns: Sequence[str], where: Filter | None = None) -> pa.Table:
        """Read columns of all images, or of those that pass a filter."""
        ...

    def batches(self, columns: Sequence[str], size: int) -> Iterator[pa.RecordBatch]:
        """Read columns of all images, so many at a time."""
        ...

    def put(self, rows: pa.Table) -> None:
        """Insert images, or replace those of the same id; on return they are on disk.

        ``rows`` may have only the id and metadata columns where every id is there already.
        """
        ...

    def add_columns(self, fields: Mapping[str, pa.DataType]) -> None:
        """Add metadata columns, empty for the images that are there."""
        ...

    def remove(self, image_ids: Sequence[str]) -> None:
        """Remove images by id."""
        ...

    def compact(self, *, forget: bool) -> None:
        """Merge small pieces, and bring the approximate index up to date."""
        ...

    def indexed(self) -> int:
        """Count the images that the approximate index covers."""
        ...

    def size(self) -> tuple[int | None, int]:
        """Return bytes, where they are known, and pieces that the rows lie in."""
        ...

    def snapshot(self, shape: Shape, stages: Stages) -> Snapshot:
        """Open the newest version for searching."""
        ...


def create_store(folder: Path, address: str | None, shape: Shape, owner: str) -> Store:
    """Make an empty store for the gallery in ``folder``.

    Args:
        folder: the gallery.
        address: of the store; None for the gallery's own folder.
        shape: sizes of a row.
        owner: fingerprint of the model, which a shared store keeps.

    Raises:
        UsageError: the address is not one, or something else is there.
        DataError: the store does not answer or cannot be written.
    """
    if _is_qdrant(address):
        from triptych.search.qdrant_store import QdrantStore

        return QdrantStore.create(str(address), shape, owner)
    from triptych.search.lance_store import LanceStore

    return LanceStore.create(address or folder / STORE, shape)


def open_store(folder: Path, address: str | None, shape: Shape, owner: str) -> Store:
    """Open the store of the gallery in ``folder``; see :func:`create_store`.

    Raises:
        DataError: there is none, it is damaged, does not answer, or holds another model's vectors.
    """
    if _is_qdrant(address):
        from triptych.search.qdrant_store import QdrantStore

        return QdrantStore.open(str(address), shape, owner)
    from triptych.search.lance_store import LanceStore

    return LanceStore(address or folder / STORE)


def _is_qdrant(address: str | None) -> bool:
    if address is None or address.startswith(_BUCKETS):
        return False
    if address.startswith("qdrant"):
        return True
    raise UsageError(f'a store is {ADDRESSES}, not "{address}"')
