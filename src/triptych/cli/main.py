"""``triptych``: the command line; a verb's module is imported only when the verb is used."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from triptych.errors import TriptychError

VERBS = {
    "demo": "Show what wrong triplets do to training, in one command.",
    "data": "Check, describe and make data sets.",
    "noise": "Corrupt training triplets on purpose, and write down which.",
    "methods": "List the methods, or show the switches of one.",
    "align": "Before training: teach a backbone to match images and captions.",
    "cache": "Build, describe and verify the cache of image tokens.",
    "plan": "Predict memory, disk and time of a training, without weights.",
    "train": "Train a retrieval model on (reference, text, target) triplets.",
    "convert": "Turn a published checkpoint into a model folder.",
    "evaluate": "Score a trained model: recall, mAP, intervals, context.",
    "submission": "Check a file for the server of CIRR or CIRCO.",
    "compare": "Put runs into one table, with differences and quoted figures.",
    "study": "Run many trainings and compare them.",
    "figure": "Draw a figure of the papers from finished runs.",
    "index": "Embed pictures into a gallery on disk, and look after it.",
    "audit": "Find wrong triplets, their wrong part, and what would be right.",
    "search": "Find pictures by a reference picture and a text.",
    "serve": "Answer searches of a gallery over HTTP.",
    "doctor": "Say what is missing here, and the command that mends it.",
}
"""Each verb and its purpose; the module of the same name in this folder has its ``app``."""

INTERRUPTED = 130

Context: TypeAlias = Any
"""Click's: newer versions of Typer carry their own, so its types have no name that all know."""


class Verbs(TyperGroup):
    """Lists the verbs without importing them, and turns errors of ours into a message and an exit code."""

    def list_commands(self, ctx: Context) -> list[str]:
        """Name the verbs, in the order of use."""
        return list(VERBS)

    def get_command(self, ctx: Context, cmd_name: str) -> Any:
        """Return a stand-in that knows its purpose, which is all that ``--help`` needs."""
        if cmd_name not in VERBS:
            return None
        return TyperCommand(cmd_name, help=VERBS[cmd_name])

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Find the verb to run, and import it."""
        name, command, rest = super().resolve_command(ctx, args)
        if name in VERBS:
            command = typer.main.get_command(import_module(f"triptych.cli.{name}").app)
        return name, command, rest

    def invoke(self, ctx: Context) -> Any:
        """Run the verb.

        Raises:
            typer.Exit: with the error's exit code: 1 for wrong data, 2 for wrong usage, 130 for a stop.
        """
        try:
            return super().invoke(ctx)
        except TriptychError as error:
            show_error(error)
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            _complain(Text("stopped; what was finished is kept, nothing is half-written."))
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    cls=Verbs,
    name="triptych",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from triptych import __version__

        typer.echo(f"triptych {__version__}")
        raise typer.Exit


@app.callback()
def triptych(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Composed image retrieval that stays strong when the training triplets are wrong.

    A query is a reference picture plus a text that says what to change; the answer is another picture.
    """


def show_error(error: TriptychError) -> None:
    """Print an error of ours: what is wrong and how to mend it, no traceback."""
    stopped = error.exit_code == INTERRUPTED
    _complain(Text(str(error)) if stopped else Text.assemble(("error: ", "bold red"), str(error)))


def _complain(text: Text) -> None:
    Console(stderr=True, highlight=False).print(text, soft_wrap=True)


def main() -> None:
    """Run the command line."""
    sys.exit(app())


if __name__ == "__main__":
    main()
