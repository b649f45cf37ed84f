"""``triptych convert``: a published checkpoint to a model folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from triptych.cli.progress import stages, warn

if TYPE_CHECKING:
    from triptych.training.convert import Conversion

app = typer.Typer(rich_markup_mode="markdown", add_completion=False)


@app.command()
def convert(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="A .pt, .pth, .bin or .safetensors file of tensors.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="The model folder; must be new or empty.")
    ],
    method: Annotated[
        str | None,
        typer.Option(
            help="Whose release it is: sprc, tme, habit, intent, conesep, or none for a first stage.",
            show_default="found by its parameters",
        ),
    ] = None,
    tower: Annotated[
        str | None,
        typer.Option(
            metavar="WEIGHTS",
            help="Where the vision tower is, for a checkpoint without one: a folder or a name on the hub.",
            show_default=False,
        ),
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="A folder with the tokenizer.", show_default="BERT's uncased with [DEC]"
        ),
    ] = None,
    heads: Annotated[
        int | None, typer.Option(min=1, help="Attention heads of the Q-Former.", show_default="width / 64")
    ] = None,
    vision_heads: Annotated[
        int | None,
        typer.Option(
            min=1, help="Attention heads of the tower.", show_default="width / 88, or / 64 for CLIP's"
        ),
    ] = None,
) -> None:
    """Turn a published checkpoint into a model folder.

    Reads BLIP-2's first stage as LAVIS stores it, and the state dictionaries of SPRC, TME, HABIT, INTENT and
    ConeSep. Nothing in the file is run: a whole pickled module is refused, with the lines by which its owner
    exports the tensors. What has no place is listed; a file that does not make a whole model is refused.

    `triptych train --init FOLDER`, `triptych evaluate FOLDER` and `triptych search FOLDER` read the result.
    """
    from triptych.training.convert import convert as start

    with stages() as bars:
        made = start(
            checkpoint,
            out,
            method=method,
            tower=tower,
            tokenizer=tokenizer,
            heads=heads,
            vision_heads=vision_heads,
            stages=bars,
        )
    _show(made)


def _show(made: Conversion) -> None:
    console = Console(highlight=False)

    def line(text: str) -> None:
        console.print(text, soft_wrap=True)

    what = f"method {made.method}" if made.method else "a first stage, without a method"
    line(f"{made.tensors:,} tensors: [bold]{escape(str(made.folder))}[/bold] ({what})")
    if made.parts:
        line("into the method: " + ", ".join(f"{theirs} -> {ours}" for theirs, ours in made.parts.items()))
    if made.started:
        line(f"not in the file, so at their start: {', '.join(made.started)}")
    if made.dropped:
        line(
            f"left out on purpose: {len(made.dropped)} tensors of heads that retrieval does not read, and buffers"
        )
    if made.left_out:
        warn(f"{len(made.left_out)} tensors have no place: {', '.join(made.left_out)}")
    if not made.tokenizer:
        warn(
            f"there is no tokenizer for {made.sizes.vocabulary} word embeddings: put its files into the folder, "
            "or give --tokenizer FOLDER"
        )
    if made.method:
        line(f"Next: triptych evaluate {escape(str(made.folder))} --data DATA")
    else:
        line(f"Next: triptych train --data DATA --init {escape(str(made.folder))} -o RUN")
