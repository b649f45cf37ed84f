"""Merge: the pieces that shards wrote become the gallery's, by listing them in a new version of its table."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from shutil import rmtree
from typing import Any

from triptych.errors import DataError
from triptych.search.columns import HASH
from triptych.search.gallery import Gallery
from triptych.search.lance_errors import explained
from triptych.search.sharding import (
    SHARDS,
    Piece,
    missing_groups,
    read_pieces,
    require_lance,
    table_folder,
)

_NAMED = 5


@dataclass
class Merged:
    """What a merge did.

    Attributes:
        added: new images.
        changed: images whose file had changed since.
        same: images that were there already.
        refused: images that cannot be used, id to what is wrong.
    """

    added: int = 0
    changed: int = 0
    same: int = 0
    refused: dict[str, str] = field(default_factory=dict)


def merge(gallery: Gallery, *, wait: float = 0.0) -> Merged:
    """List all pieces in the gallery's table; no picture's bytes are copied.

    Rows that they replace are deleted first; a merge that is killed is done by running it again.

    Args:
        gallery: whose pieces.
        wait: seconds to wait for another writer.

    Raises:
        DataError: a piece is missing, damaged, or of other pictures than the rest; nothing was changed.
        TriptychError: Lance is not installed.
    """
    require_lance()
    with gallery.writing(wait=wait):
        pieces = read_pieces(gallery)
        if not pieces:
            raise DataError(
                "there is nothing to merge",
                file=gallery.folder / SHARDS,
                mend="`triptych index MODEL IMAGES -o GALLERY --shard i/n` writes what is merged.",
            )
        _check(gallery, pieces)
        result = Merged()
        fresh: list[Piece] = []
        for piece in pieces.values():
            there = gallery.take(list(piece.images), [HASH])
            result.same += piece.same
            result.refused.update(piece.refused)
            if piece.images == {image_id: row[HASH] for image_id, row in there.items()}:
                result.same += len(there)  # what an earlier merge listed
                continue
            fresh.append(piece)
            result.changed += len(there)
            result.added += len(piece.images) - len(there)
            if there:
                gallery.remove(list(there))
        _list(gallery, fresh)
        rmtree(gallery.folder / SHARDS, ignore_errors=True)
    return result


def _check(gallery: Gallery, pieces: dict[int, Piece]) -> None:
    folder = gallery.folder / SHARDS
    if missing := missing_groups(pieces):
        more = f" and {len(missing) - _NAMED:,} more" if len(missing) > _NAMED else ""
        raise DataError(
            f"{', '.join(missing[:_NAMED])}{more} is not there; nothing was merged",
            file=folder,
            mend="Run those shards again: `triptych index MODEL IMAGES -o GALLERY --shard i/n`.",
        )
    owner: dict[str, int] = {}
    plan = next(iter(pieces.values())).plan
    for piece in pieces.values():
        path = folder / f"{piece.group:05d}.json"
        if piece.plan != plan:
            raise DataError(
                "is of other pictures than the rest", file=path, mend="Delete it and run its shard again."
            )
        for image_id in piece.images:
            if owner.setdefault(image_id, piece.group) != piece.group:
                raise DataError(
                    f'"{image_id}" is in groups {owner[image_id] + 1} and {piece.group + 1}',
                    file=path,
                    mend="Give every picture an id of its own.",
                )
        for file in (file for fragment in piece.fragments for file in fragment["files"]):
            data = table_folder(gallery) / "data" / file["path"]
            if not data.is_file() or data.stat().st_size != file["file_size_bytes"]:
                raise DataError(
                    "is missing or damaged; nothing was merged",
                    file=data,
                    mend=f"Delete {path} and run shard {piece.group % piece.shards + 1}/{piece.shards} again.",
                )


def _list(gallery: Gallery, pieces: list[Piece]) -> None:
    fragments: list[Any] = [fragment for piece in pieces for fragment in piece.fragments]
    if not fragments:
        return
    import lance

    gallery.refresh()
    uri = str(table_folder(gallery))
    with explained(gallery.store.place):
        operation = lance.LanceOperation.Append(
            [lance.FragmentMetadata.from_json(json.dumps(fragment)) for fragment in fragments]
        )
        lance.LanceDataset.commit(uri, operation, read_version=gallery.version)
    gallery.refresh()
