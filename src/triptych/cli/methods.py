"""``triptych methods``: which methods there are, and the switches of each."""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

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
    """Show all switches of a method: default, type and meaning.

    Set one in training with `--set method.SWITCH=VALUE`, or in a recipe's section `[method]`.
    """
    from triptych.methods import registry

    chosen = registry.get(method)
    console = Console()
    console.print(f"[bold]{escape(chosen.name)}[/bold]: {escape(chosen.summary)}", highlight=False)
    console.print(f"{escape(chosen.paper)}. Captions in training: {chosen.captions}.", highlight=False)
    console.print(_switches(chosen.Config))


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
