"""``triptych index``: embed pictures into a gallery on disk, and look after it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer.core import TyperGroup

from triptych.cli.index_shards import (
    Pieces,
    RayOption,
    RayWorkersOption,
    ShardOption,
    embed_pieces,
    merge_command,
    parse_shard,
    pieces_waiting,
    warn_refused,
)
from triptych.cli.inputs import CheckpointOption, JsonOption
from triptych.cli.progress import stages, warn
from triptych.errors import TriptychError, UsageError


class _IndexVerbs(TyperGroup):
    """``triptych index MODEL IMAGES -o GALLERY`` beside ``triptych index status GALLERY`` and its like."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Take what is no verb as the pictures to index."""
        if args and args[0] not in self.commands:
            args = ["add", *args]
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Let options stand before the model."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["add", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=_IndexVerbs, rich_markup_mode="markdown", add_completion=False, no_args_is_help=True)

StoreOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Where the rows lie: s3://bucket/path, or qdrant://host:port/collection. Decided when the gallery is"
        " made; GALLERY keeps the model and the address.",
        show_default="in GALLERY",
    ),
]
GalleryFolder = Annotated[
    Path, typer.Argument(metavar="GALLERY", help="The gallery's folder.", show_default=False)
]


@app.callback()
def index() -> None:
    """Embed pictures into a gallery on disk that `triptych search` and `triptych serve` search.

    `triptych index MODEL IMAGES -o GALLERY` embeds what is new or changed, by content: run it again at any time,
    also after it was stopped. `triptych index status|verify|remove|compact|copy GALLERY` look after a gallery;
    `triptych index merge GALLERY` ends what several machines embedded with `--shard` or `--ray`.
    """


app.command("merge")(merge_command)


