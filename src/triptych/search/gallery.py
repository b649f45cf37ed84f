"""Gallery: a folder with a table of embedded images and the model that embedded them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from triptych.errors import DataError, UsageError
from triptych.files import explain_full_disk, write_json
from triptych.search.columns import (
    HASH,
    ID,
    Shape,
    filter_fields,
    kind_of,
    metadata_fields,
)
from triptych.search.filter_tree import Comparison, Filter
from triptych.search.lock import writing
from triptych.search.store import APPROXIMATE_FROM, STORE, create_store, open_store

if TYPE_CHECKING:
    from triptych.training.model import Model

CONFIG, MODEL = "gallery.json", "model"
FEEDBACK, REJECTED = "feedback.jsonl", "rejected.jsonl"
"""Triplets that people chose, and triplets that they called wrong: the first are to train on, the second are not."""

FORMAT = "triptych-gallery-1"

_TAKE_CHUNK = 500


@dataclass(frozen=True)
class GalleryInfo:
    """What a gallery says of itself, in ``gallery.json``.

    Attributes:
        model: the model's name.
        fingerprint: of the model's settings and weights; vectors of two fingerprints cannot be compared.
        shape: the sizes of what is stored of an image.
        thumbnail: longest side of a stored thumbnail, in pixels.
        store: address of the rows; None where they lie in the gallery's folder.
    """

    model: str
    fingerprint: str
    shape: Shape
    thumbnail: int
    store: str | None = None


@dataclass(frozen=True)
class GalleryStatus:
    """How a gallery stands.

    Attributes:
        images: how many there are.
        indexed: how many the approximate index covers; the others are scanned, so every image is found.
        exact: whether a search is an exact scan of all images.
        version: counts the changes of the table.
        model: the model's name.
        fingerprint: of the model's settings and weights.
        bytes: size of the rows; None where the store does not say.
        fragments: pieces that the table lies in; ``compact`` makes them few.
        metadata: column to kind of value.
    """

    images: int
    indexed: int
    exact: bool
    version: int
    model: str
    fingerprint: str
    bytes: int | None
    fragments: int
    metadata: Mapping[str, str]


class Gallery:
    """A gallery on disk: make it with :meth:`create`, or :meth:`open` what is there.

    One process writes at a time; any number read, each at the version that it opened until :meth:`refresh`.

    Attributes:
        folder: where it is.
        info: its model and sizes.
    """

    def __init__(self, folder: Path, info: GalleryInfo) -> None:
        self.folder, self.info = folder, info
        self.store = open_store(folder, info.store, info.shape, info.fingerprint)

    @classmethod
    def create(
        cls,
        folder: str | Path,
        model: Model,
        name: str,
        *,
        keep_tokens: bool = True,
        thumbnail: int = 256,
        store: str | None = None,
    ) -> Gallery:
        """Make an empty gallery, with a copy of the model in it.

        Args:
            folder: must not hold anything yet.
            model: embeds the images and the queries.
            name: of the model, for reports.
            keep_tokens: store each image's frozen tokens, so that a query by id is exact; else the thumbnail is
                encoded anew, which saves most of the space.
            thumbnail: longest side of stored thumbnails, in pixels.
            store: address of the rows, where they are not to lie in the folder: object storage or Qdrant.

        Raises:
            UsageError: the folder or the store holds something else.
            DataError: they cannot be written.
        """
        folder = Path(folder)
        unfinished = {MODEL, STORE, "lock"}  # what a creation that was killed leaves
        if folder.exists() and (not folder.is_dir() or {p.name for p in folder.iterdir()} - unfinished):
            raise UsageError(f"{folder}: there is something else here; choose a new folder for the gallery")
        with explain_full_disk(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with writing(folder):
            if (folder / CONFIG).is_file():  # another process was faster
                return cls.open(folder)
            from triptych.training.model import save_model

            info = GalleryInfo(name, fingerprint(model), _shape_of(model, keep_tokens), thumbnail, store)
            create_store(folder, store, info.shape, info.fingerprint)
            save_model(folder / MODEL, model.backbone, model.method, model.settings, model.info)
            write_json(folder / CONFIG, _to_json(info))
        return cls(folder, info)

    @classmethod
    def open(cls, folder: str | Path) -> Gallery:
        """Open a gallery.

        Raises:
            UsageError: there is nothing at the path.
            DataError: it is no gallery, or damaged.
        """
        folder = Path(folder)
        if not folder.exists():
            raise UsageError(
                f"{folder}: there is no such gallery; `triptych index MODEL IMAGES -o {folder}` makes it"
            )
        return cls(folder, read_info(folder))

    def load_model(self) -> Model:
        """Load the model that made the gallery.

        Raises:
            DataError: its files are damaged, or are another model's.
        """
        from triptych.training.model import load_model

        model = load_model(self.folder / MODEL)
        self.require(model, self.info.model)
        return model

    def require(self, model: Model, name: str) -> None:
        """Refuse a model other than the gallery's.

        Raises:
            DataError: the vectors of the two cannot be compared.
        """
        found = fingerprint(model)
        if found != self.info.fingerprint:
            raise DataError(
                f'the gallery was made by the model "{self.info.model}" ({self.info.fingerprint[:12]}),'
                f' not by "{name}" ({found[:12]}); their vectors cannot be compared',
                file=self.folder,
                mend="Use that model, or make another gallery with this one.",
            )

    @property
    def version(self) -> int:
        """The version of the rows that is open."""
        return self.store.version

    @property
    def schema(self) -> pa.Schema:
        """The rows' schema, metadata included."""
        return self.store.schema

    def __len__(self) -> int:
        return self.store.count()

    def count(self, where: Filter | None = None) -> int:
        """Count images, all or those that pass a filter (of :mod:`~triptych.search.filters`)."""
        return self.store.count(where)

    def refresh(self) -> None:
        """Go to the newest version."""
        self.store.refresh()

    @contextmanager
    def writing(self, *, wait: float = 0.0) -> Iterator[None]:
        """Hold the lock for writing, at the newest version; see :func:`~triptych.search.lock.writing`."""
        with writing(self.folder, wait=wait):
            self.refresh()
            yield

    def hashes(self) -> dict[str, str]:
        """Return every image's content hash by id."""
        found = self.read([ID, HASH])
        return dict(zip(found[ID].to_pylist(), found[HASH].to_pylist(), strict=True))

    def read(self, columns: Sequence[str], *, where: Filter | None = None) -> pa.Table:
        """Read columns of all images, or of those that pass a filter, in the store's order.

        Raises:
            DataError: the store is damaged.
        """
        return self.store.read(columns, where)

    def take(self, image_ids: Sequence[str], columns: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Read columns of some images, by id; those that are not there are left out."""
        rows: dict[str, dict[str, Any]] = {}
        for start in range(0, len(image_ids), _TAKE_CHUNK):
            part = image_ids[start : start + _TAKE_CHUNK]
            found = self.read([ID, *columns], where=Comparison(ID, "IN", tuple(part)))
            rows.update((row[ID], row) for row in found.to_pylist())
        return rows

    def put(self, rows: pa.Table) -> None:
        """Insert images, or replace those of the same id; on return they are on disk. Needs :meth:`writing`.

        ``rows`` may have only the id and metadata columns where every id is there already.
        """
        self.store.put(rows)

    def add_metadata_columns(self, fields: Mapping[str, pa.DataType]) -> None:
        """Add metadata columns, empty for the images that are there. Needs :meth:`writing`.

        Raises:
            DataError: a column of that name holds another kind of value.
        """
        own = metadata_fields(self.schema)
        for name, given in fields.items():
            if name in own and own[name] != given:
                raise DataError(
                    f'the column "{name}" holds {own[name]} in the gallery, and {given} in what is added',
                    file=self.folder,
                    field=name,
                    mend="Rename the column, or write it as the same kind of value.",
                )
        fresh = {name: given for name, given in fields.items() if name not in own}
        if fresh:
            self.store.add_columns(fresh)

    def remove(self, image_ids: Sequence[str]) -> int:
        """Remove images by id; returns how many were there. Needs :meth:`writing`."""
        before = len(self)
        self.store.remove(image_ids)
        return before - len(self)

    def compact(self, *, forget: bool = False) -> None:
        """Merge small pieces, and bring the approximate index up to date. Needs :meth:`writing`.

        Args:
            forget: also delete older versions now; processes that still read one of them will fail.
        """
        self.store.compact(forget=forget)

    def indexed(self) -> int:
        """Count the images that the approximate index covers."""
        return self.store.indexed()

    def status(self) -> GalleryStatus:
        """Describe the gallery at its open version."""
        images = len(self)
        size, fragments = self.store.size()
        metadata = {name: kind_of(given) for name, given in metadata_fields(self.schema).items()}
        return GalleryStatus(
            images,
            self.indexed(),
            images < APPROXIMATE_FROM,
            self.version,
            self.info.model,
            self.info.fingerprint,
            size,
            fragments,
            metadata,
        )

    def filter_fields(self) -> dict[str, pa.DataType]:
        """Return what a filter may name, name to type."""
        return filter_fields(self.schema)


def is_gallery(folder: Path) -> bool:
    """Tell whether a folder is a gallery, by its ``gallery.json``."""
    return (folder / CONFIG).is_file()


def read_info(folder: Path) -> GalleryInfo:
    """Read ``gallery.json``.

    Raises:
        DataError: it is missing, damaged, or of another version.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise DataError(
            "this is no gallery",
            file=folder,
            mend=f"`triptych index MODEL IMAGES -o GALLERY` writes {CONFIG} last.",
        )
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != FORMAT:
            raise DataError(
                f"this is a gallery of another version: {found['format']}", file=path, field="format"
            )
        tokens = found["tokens"]
        shape = Shape(
            int(found["queries"]), int(found["dim"]), (int(tokens[0]), int(tokens[1])) if tokens else None
        )
        model = found["model"]
        store = found.get("store")
        return GalleryInfo(
            str(model["name"]),
            str(model["fingerprint"]),
            shape,
            int(found["thumbnail"]),
            store and str(store),
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise DataError(
            f"is damaged ({type(error).__name__}: {error})", file=path, mend="Make the gallery again."
        ) from error


def fingerprint(model: Model) -> str:
    """Return a SHA-256 over a model's settings, frozen towers and trained weights."""
    import torch

    from triptych.training.model import trained_tensors

    digest = hashlib.sha256(json.dumps(dict(model.settings), sort_keys=True).encode())
    digest.update(model.backbone.fingerprint.encode())
    for name, value in sorted(trained_tensors(model.backbone, model.method).items()):
        digest.update(name.encode())
        digest.update(value.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _shape_of(model: Model, keep_tokens: bool) -> Shape:
    import torch

    backbone = model.backbone
    size = (backbone.shape.image_tokens, backbone.shape.image_width)
    targets = model.embed_targets(
        torch.zeros(1, *size, device=backbone.device)
    )  # a method may choose its own sizes
    return Shape(int(targets.shape[1]), int(targets.shape[2]), size if keep_tokens else None)


def _to_json(info: GalleryInfo) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "model": {"name": info.model, "fingerprint": info.fingerprint},
        "queries": info.shape.queries,
        "dim": info.shape.dim,
        "tokens": list(info.shape.tokens) if info.shape.tokens else None,
        "thumbnail": info.thumbnail,
        **({"store": info.store} if info.store else {}),
    }
