"""Shards: many processes, on one machine or many, embed the pictures of one gallery, and a merge lists what they wrote.

Pictures are dealt in whole groups, the ones that a single process commits at once, so every batch holds the same
pictures and the bytes are the same. A shard writes each group's rows into the gallery's table as a Lance fragment that
no version lists yet, and then a record of it, ``shards/00012.json``. :func:`~triptych.search.merging.merge` lists them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

from triptych.backbones.shard_claims import Claims
from triptych.errors import DataError, TriptychError, UsageError
from triptych.files import explain_full_disk, write_json
from triptych.search.columns import HASH, ID
from triptych.search.gallery import Gallery
from triptych.search.indexing import Progress, embed_group, grouped, with_metadata
from triptych.search.lance_errors import explained
from triptych.search.lance_store import TABLE
from triptych.search.metadata import Metadata
from triptych.search.pictures import Picture
from triptych.search.store import STORE
from triptych.training.model import Model

SHARDS = "shards"
"""The folder of the records, in the gallery's; a merge removes it."""

_GROUP = "group {group} of {groups} (shard {shard}/{shards})"
_WAIT = 600.0
"""Seconds to wait while another shard adds the columns of the metadata."""


@dataclass(frozen=True)
class Part:
    """The ``number``-th of ``count`` shards, from 1."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Part:
        """Read ``i/n``.

        Raises:
            UsageError: it is something else, or i is not from 1 to n.
        """
        found = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", text)
        if not found or not 1 <= int(found[1]) <= int(found[2]):
            raise UsageError(f'a shard is i/n with i from 1 to n, such as 3/8, not "{text}"')
        return cls(int(found[1]), int(found[2]))

    def has(self, group: int) -> bool:
        """Tell whether a group, counted from 0, is this shard's."""
        return group % self.count == self.number - 1


@dataclass(frozen=True)
class Piece:
    """The record of a group that was embedded.

    Attributes:
        plan: names the pictures, their groups and the model: pieces of two plans cannot be merged.
        group: which group it is, from 0.
        groups: how many groups there are.
        shards: among how many shards they were dealt.
        images: id to content hash of the new and changed images.
        same: images that were in the gallery already.
        refused: images that cannot be used, id to what is wrong.
        fragments: what Lance says of the files, in the table's ``data`` folder.
    """

    plan: str
    group: int
    groups: int
    shards: int
    images: dict[str, str]
    same: int
    refused: dict[str, str]
    fragments: list[dict[str, Any]]


@dataclass
class ShardIndexed:
    """What a shard did.

    Attributes:
        groups: of pictures that it has.
        embedded: those that it embedded.
        there: those that had a record.
        elsewhere: those that another process is at.
    """

    groups: int = 0
    embedded: int = 0
    there: int = 0
    elsewhere: int = 0


