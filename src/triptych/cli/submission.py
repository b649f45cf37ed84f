"""``triptych submission``: check a file before it goes to the server of CIRR or CIRCO."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from triptych.cli.inputs import JsonOption

if TYPE_CHECKING:
    from triptych.evaluation.submission_check import SubmissionReport

app = typer.Typer(
    help="Check a file for the server of CIRR or CIRCO.",
    rich_markup_mode="markdown",
    add_completion=False,
    no_args_is_help=True,
)


@app.callback()
def submission() -> None:
    """Check a file for the server of CIRR or CIRCO; `triptych evaluate --submission` writes one."""


@app.command()
def check(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The JSON file that would be uploaded.", show_default=False)
    ],
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DATA",
            help="The data set: then the names of queries and pictures are checked too, and that no query lists"
            " its own reference.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
    limit: Annotated[int, typer.Option(min=0, help="Show at most this many faults; 0 shows all.")] = 20,
) -> None:
    """Check a file by the server's rules: version, metric, number of queries, length of each list, names, 5 MB.

    Exit code: 0 where the server would take it, 1 where it would not.
    """
    from triptych.evaluation.submission_check import check_submission
    from triptych.triplets import read_benchmark

    report = check_submission(file, None if data is None else read_benchmark(data))
    if as_json:
        facts = {
            "file": str(report.path),
            "kind": report.kind,
            "passes": report.passes,
            "queries": report.queries,
            "faults": [vars(fault) for fault in report.faults],
            "unchecked": list(report.unchecked),
        }
        typer.echo(json.dumps(facts, ensure_ascii=False, indent=2))
    else:
        show(report, limit)
    raise typer.Exit(0 if report.passes else 1)


def show(report: SubmissionReport, limit: int = 20) -> None:
    """Print what a check found."""
    console = Console(highlight=False)
    shown = report.faults[:limit] if limit else report.faults
    for fault in shown:
        console.print(f"[red]fault[/]: {escape(fault.message)}", soft_wrap=True)
    if len(report.faults) > len(shown):
        more = f"  ... and {len(report.faults) - len(shown):,} more (--limit 0 shows all)"
        console.print(more, style="dim", soft_wrap=True)
    verdict = "[green]passes[/]" if report.passes else f"[red]{len(report.faults):,} faults[/]"
    console.print(
        f"{escape(str(report.path))} ({report.kind}, {report.queries:,} queries): {verdict}", soft_wrap=True
    )
    if report.unchecked:
        console.print(
            f"  not checked: {', '.join(report.unchecked)}; --data DATA gives what it takes", style="dim"
        )