@app.command()
def add(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A run or model folder.", show_default=False)
    ],
    images: Annotated[
        Path,
        typer.Argument(
            metavar="IMAGES",
            help="A folder, .zip or .tar; a .parquet, .csv or .jsonl table with a column of pictures or paths;"
            " or a .txt list of paths.",
            show_default=False,
        ),
    ],
    gallery: Annotated[
        Path, typer.Option("--out", "-o", metavar="GALLERY", help="The gallery's folder.", show_default=False)
    ],
    metadata: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A table of metadata with a column of image ids.", show_default=False
        ),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Threads that read and decode pictures.")] = 2,
    checkpoint: CheckpointOption = "best",
    tokens: Annotated[
        bool,
        typer.Option(
            "--tokens/--no-tokens",
            help="Keep each image's frozen tokens, so that a search by id is exact; without them the gallery is"
            " much smaller. Decided when the gallery is made.",
        ),
    ] = True,
    store: StoreOption = None,
    shard: ShardOption = None,
    ray: RayOption = None,
    ray_workers: RayWorkersOption = 2,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if a picture cannot be used.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Embed the pictures that are new or changed, and write them to a gallery; makes it where there is none.

    Many machines: give each `--shard 1/8`, `--shard 2/8`, …, or `--ray`, and then `triptych index merge GALLERY`.
    """
    if shard and ray:
        raise UsageError("--shard and --ray both say who embeds what: give one of them")
    part = parse_shard(shard)
    from triptych.search.pictures import find_pictures

    pictures = find_pictures(images)  # before the model is loaded: a typing error is answered at once
    warn(*pictures.warnings)
    from triptych.search.gallery import Gallery, is_gallery
    from triptych.search.indexing import index_images
    from triptych.search.metadata import read_metadata
    from triptych.training.source import open_model

    described = read_metadata(metadata) if metadata else None
    if described is not None and pictures.metadata is not None:
        raise UsageError("the table of pictures brings metadata along: leave out --metadata")
    described = described or pictures.metadata
    if described is not None:
        ids = {item.id for item in pictures.items}
        warn(*_unmatched(len(set(described.rows) - ids), len(ids - set(described.rows)), described.path.name))
    opened = open_model(model, checkpoint=checkpoint)
    if is_gallery(gallery):
        found = Gallery.open(gallery)
        found.require(opened.model, opened.name)
        if store and store != found.info.store:
            raise UsageError(
                f"{gallery}: the rows of this gallery are at {found.info.store or 'the folder itself'}"
            )
    else:
        found = Gallery.create(gallery, opened.model, opened.name, keep_tokens=tokens, store=store)
    if part or ray:
        given = Pieces(found, opened.model, pictures, images, described, metadata, workers)
        embed_pieces(given, part, ray, ray_workers, as_json=as_json)
        return
    with stages(quiet=as_json) as bars:
        result = index_images(
            found,
            opened.model,
            pictures.items,
            metadata=described,
            workers=workers,
            progress=lambda done, total: bars("images", done, total),
        )
    if as_json:
        typer.echo(json.dumps({**asdict(result), **asdict(found.status())}, ensure_ascii=False, indent=2))
    else:
        console = Console(highlight=False)
        warn_refused(result.refused)
        again = f", {result.metadata:,} with other metadata" if result.metadata else ""
        console.print(
            f"{result.added:,} images added, {result.changed:,} changed, {result.same:,} were there{again},"
            f" {len(result.refused):,} refused; the gallery has {len(found):,}.",
            soft_wrap=True,
        )
        console.print(
            f"Search it: triptych search {escape(str(gallery))} --image FILE --text TEXT", soft_wrap=True
        )
    if result.refused and (strict or not len(found)):
        raise typer.Exit(TriptychError.exit_code)


@app.command()
def status(gallery: GalleryFolder, as_json: JsonOption = False) -> None:
    """Say what a gallery holds: images, how many the index covers, model, size, version."""
    from triptych.search.gallery import Gallery

    opened = Gallery.open(gallery)
    found, waiting = opened.status(), pieces_waiting(opened)
    if as_json:
        typer.echo(json.dumps({**asdict(found), "pieces": waiting}, ensure_ascii=False, indent=2))
        return
    metadata = ", ".join(f"{name} ({kind})" for name, kind in found.metadata.items())
    _facts(
        images=f"{found.images:,}",
        search="exact scan"
        if found.exact
        else f"approximate, then exact; the index covers {found.indexed:,}",
        **{"not in the index": f"{found.images - found.indexed:,}" if not found.exact else "not needed"},
        model=f"{found.model} ({found.fingerprint[:12]})",
        version=str(found.version),
        store=opened.info.store or "in the folder",
        size=_size(found.bytes, found.fragments),
        metadata=metadata or "none",
        **({"not merged": waiting["sentence"]} if waiting else {}),
    )


@app.command()
def verify(gallery: GalleryFolder, as_json: JsonOption = False) -> None:
    """Read every row of a gallery and check it; exit code 1 if anything is wrong."""
    from triptych.search.gallery import Gallery
    from triptych.search.verify import verify as check

    with stages(quiet=as_json) as bars:
        found = check(Gallery.open(gallery), progress=lambda done, total: bars("images", done, total))
    if as_json:
        typer.echo(json.dumps({"clean": found.clean, **asdict(found)}, ensure_ascii=False, indent=2))
    else:
        console = Console(highlight=False)
        for problem, count in found.problems.items():
            warn(f"{problem}: {count:,} images, such as {found.examples[problem]}")
        console.print(f"{found.images:,} images: {'all is well' if found.clean else 'not clean'}.")
    if not found.clean:
        raise typer.Exit(TriptychError.exit_code)


@app.command()
def remove(
    gallery: GalleryFolder,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Images to remove.", show_default=False)],
    missing_ok: Annotated[
        bool, typer.Option("--missing-ok", help="Ids that are not there are no error.")
    ] = False,
) -> None:
    """Remove images from a gallery by id."""
    from triptych.search.gallery import Gallery

    found = Gallery.open(gallery)
    with found.writing():
        there = found.take(ids, [])
        missing = [image_id for image_id in ids if image_id not in there]
        if missing and not missing_ok:
            raise UsageError(f'there is no image "{missing[0]}" in the gallery; nothing was removed')
        removed = found.remove(list(there))
    Console(highlight=False).print(f"{removed:,} images removed; the gallery has {len(found):,}.")


@app.command()
def compact(
    gallery: GalleryFolder,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget", help="Also delete older versions now; what still reads them fails. Saves space."
        ),
    ] = False,
) -> None:
    """Merge a gallery's small pieces and bring its index up to date."""
    from triptych.search.gallery import Gallery

    found = Gallery.open(gallery)
    with found.writing():
        found.compact(forget=forget)
    now = found.status()
    Console(highlight=False).print(
        f"{now.images:,} images; {_size(now.bytes, now.fragments)}; version {now.version}."
    )


@app.command()
def copy(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="The gallery to copy.", show_default=False)
    ],
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", help="The new gallery's folder.", show_default=False)
    ],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy a gallery, into another store if you like; stopped, it is gone on with by the same command."""
    from triptych.search.copying import copy_gallery
    from triptych.search.gallery import Gallery

    with stages(quiet=as_json) as bars:
        made = copy_gallery(
            Gallery.open(source),
            target,
            store=store,
            progress=lambda done, total: bars("images", done, total),
        )
    if as_json:
        typer.echo(json.dumps(asdict(made.status()), ensure_ascii=False, indent=2))
        return
    place = made.info.store or "the folder"
    Console(highlight=False).print(
        f"{target} has {len(made):,} images; their rows are in {place}.", soft_wrap=True, markup=False
    )


def _unmatched(without_picture: int, without_row: int, name: str) -> list[str]:
    sentences = []
    if without_picture:
        sentences.append(f"{without_picture:,} rows of {name} name no picture that is given here")
    if without_row:
        sentences.append(f"{without_row:,} pictures have no row in {name}; their metadata stays empty")
    return sentences


def _size(size: int | None, pieces: int) -> str:
    """Say how large the rows are, in how many pieces."""
    return f"{pieces:,} pieces" if size is None else f"{size / 2**20:,.1f} MiB in {pieces:,} pieces"


def _facts(**facts: str) -> None:
    table = Table(box=box.SIMPLE, show_header=False)
    for name, value in facts.items():
        table.add_row(escape(name), escape(value))
    Console(highlight=False).print(table)
