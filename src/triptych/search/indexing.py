"""Index pictures into a gallery: each is embedded once, by its content; what was finished stays."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import torch
from PIL import Image
from torch.nn.functional import normalize

from triptych.errors import DataError, TriptychError
from triptych.search.columns import HASH, ID, POOLED, SOURCE, TARGETS, THUMBNAIL, TOKENS, check_id
from triptych.search.gallery import Gallery
from triptych.search.metadata import Metadata
from triptych.search.pictures import Picture
from triptych.search.store import APPROXIMATE_FROM
from triptych.training.model import Model
from triptych.triplets.decoding import MAX_PIXELS, decode_image

Progress = Callable[[int, int], None]

_BATCH = 64
"""Images embedded at once."""

_COMMIT = 256
"""Images written at once: what a killed process has to embed again."""

_COMPACT_AFTER = 32
"""Commits after which the table's pieces are merged."""


@dataclass
class Indexed:
    """What an indexing did.

    Attributes:
        added: new images.
        changed: images whose file had changed since.
        same: images that were there already.
        metadata: images that got other metadata only.
        refused: images that cannot be used, id to what is wrong.
    """

    added: int = 0
    changed: int = 0
    same: int = 0
    metadata: int = 0
    refused: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    """What a group of pictures gave.

    Attributes:
        rows: of the new and changed images, without metadata; None where there is none.
        same: images that are in the gallery as they are.
        refused: images that cannot be used, id to what is wrong.
    """

    rows: pa.Table | None
    same: Sequence[str]
    refused: Mapping[str, str]


@dataclass(frozen=True)
class Prepared:
    """A picture that was read: its content hash, size, thumbnail (JPEG) and pixels ``[3, H, W]`` in [0, 1]."""

    id: str
    source: str
    content_hash: str
    size: tuple[int, int]
    thumbnail: bytes
    pixels: np.ndarray


def index_images(
    gallery: Gallery,
    model: Model,
    pictures: Sequence[Picture],
    *,
    metadata: Metadata | None = None,
    workers: int = 1,
    progress: Progress | None = None,
    wait: float = 0.0,
) -> Indexed:
    """Embed the pictures that are new or changed, and write them to the gallery.

    An image counts as done when it is on disk. A process that is killed loses at most the images that were not
    committed; running it again goes on.

    Args:
        gallery: where to.
        model: the gallery's model.
        pictures: what to index.
        metadata: goes into metadata columns, also of images that are there already.
        workers: threads that read and decode.
        progress: called with (pictures on disk or refused, all pictures).
        wait: seconds to wait for another writer.

    Raises:
        DataError: another process is writing, the disk is full, or the model is not the gallery's.
    """
    gallery.require(model, gallery.info.model)
    result = Indexed()
    with gallery.writing(wait=wait):
        if metadata is not None:
            gallery.add_metadata_columns(metadata.fields)
        known = gallery.hashes()
        done = commits = 0
        with ThreadPoolExecutor(max(1, workers)) as pool:
            for group in grouped(pictures):
                found = embed_group(gallery, model, group, known, pool)
                result.refused.update(found.refused)
                _commit(gallery, found, metadata, known, result)
                commits += found.rows is not None
                done += len(group)
                if progress:
                    progress(done, len(pictures))
        if commits > _COMPACT_AFTER or (commits and _outgrown(gallery)):
            gallery.compact()
    return result


def embed_group(
    gallery: Gallery,
    model: Model,
    group: Sequence[Picture],
    known: Mapping[str, str],
    pool: ThreadPoolExecutor,
) -> Group:
    """Embed those of a group of pictures whose content is not ``known`` (id to content hash)."""
    fresh: list[Prepared] = []
    rows: list[pa.Table] = []
    same: list[str] = []
    refused: dict[str, str] = {}
    for picture, outcome in _in_order(pool, lambda p: _prepare(p, known.get(p.id), gallery, model), group):
        if isinstance(outcome, Prepared):
            fresh.append(outcome)
        elif outcome is None:
            same.append(picture.id)
        else:
            refused[picture.id] = outcome
        if len(fresh) == _BATCH:
            rows.append(embed_rows(gallery, model, fresh))
            fresh.clear()
    if fresh:
        rows.append(embed_rows(gallery, model, fresh))
    return Group(pa.concat_tables(rows) if rows else None, same, refused)


def with_metadata(rows: pa.Table, metadata: Metadata | None) -> pa.Table:
    """Append the images' metadata columns to their rows."""
    if metadata is not None:
        given = metadata.of(rows[ID].to_pylist())
        for name in given.column_names:
            rows = rows.append_column(name, given[name])
    return rows


def grouped(pictures: Sequence[Picture]) -> Iterator[Sequence[Picture]]:
    """Cut pictures into the groups that are written at once."""
    for start in range(0, len(pictures), _COMMIT):
        yield pictures[start : start + _COMMIT]


def _outgrown(gallery: Gallery) -> bool:
    """Tell whether so many images are not in the approximate index that searches would feel it."""
    return len(gallery) - gallery.indexed() >= APPROXIMATE_FROM


