"""``triptych index --shard``, ``--ray`` and ``triptych index merge``: many processes embed one gallery."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from triptych.cli.inputs import JsonOption
from triptych.cli.progress import stages, warn

if TYPE_CHECKING:
    from triptych.search.gallery import Gallery
    from triptych.search.metadata import Metadata
    from triptych.search.pictures import Pictures
    from triptych.search.sharding import Part
    from triptych.training.model import Model

SHOWN = 20
"""Refused pictures that are named; all of them are in ``--json``."""

ShardOption = Annotated[
    str | None,
    typer.Option(
        metavar="I/N",
        help="Embed the I-th of N parts (from 1), beside other processes that embed the others; each may be run"
        " again at any time. When all are done: triptych index merge GALLERY.",
        show_default="all",
    ),
]
RayOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help='Embed by actors of a Ray cluster, "auto" for the one that this machine belongs to, or "local" to start'
        " Ray here. What a lost actor had is done again. Then: triptych index merge GALLERY.",
        show_default="no Ray",
    ),
]
RayWorkersOption = Annotated[int, typer.Option(min=1, help="Actors for --ray, one core each.")]


@dataclass(frozen=True)
class Pieces:
    """What several processes embed: the pictures as they were found, and the paths that they came from."""

    gallery: Gallery
    model: Model
    pictures: Pictures
    images: Path
    metadata: Metadata | None
    metadata_path: Path | None
    workers: int


def parse_shard(text: str | None) -> Part | None:
    """Read ``--shard``.

    Raises:
        UsageError: it is not ``i/n``.
    """
    if text is None:
        return None
    from triptych.search.sharding import Part

    return Part.parse(text)


def embed_pieces(
    given: Pieces, part: Part | None, ray: str | None, ray_workers: int, *, as_json: bool
) -> None:
    """Embed a shard here, or all of them on Ray, and say how it went."""
    from triptych.search.sharding import index_shard

    with stages(quiet=as_json) as bars:

        def progress(done: int, total: int) -> None:
            bars("groups of pictures", done, total)

        if part is not None:
            result = index_shard(
                given.gallery,
                given.model,
                given.pictures.items,
                part,
                metadata=given.metadata,
                workers=given.workers,
                progress=progress,
            )
        else:
            from triptych.search.ray_shards import LOCAL, index_with_ray

            result = index_with_ray(
                given.gallery,
                given.images,
                workers=ray_workers,
                address=ray or LOCAL,
                metadata=given.metadata_path,
                progress=progress,
            )
    if as_json:
        typer.echo(json.dumps(asdict(result), indent=2))
        return
    elsewhere = f", {result.elsewhere:,} are with another process" if result.elsewhere else ""
    Console(highlight=False).print(
        f"{result.groups:,} groups of pictures: {result.embedded:,} embedded, {result.there:,} were there{elsewhere}."
        f"\nWhen all shards are done: triptych index merge {escape(str(given.gallery.folder))}",
        soft_wrap=True,
    )


def merge_command(
    gallery: Annotated[
        Path, typer.Argument(metavar="GALLERY", help="The gallery's folder.", show_default=False)
    ],
    as_json: JsonOption = False,
) -> None:
    """Make what all shards embedded part of the gallery. Nothing is copied: the table lists the shards' files."""
    from triptych.search.gallery import Gallery
    from triptych.search.merging import merge

    opened = Gallery.open(gallery)
    result = merge(opened)
    if as_json:
        typer.echo(json.dumps({**asdict(result), "images": len(opened)}, ensure_ascii=False, indent=2))
        return
    warn_refused(result.refused)
    Console(highlight=False).print(
        f"{result.added:,} images added, {result.changed:,} changed, {result.same:,} were there,"
        f" {len(result.refused):,} refused; the gallery has {len(opened):,}.",
        soft_wrap=True,
    )


def pieces_waiting(gallery: Gallery) -> dict[str, Any] | None:
    """Say what shards have embedded and no merge has listed: pieces, images, what is missing, a sentence."""
    from triptych.search.sharding import missing_groups, read_pieces

    pieces = read_pieces(gallery)
    if not pieces:
        return None
    missing = missing_groups(pieces)
    images = sum(len(piece.images) for piece in pieces.values())
    ready = f"{len(missing):,} groups are missing, first {missing[0]}" if missing else "all groups are there"
    sentence = f"{images:,} images in {len(pieces):,} groups of shards; {ready}"
    return {"groups": len(pieces), "images": images, "missing": missing, "sentence": sentence}


def warn_refused(refused: Mapping[str, str]) -> None:
    """Name pictures that cannot be used."""
    for image_id, problem in list(refused.items())[:SHOWN]:
        warn(f"{image_id}: {problem}")
    if len(refused) > SHOWN:
        warn(f"and {len(refused) - SHOWN:,} more pictures that cannot be used; --json names all")
