"""Copy a gallery, so that its rows lie in another store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from triptych.errors import DataError, UsageError
from triptych.search.columns import HASH, ID, metadata_fields
from triptych.search.gallery import FEEDBACK, REJECTED, Gallery

Progress = Callable[[int, int], None]

_BATCH = 256


def copy_gallery(
    source: Gallery,
    target: str | Path,
    *,
    store: str | None = None,
    progress: Progress | None = None,
) -> Gallery:
    """Copy rows, metadata, model and feedback; what is there already is not copied again.

    A copy that was stopped is gone on with by the same call. Images that the source has no more are removed.

    Args:
        source: the gallery to copy.
        target: the folder of the new gallery, or of a copy that was begun.
        store: address of its rows; None for the folder.
        progress: called with (images looked at, all images).

    Raises:
        UsageError: the target is the source, holds something else, or has another store.
        DataError: it was made by another model or with other sizes, or cannot be written.
    """
    target = Path(target)
    if target.resolve() == source.folder.resolve():
        raise UsageError(f"{target}: a gallery cannot be copied onto itself")
    if (target / "gallery.json").is_file():
        copy = Gallery.open(target)
        _check_copy(source, copy, store)
    else:
        copy = Gallery.create(
            target,
            source.load_model(),
            source.info.model,
            keep_tokens=source.info.shape.tokens is not None,
            thumbnail=source.info.thumbnail,
            store=store,
        )
    with copy.writing():
        copy.add_metadata_columns(metadata_fields(source.schema))
        columns = source.schema.names
        own = [ID, HASH, *metadata_fields(source.schema)]
        there = {row[ID]: row for row in copy.read(own).to_pylist()}
        total, done = len(source), 0
        for batch in source.store.batches(columns, _BATCH):
            rows = pa.Table.from_batches([batch])
            fresh = [
                place
                for place, row in enumerate(rows.select(own).to_pylist())
                if there.pop(row[ID], None) != row
            ]
            if fresh:
                copy.store.put(rows.take(pa.array(fresh)))
            done += len(rows)
            if progress:
                progress(done, total)
        if there:
            copy.remove(list(there))
        copy.compact()
    for name in (FEEDBACK, REJECTED):
        if (source.folder / name).is_file() and not (copy.folder / name).exists():
            (copy.folder / name).write_bytes((source.folder / name).read_bytes())
    return copy


def _check_copy(source: Gallery, copy: Gallery, store: str | None) -> None:
    if copy.info.store != store:
        raise UsageError(
            f"{copy.folder}: the rows of the gallery here are at {copy.info.store or 'the folder itself'}, not at"
            f" {store or 'the folder itself'}"
        )
    if copy.info.fingerprint != source.info.fingerprint:
        raise DataError(
            f'the gallery here was made by another model, "{copy.info.model}"',
            file=copy.folder,
            mend="Choose another folder.",
        )
    if (copy.info.shape, copy.info.thumbnail) != (source.info.shape, source.info.thumbnail):
        raise DataError("the gallery here keeps other sizes", file=copy.folder, mend="Choose another folder.")
