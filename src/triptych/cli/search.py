"""``triptych search``: find pictures by a reference and a text."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from triptych.cli.inputs import (
    CacheOption,
    CheckpointOption,
    DataOption,
    ImagesOption,
    JsonOption,
    ModelFolder,
    data_of,
)
from triptych.cli.progress import stages
from triptych.errors import UsageError
from triptych.files import atomic_write
from triptych.triplets import Benchmark, ImageError

if TYPE_CHECKING:
    from triptych.search import Hit
    from triptych.studies.html import Picture

app = typer.Typer(rich_markup_mode="markdown", add_completion=False)


@app.command()
def search(
    model: ModelFolder,
    data: DataOption = None,
    images_given: Annotated[
        list[str] | None,
        typer.Option(
            "--image",
            "--reference",
            metavar="ID_OR_FILE",
            help="The picture to start from: an image id, or a file. A gallery takes several.",
            show_default=False,
        ),
    ] = None,
    texts: Annotated[
        list[str] | None,
        typer.Option(
            "--text",
            help='What to change, such as "make it red". A gallery takes several.',
            show_default=False,
        ),
    ] = None,
    minus: Annotated[
        list[str] | None,
        typer.Option(help='What is not wanted, such as "striped". Gallery only.', show_default=False),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="FILTER",
            help="Search only images whose metadata fit, such as \"category = 'shoes' AND price < 50\"."
            " Gallery only.",
            show_default=False,
        ),
    ] = None,
    session: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep the turns of a search here: run again with another --image and --text to go on"
            ' ("more like this, but ..."). Gallery only.',
            show_default=False,
        ),
    ] = None,
    query: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A whole query as JSON, as `POST /v1/search` takes it: weights, turns. Gallery only.",
            show_default=False,
        ),
    ] = None,
    exact: Annotated[
        bool | None,
        typer.Option(
            "--exact/--approximate",
            help="Force an exact scan, or the two-stage search. Gallery only.",
            show_default="by the gallery's size",
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many hits.")] = 10,
    split: Annotated[
        str | None,
        typer.Option(
            help="Search the galleries of this split only.", show_default="every picture of the data"
        ),
    ] = None,
    category: Annotated[
        str | None, typer.Option(help="Search this category only.", show_default="all categories")
    ] = None,
    checkpoint: CheckpointOption = "best",
    keep_reference: Annotated[
        bool, typer.Option("--keep-reference", help="Let the reference itself be a hit.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a page with the pictures; it holds all it shows.", show_default=False
        ),
    ] = None,
    as_json: JsonOption = False,
    images: ImagesOption = None,
    cache: CacheOption = None,
) -> None:
    """Find pictures by a reference picture and a text that says what to change.

    Without a text it finds pictures like the reference, without a reference those that fit the text. What is
    searched is a gallery (of `triptych index`), or the pictures of the data that a run was trained on.
    """
    if (model / "gallery.json").is_file():
        from triptych.cli.gallery_search import Asked, search_gallery

        only_runs = {
            "--data": data,
            "--split": split,
            "--category": category,
            "--images": images,
            "--cache": cache,
        }
        _refuse(
            only_runs, f"{model} is a gallery, which holds its own pictures and model", "--where filters it"
        )
        asked = Asked(
            tuple(images_given or ()), tuple(texts or ()), tuple(minus or ()), where, top, keep_reference
        )
        search_gallery(model, asked, session=session, query=query, exact=exact, html=html, as_json=as_json)
        return
    only_galleries: dict[str, object] = {"--minus": minus, "--where": where, "--session": session}
    only_galleries |= {"--query": query, "--exact/--approximate": exact is not None}
    _refuse(only_galleries, f"{model} is no gallery", "`triptych index` makes one")
    for name, given in (("--image", images_given), ("--text", texts)):
        if given and len(given) > 1:
            raise UsageError(f"give {name} once: only a gallery takes several; `triptych index` makes one")
    reference, text = images_given[0] if images_given else None, texts[0] if texts else ""
    if reference is None and not text.strip():
        raise UsageError("say what to search for: --image ID_OR_FILE, --text TEXT, or both")
    from triptych.search import SearchEngine
    from triptych.search.engine import gallery_of
    from triptych.training.source import open_model

    benchmark = data_of(model, data, images)
    gallery = gallery_of(benchmark, split=split, category=category)
    opened = open_model(model, checkpoint=checkpoint)
    with stages(quiet=as_json) as bars:
        engine = SearchEngine(
            opened.model, benchmark, gallery, cache=cache, progress=lambda d, t: bars("image tokens", d, t)
        )
    hits = engine.search(reference=reference, text=text, top=top, exclude_reference=not keep_reference)
    epoch = opened.model.info.get("epoch")
    details = {
        "model": opened.name if epoch is None else f"{opened.name}, epoch {epoch}",
        "data": benchmark.name,
        "gallery": f"{len(gallery)} pictures",
    }
    if html is not None:
        _write_page(html, benchmark, reference, text, hits, details)
    if as_json:
        found = [{"rank": hit.rank, "image_id": hit.image_id, "score": hit.score} for hit in hits]
        asked_for = {"reference": reference, "text": text, **details, "gallery": len(gallery)}
        typer.echo(json.dumps({**asked_for, "hits": found}, ensure_ascii=False, indent=2))
    else:
        _print(hits, benchmark, details, html)


def _refuse(options: Mapping[str, object], why: str, mend: str) -> None:
    """Refuse options that do not fit what is searched."""
    given = [name for name, value in options.items() if value]
    if given:
        raise UsageError(f"{given[0]} does not fit here: {why}; {mend}")


def _print(hits: Sequence[Hit], benchmark: Benchmark, details: dict[str, str], html: Path | None) -> None:
    table = Table("", "image", "score", "file", box=box.SIMPLE_HEAD)
    for hit in hits:
        place = benchmark.images.source(hit.image_id)
        table.add_row(str(hit.rank), escape(hit.image_id), f"{hit.score:.3f}", escape(place))
    console = Console(highlight=False)
    console.print(table)
    console.print(escape(", ".join(f"{name}: {value}" for name, value in details.items())), soft_wrap=True)
    if html is not None:
        console.print(f"Pictures: {escape(str(html))}", soft_wrap=True)


def _write_page(
    path: Path,
    benchmark: Benchmark,
    reference: str | None,
    text: str,
    hits: Sequence[Hit],
    details: dict[str, str],
) -> None:
    from triptych.studies.html import HitView, QueryView, search_page

    page = search_page(
        QueryView(None if reference is None else _picture(benchmark, reference), text),
        [HitView(_picture(benchmark, hit.image_id), hit.score) for hit in hits],
        details=list(details.items()),
        command=shlex.join(["triptych", *sys.argv[1:]]),
    )
    with atomic_write(path) as file:
        file.write(page)


def _picture(benchmark: Benchmark, name: str) -> Picture:
    """Shrink a picture of the data, or a file; one that cannot be read is shown as such."""
    from triptych.studies.html import Picture
    from triptych.triplets.decoding import decode_image
    from triptych.triplets.thumbnail import thumbnail_data_uri

    try:
        known = name in benchmark.images
        image = benchmark.images.load(name) if known else decode_image(Path(name).read_bytes(), name)
    except (ImageError, OSError):
        return Picture(name)
    return Picture(name, thumbnail_data_uri(image))
