"""``triptych data render``: draw a benchmark that needs no download."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from triptych.cli.progress import stages


def render(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to make; it must be new or empty.")],
    seed: Annotated[int, typer.Option(min=0, help="The same seed and counts give the same bytes.")] = 0,
    train: Annotated[int, typer.Option(min=3, help="Training triplets, over three categories.")] = 4000,
    val: Annotated[int, typer.Option(min=3, help="Validation triplets, over three categories.")] = 800,
) -> None:
    """Draw a benchmark: scenes of shapes, and texts that say what changes between two.

    It needs no download and every truth is known. The gallery is dense: many pictures are near the reference
    and many fit the text, so that only both together find the target. Beside the triplets it writes
    `captions.csv`, a description of each picture, for `triptych align`.
    """
    from triptych.triplets.rendered import render_benchmark

    with stages() as progress:
        made = render_benchmark(
            out,
            seed=seed,
            train=train,
            val=val,
            progress=lambda done, total: progress("drawing", done, total),
        )
    console = Console(highlight=False)
    for split, count in made.triplets.items():
        console.print(f"{split}: {count:,} triplets over {made.images[split]:,} pictures")
    console.print(f"right answers a query: {made.answers:.2f} on average")
    console.print(f"Look at it: triptych data info {escape(str(out))}", soft_wrap=True)
