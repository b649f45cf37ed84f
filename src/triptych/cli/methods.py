"""``triptych methods``: which methods there are, and the switches of each."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from triptych.methods.config import Difference

app = typer.Typer(
    help="List the methods, or show the switches of one.", rich_markup_mode="markdown", add_completion=False
)


@app.callback(invoke_without_command=True)
def list_methods(context: typer.Context) -> None:
    """List the methods: name, paper and what each is about."""
    if context.invoked_subcommand is not None:
        return
    from triptych.methods import registry

    table = Table(show_lines=True)
    table.add_column("method", style="bold", no_wrap=True)
    table.add_column("what it does", ratio=3)
    table.add_column("paper", ratio=2)
    for name in registry.names():
        method = registry.get(name)
        table.add_row(name, escape(method.summary), escape(method.paper))
    console = Console()
    console.print(table)
    console.print("Switches of one: [bold]triptych methods show NAME[/bold]", highlight=False)


@app.command()
def show(
    method: Annotated[str, typer.Argument(help="Name of a method, as listed by `triptych methods`.")],
) -> None:
    """Show a method: its idea and sources, all switches, and how it differs from paper and released code.

    Set a switch in training with `--set method.SWITCH=VALUE`, or in a recipe's section `[method]`.
    """
    from triptych.methods import registry

    chosen = registry.get(method)
    about = chosen.about
    console = Console()

    def say(text: str = "") -> None:
        console.print(text, highlight=False)

    say(f"[bold]{escape(chosen.name)}[/bold]: {escape(chosen.summary)}")
    say(f"{escape(chosen.paper)}. Captions in training: {chosen.captions}.\n")
    say(f"{escape(about.idea)}\n\n[bold]Sources[/bold]: {escape(about.sources)}")
    console.print(_switches(chosen.Config))
    if about.differences:
        console.print(_differences(about.differences))
    for preset, values in chosen.Config.presets.items():
        listed = ", ".join(f"{key} = {_literal(value)}" for key, value in values.items())
        say(f'[bold]compat = "{preset}"[/bold] sets {listed}')
    for note in about.finite_paper:
        say(f'compat = "paper": {escape(note)}')
    if chosen.ablations:
        say(f"\nAblation rows: {', '.join(chosen.ablations)}; see `triptych methods ablations`.")


@app.command()
def ablations() -> None:
    """List the rows of the papers' ablation tables, each with the switches that it changes.

    Train one with `triptych train --ablate intent.A1`.
    """
    from triptych.methods.ablations import ablations as rows

    table = Table(box=box.SIMPLE_HEAD)
    for column in ("row", "in the table", "switches"):
        table.add_column(column, no_wrap=column == "row")
    for name, row in rows():
        listed = ", ".join(f"{key} = {_literal(value)}" for key, value in row.settings.items())
        same = (
            f"\n[dim]equal to the full method: {escape(row.same_as_full)}[/dim]" if row.same_as_full else ""
        )
        table.add_row(name, escape(f"{row.table}, {row.title}"), f"{listed}{same}")
    Console().print(table)


def _differences(differences: Sequence[Difference]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title="Paper, released code, and here", title_justify="left")
    for column in ("point", "paper", "released", "here"):
        table.add_column(column, ratio=1)
    for each in differences:
        table.add_row(*map(escape, (each.point, each.paper, each.released, each.ours)))
    return table


def _switches(config: type[BaseModel]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("switch", style="bold", no_wrap=True)
    table.add_column("default", no_wrap=True)
    table.add_column("type and meaning")
    for name, field in config.model_fields.items():
        meaning = f"[cyan]{escape(_type(field))}[/cyan]\n{escape(field.description or '')}"
        table.add_row(name, _literal(field.default), meaning)
    return table


def _literal(value: Any) -> str:
    """Write a default as it would stand in a recipe."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return escape(f"[{', '.join(map(_literal, value))}]")
    return f'"{escape(value)}"' if isinstance(value, str) else str(value)


def _type(field: FieldInfo) -> str:
    """Name the type of a field in words, with its bounds."""
    bounds = ", ".join(
        f"{sign} {getattr(bound, name):g}"
        for bound in field.metadata
        for name, sign in (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<="))
        if hasattr(bound, name)
    )
    return f"{_annotation(field.annotation)} {bounds}".strip()


def _annotation(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " | ".join(map(str, arguments))
    if origin in (Union, types.UnionType):
        return " | ".join(map(_annotation, arguments))
    if origin in (tuple, list):
        return f"[{', '.join(map(_annotation, arguments))}]"
    names = {bool: "true | false", int: "whole number", float: "number", str: "text", type(None): "none"}
    return names.get(annotation, getattr(annotation, "__name__", str(annotation)))