def index_shard(
    gallery: Gallery,
    model: Model,
    pictures: Sequence[Picture],
    part: Part,
    *,
    metadata: Metadata | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> ShardIndexed:
    """Embed a shard's groups of pictures; those that have a record are done.

    Any number of processes may run, also with the same shard: a group is claimed while it is embedded.

    Args:
        gallery: where to; all shards see the same folder.
        model: the gallery's model.
        pictures: all pictures, the same in every shard.
        part: which shard.
        metadata: goes into metadata columns.
        workers: threads that read and decode.
        progress: called with (groups done, groups of this shard).

    Raises:
        DataError: the gallery holds pieces of other pictures, the disk is full, or the model is not the gallery's.
        TriptychError: Lance is not installed.
    """
    groups = prepare_shards(gallery, model, pictures, metadata)
    mine = [number for number in range(len(groups)) if part.has(number)]
    result = ShardIndexed(groups=len(mine))
    with ThreadPoolExecutor(max(1, workers)) as pool:
        for done, number in enumerate(mine, start=1):
            outcome = index_piece(gallery, model, groups, number, part.count, pool, metadata)
            setattr(result, outcome, getattr(result, outcome) + 1)
            if progress:
                progress(done, len(mine))
    return result


def prepare_shards(
    gallery: Gallery, model: Model, pictures: Sequence[Picture], metadata: Metadata | None
) -> list[Sequence[Picture]]:
    """Make a gallery ready for pieces, and return the groups of the pictures.

    Raises:
        UsageError: the gallery's rows are not in its folder.
        DataError: it holds pieces of other pictures, or the model is not the gallery's.
        TriptychError: Lance is not installed.
    """
    require_lance()
    if gallery.info.store:
        raise UsageError(
            f"shards are written into the gallery's folder, but its rows are at {gallery.info.store}.\n"
            "  Make a gallery in a folder, merge its shards, then: triptych index copy GALLERY NEW --store ADDRESS"
        )
    gallery.require(model, gallery.info.model)
    groups = list(grouped(pictures))
    plan = plan_of(gallery, groups)
    for piece in read_pieces(gallery).values():
        if piece.plan != plan:
            raise DataError(
                "holds pieces of other pictures, or of a gallery that has changed since",
                file=gallery.folder / SHARDS,
                mend="Merge them first (`triptych index merge GALLERY`), or delete that folder.",
            )
    with explain_full_disk(gallery.folder):
        (gallery.folder / SHARDS).mkdir(exist_ok=True)
    if metadata is not None:
        with gallery.writing(wait=_WAIT):
            gallery.add_metadata_columns(metadata.fields)
    gallery.refresh()
    return groups


def index_piece(
    gallery: Gallery,
    model: Model,
    groups: Sequence[Sequence[Picture]],
    number: int,
    shards: int,
    pool: ThreadPoolExecutor,
    metadata: Metadata | None = None,
) -> str:
    """Embed a group, unless it has a record or another process is at it.

    Returns:
        ``embedded``, ``there`` or ``elsewhere``.
    """
    record = gallery.folder / SHARDS / f"{number:05d}.json"
    with Claims(gallery.folder / SHARDS / "claims") as claims:
        if not claims.take(number.to_bytes(8, "little")):
            return "elsewhere"
        if record.is_file():
            return "there"
        ids = [picture.id for picture in groups[number]]
        known = {image_id: row[HASH] for image_id, row in gallery.take(ids, [HASH]).items()}
        found = embed_group(gallery, model, groups[number], known, pool)
        fragments: list[dict[str, Any]] = []
        images: dict[str, str] = {}
        if found.rows is not None:
            rows = with_metadata(found.rows, metadata)
            images = dict(zip(rows[ID].to_pylist(), rows[HASH].to_pylist(), strict=True))
            fragments = _write(gallery, rows)
        plan = plan_of(gallery, groups)
        piece = Piece(
            plan, number, len(groups), shards, images, len(found.same), dict(found.refused), fragments
        )
        with explain_full_disk(record):
            write_json(record, asdict(piece))
    return "embedded"


def read_pieces(gallery: Gallery) -> dict[int, Piece]:
    """Read the records of what was embedded and not merged yet, by group.

    Raises:
        DataError: a record is damaged.
    """
    pieces: dict[int, Piece] = {}
    for path in sorted((gallery.folder / SHARDS).glob("[0-9]*.json")):
        try:
            piece = Piece(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise DataError(
                f"is damaged ({error})", file=path, mend="Delete it and run that shard again."
            ) from error
        pieces[piece.group] = piece
    return pieces


def missing_groups(pieces: dict[int, Piece]) -> list[str]:
    """Name the groups that have no record yet, each with its shard."""
    if not pieces:
        return []
    first = next(iter(pieces.values()))
    return [
        _GROUP.format(
            group=number + 1, groups=first.groups, shard=number % first.shards + 1, shards=first.shards
        )
        for number in range(first.groups)
        if number not in pieces
    ]


def plan_of(gallery: Gallery, groups: Sequence[Sequence[Picture]]) -> str:
    """Return a SHA-256 over the model, and the pictures by id in their groups."""
    digest = hashlib.sha256(gallery.info.fingerprint.encode())
    for group in groups:
        digest.update(json.dumps([picture.id for picture in group]).encode())
    return digest.hexdigest()


def table_folder(gallery: Gallery) -> Path:
    """Return where the gallery's table lies as a Lance dataset."""
    return gallery.folder / STORE / f"{TABLE}.lance"


def require_lance() -> None:
    """Refuse to go on without Lance's own package.

    Raises:
        TriptychError: it is not installed.
    """
    if find_spec("lance") is None:
        raise TriptychError('shards need Lance.\n  Run: pip install "triptych[shards]"')


def _write(gallery: Gallery, rows: pa.Table) -> list[dict[str, Any]]:
    """Write rows as fragments of the table that no version of it lists."""
    from lance.fragment import write_fragments

    schema = gallery.schema
    for column in schema:  # metadata that the gallery has and these pictures have not
        if column.name not in rows.column_names:
            rows = rows.append_column(column, pa.nulls(len(rows), column.type))
    ordered = rows.select(schema.names).cast(schema)
    with explained(gallery.store.place):
        written = write_fragments(ordered, str(table_folder(gallery)), mode="append")
    return [fragment.to_json() for fragment in written]
