"""``triptych noise``: corrupt training triplets on purpose, and write down which."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from triptych.cli.progress import stages, warn
from triptych.errors import UsageError
from triptych.noise import KINDS, NoiseManifest
from triptych.noise.corruption import TripletField
from triptych.triplets import TripletTable, read_benchmark

app = typer.Typer(
    help="Corrupt training triplets on purpose, and write down which.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
)

FIELDS: tuple[TripletField, ...] = ("reference", "text", "target")

DataPath = Annotated[Path, typer.Argument(metavar="DATA", help="The data set; its files are never changed.")]
ImagesPath = Annotated[
    Path | None,
    typer.Option("--images", help="Where the pictures are, if not beside the data.", show_default=False),
]

_INJECT_HELP = (
    "Draw noise for the training triplets and write it to a manifest.\n\n"
    "Training takes the manifest (`triptych train --noise FILE`), so every method sees the same noise; the data"
    " stays as it is. The kinds:\n\n"
    + "\n".join(f"- **{kind}**: {meaning}" for kind, meaning in KINDS.items())
)


@app.command(help=_INJECT_HELP)
def inject(
    data: DataPath,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The manifest to write (JSON).", show_default=False)
    ],
    kind: Annotated[str, typer.Option(help=f"One of {', '.join(KINDS)}; see above.")] = "mix",
    ratio: Annotated[float, typer.Option(help="Share of the triplets to draw, 0 to 1.")] = 0.5,
    seed: Annotated[int, typer.Option(help="Seed of the draw; published work uses 42.")] = 42,
    images: ImagesPath = None,
) -> None:
    """Draw noise for the training triplets and write it to a manifest."""
    from triptych.noise import inject as draw

    if kind not in KINDS:
        raise UsageError(f'unknown kind of noise "{kind}"; there are: {", ".join(KINDS)}')
    benchmark = read_benchmark(data, images=images)
    warn(*benchmark.warnings)
    with stages() as progress:
        manifest = draw(
            benchmark.train,
            kind=kind,
            ratio=ratio,
            seed=seed,
            images=benchmark.images if kind == "hard" else None,
            progress=lambda done, total: progress("comparing pictures", done, total),
        )
    manifest.write(out)
    _print(manifest, benchmark.train)
    Console(highlight=False).print(
        f"written to {escape(str(out))}; use it: triptych train --data {escape(str(data))}"
        f" --noise {escape(str(out))}",
        soft_wrap=True,
    )


@app.command()
def show(
    manifest: Annotated[Path, typer.Argument(metavar="MANIFEST", help="A noise manifest (JSON).")],
    data: DataPath,
    sample: Annotated[int, typer.Option(min=0, help="How many corrupted triplets to show.")] = 3,
    images: ImagesPath = None,
) -> None:
    """Say what a manifest corrupts, and whether it belongs to this data.

    Reads our manifests and those by rows that come with a data set (`offsets`, `corrupted`).
    """
    train = read_benchmark(data, images=images).train
    noise = NoiseManifest.read(manifest, train)
    _print(noise, train)
    console = Console(highlight=False)
    for corruption in noise.corruptions[:: max(1, len(noise.corruptions) // max(1, sample))][:sample]:
        old, new = (_words(value) for value in (corruption.old, corruption.new))
        line = f"{corruption.triplet_id}: {corruption.field} {old} became {new}"
        console.print(escape(line), soft_wrap=True)


def _print(manifest: NoiseManifest, train: TripletTable) -> None:
    console = Console(highlight=False)
    console.print(
        f"[bold]{manifest.kind}[/bold]: {KINDS[manifest.kind]}\n"
        f"asked {manifest.ratio_asked:.2%}, real {manifest.ratio_real:.2%}:"
        f" {len(manifest.corruptions):,} of {manifest.num_triplets:,} triplets have one wrong field"
        f" ({manifest.fixed_points:,} more were drawn and kept their value); seed {manifest.seed}",
        soft_wrap=True,
    )
    counts = manifest.counts(train)
    categories = train.column("category")
    table = Table("category", box=box.SIMPLE_HEAD)
    for title in (*FIELDS, "wrong", "triplets"):
        table.add_column(title, justify="right")
    for category in train.categories:
        by_field = [counts[category, field] for field in FIELDS]
        numbers = (*by_field, sum(by_field), categories.count(category))
        table.add_row(escape(category), *(f"{number:,}" if number else "" for number in numbers))
    console.print(table)
    console.print(f"fingerprint {manifest.fingerprint()[:16]}")


def _words(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else " / ".join(f'"{caption}"' for caption in value)
