"""``triptych align``: teach a backbone to match pictures and captions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from triptych.cli.inputs import CacheOption, ImagesOption
from triptych.cli.progress import stages, warn
from triptych.cli.settings import parse_assignment
from triptych.errors import DataError, UsageError
from triptych.triplets import Benchmark, ImageStore, read_benchmark
from triptych.triplets.fashioniq import has_fashioniq_layout
from triptych.triplets.images import find_images
from triptych.triplets.tabular import SUFFIXES

app = typer.Typer(rich_markup_mode="markdown", add_completion=False)


@app.command()
def align(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA", help="A data set, or a folder, .zip or .tar of pictures.", show_default=False
        ),
    ],
    captions: Annotated[
        Path,
        typer.Option(metavar="FILE.csv", help="Captions with the ids of their pictures.", show_default=False),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FOLDER", help="The model folder to write.", show_default=False),
    ],
    image_column: Annotated[
        str | None, typer.Option(help="Column of the image ids.", show_default="image_id, image or id")
    ] = None,
    caption_column: Annotated[
        str | None,
        typer.Option(help="Column of the captions.", show_default="caption, text, title or name"),
    ] = None,
    split: Annotated[
        str,
        typer.Option(
            help="Take rows whose column `split` says this, where there is such a column; `all` takes every row."
        ),
    ] = "train",
    backbone: Annotated[str, typer.Option(help="The backbone to align.")] = "lite",
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="epochs, batch_size, learning_rate, temperature, weight_decay, seed, or backbone.KEY."
            " May be repeated.",
            show_default=False,
        ),
    ] = None,
    images: ImagesOption = None,
    cache: CacheOption = None,
) -> None:
    """Teach a backbone to match pictures and captions, before it sees a triplet.

    Large models come with such a first stage; a small one needs it too. The losses that withstand wrong
    triplets push wrong targets away and never pull the right one near, so they underfit when they start from
    nothing. Any captions will do, such as a shop's product titles: a minute for 6,000 photos. Then start from
    the result with `triptych train --init FOLDER`.

    Give captions of training pictures only: those of pictures that evaluation searches would make its figures
    too good.
    """
    from triptych.training.align import align as start
    from triptych.training.align import read_captions

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} is there already and not empty: choose another folder with -o")
    settings, sizes = _settings(assignments or ())
    benchmark = _benchmark(data, images)
    pairs = read_captions(
        captions,
        image_column=image_column,
        caption_column=caption_column,
        split=None if split == "all" else split,
        warn=warn,
    )
    if benchmark is not None:
        warn(*benchmark.warnings, *_leaks(benchmark, pairs))
    with stages() as bars:
        model = start(
            benchmark.images if benchmark is not None else _pictures(data, images),
            pairs,
            out,
            backbone={"name": backbone, **sizes},
            settings=settings,
            cache=cache,
            stages=bars,
        )
    console = Console(highlight=False)
    console.print(
        f"aligned on {len(pairs):,} captions (last loss {model.info['loss']:.3f}):"
        f" [bold]{escape(str(out))}[/bold]",
        soft_wrap=True,
    )
    console.print(f"Next: triptych train --data DATA --init {escape(str(out))} -o RUN", soft_wrap=True)


def _settings(assignments: Sequence[str]) -> tuple[dict[str, object], dict[str, object]]:
    """Tell settings of the alignment from those of the backbone."""
    given = dict(map(parse_assignment, assignments))
    prefix = "backbone."
    sizes = {key.removeprefix(prefix): value for key, value in given.items() if key.startswith(prefix)}
    return {key: value for key, value in given.items() if not key.startswith(prefix)}, sizes


def _benchmark(path: Path, images: Path | None) -> Benchmark | None:
    """Read a data set; None where ``path`` holds pictures only."""
    tables = [path] if path.is_file() else [path / f"triplets{suffix}" for suffix in SUFFIXES]
    if (path.is_dir() and has_fashioniq_layout(path)) or any(
        table.is_file() and table.suffix.lower() in SUFFIXES for table in tables
    ):
        return read_benchmark(path, images=images)
    return None


def _pictures(path: Path, images: Path | None) -> ImageStore:
    """Open pictures that come without triplets."""
    beside = find_images(path) if path.is_dir() else []
    store = ImageStore.open(images or (beside[0] if beside else path))
    if not len(store):
        raise DataError("there are no pictures here", file=store.path)
    warn(*store.warnings)
    return store


def _leaks(benchmark: Benchmark, pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Warn where captions tell what is in a gallery."""
    galleries = {
        image for parts in benchmark.splits.values() for part in parts for image in part.gallery
    } - set(benchmark.train.image_ids())
    count = sum(image in galleries for image, _ in pairs)
    if not count:
        return []
    return [
        f"{count:,} of {len(pairs):,} captions are of pictures that evaluation searches and training does not"
        " show: its figures will be too good"
    ]