def _commit(
    gallery: Gallery,
    found: Group,
    metadata: Metadata | None,
    known: dict[str, str],
    result: Indexed,
) -> None:
    """Write what a group of pictures gave, in one version of the table each kind."""
    result.same += len(found.same)
    if found.rows is not None:
        table = with_metadata(found.rows, metadata)
        ids = table[ID].to_pylist()
        changed = sum(image_id in known for image_id in ids)
        gallery.put(table)
        known.update(zip(ids, table[HASH].to_pylist(), strict=True))
        result.changed += changed
        result.added += len(ids) - changed
    if metadata is None or not metadata.fields:
        return
    named = [image_id for image_id in found.same if image_id in metadata.rows]
    if not named:
        return
    given = metadata.of(named)
    before = gallery.take(named, given.column_names)
    columns = list(metadata.fields)
    differ = [
        row
        for row, (image_id, values) in enumerate(zip(named, given.to_pylist(), strict=True))
        if values != {name: before[image_id][name] for name in columns}
    ]
    if differ:
        table = pa.table({ID: named, **{name: given[name] for name in columns}}).take(pa.array(differ))
        gallery.put(table)
        result.metadata += len(differ)


def _prepare(picture: Picture, known: str | None, gallery: Gallery, model: Model) -> Prepared | str | None:
    """Read a picture; None where it is in the gallery as it is, a sentence where it cannot be used."""
    try:
        check_id(picture.id)
        data = picture.read()
        return prepare(picture.id, picture.source, data, gallery, model, known=known)
    except TriptychError as error:
        return str(error).splitlines()[0]
    except (OSError, ValueError) as error:
        return f"{picture.source}: the picture cannot be read ({error})"


def prepare(
    image_id: str,
    source: str,
    data: bytes,
    gallery: Gallery,
    model: Model,
    *,
    known: str | None = None,
    max_pixels: int = MAX_PIXELS,
) -> Prepared | None:
    """Decode a picture for indexing; None where its content hash is ``known``.

    Raises:
        ImageError: the bytes are not a picture that can be used.
    """
    content_hash = hashlib.sha256(data).hexdigest()
    if content_hash == known:
        return None
    image = decode_image(data, source, max_pixels=max_pixels, image_id=image_id)
    small = thumbnail(image, gallery.info.thumbnail)
    return Prepared(image_id, source, content_hash, image.size, small, model.backbone.preprocess(image))


def thumbnail(image: Image.Image, side: int) -> bytes:
    """Shrink an RGB picture into a ``side`` x ``side`` box, as JPEG; a smaller one is not enlarged."""
    small = image.copy()
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


@torch.inference_mode()
def embed_rows(gallery: Gallery, model: Model, prepared: Sequence[Prepared]) -> pa.Table:
    """Embed pictures as the gallery's rows, without metadata."""
    shape = gallery.info.shape
    pixels = torch.from_numpy(np.stack([item.pixels for item in prepared]))
    tokens = model.backbone.encode_images(pixels.to(model.backbone.device)).half()
    targets = model.embed_targets(tokens.float()).float().cpu().half()  # [B, Q, D]
    if not bool(torch.isfinite(targets).all()):
        raise DataError(
            "the model gave vectors that are not finite; its weights are damaged",
            file=gallery.folder,
            mend="Make the gallery again with another checkpoint.",
        )
    pooled = pool(targets.float())
    columns = {
        ID: pa.array([item.id for item in prepared]),
        HASH: pa.array([item.content_hash for item in prepared]),
        SOURCE: pa.array([item.source for item in prepared]),
        "width": pa.array([item.size[0] for item in prepared], pa.int32()),
        "height": pa.array([item.size[1] for item in prepared], pa.int32()),
        THUMBNAIL: pa.array([item.thumbnail for item in prepared], pa.binary()),
        POOLED: _vectors(pooled.numpy()),
        TARGETS: _vectors(targets.flatten(1).numpy()),
    }
    if shape.tokens:
        columns[TOKENS] = _vectors(tokens.cpu().flatten(1).numpy())
    return pa.table(columns, schema=shape.schema())


def pool(targets: torch.Tensor) -> torch.Tensor:
    """Return the mean direction of an image's target vectors: ``[B, Q, D]`` to ``[B, D]``, unit rows."""
    return normalize(targets.mean(dim=1), dim=-1)


def _vectors(values: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(
        pa.array(np.ascontiguousarray(values).reshape(-1)), values.shape[1]
    )


Outcome = Prepared | str | None


def _in_order(
    pool: ThreadPoolExecutor, work: Callable[[Picture], Outcome], items: Sequence[Picture]
) -> Iterator[tuple[Picture, Outcome]]:
    """Do ``work`` on items in the pool, some ahead of where they are used; results come in order."""
    waiting: list[tuple[Picture, Future[Outcome]]] = []
    for item in items:
        waiting.append((item, pool.submit(work, item)))
        if len(waiting) > _BATCH:
            first, future = waiting.pop(0)
            yield first, future.result()
    for first, future in waiting:
        yield first, future.result()
