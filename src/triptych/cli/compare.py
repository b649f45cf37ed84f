"""``triptych compare``: many runs in one table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from triptych.cli.progress import stages
from triptych.errors import UsageError
from triptych.files import atomic_write

if TYPE_CHECKING:
    from triptych.evaluation.comparison import Comparison
    from triptych.evaluation.comparison_tables import QuoteMode

app = typer.Typer(rich_markup_mode="markdown", add_completion=False)

FORMATS = {
    ".txt": "text",
    ".md": "markdown",
    ".tex": "latex",
    ".csv": "csv",
    ".json": "json",
    ".html": "html",
}
"""What a file's ending makes of it."""


@app.command()
def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Folders of runs or of grids (all their cells), or JSON files of `triptych evaluate --json`.",
            show_default=False,
        ),
    ],
    baseline: Annotated[
        str | None,
        typer.Option(
            help="A method, which others are compared with at their own noise, or the name of a run: differences"
            " with paired bootstrap intervals.",
            show_default=False,
        ),
    ] = None,
    checkpoint: Annotated[
        Literal["best", "last"], typer.Option(help="Which model's evaluation is read of each run.")
    ] = "best",
    quote: Annotated[
        Literal["same", "papers", "none"],
        typer.Option(
            help="The papers' figures, marked as quoted: those of the same galleries, noise and method; all of the"
            " same galleries; or none."
        ),
    ] = "same",
    by_category: Annotated[
        bool, typer.Option("--by-category", help="Also a table for every category.")
    ] = False,
    bootstrap: Annotated[int, typer.Option(min=1, help="Draws behind an interval.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
    format: Annotated[
        Literal["text", "markdown", "latex", "csv", "json", "html"],
        typer.Option("--format", help="What is printed."),
    ] = "text",
    out: Annotated[
        list[Path] | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Write a file instead; its ending says what it is: .md, .tex, .csv, .json, .html or .txt. May be"
            " repeated.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Put runs into one table: method by noise, the mean over seeds with its standard deviation.

    Runs of different protocols, splits or galleries are refused, and which differ in what is said. A run that is
    still training, or was not evaluated, is named and counted and in no mean. Beside each figure stand those that
    it would hide: the reference kept and removed, image and text alone, several right answers, the wording of the
    text, the noise that was really there, the seeds.
    """
    unknown = [path for path in out or () if path.suffix.lower() not in FORMATS]
    if unknown:
        raise UsageError(f"{unknown[0]}: end its name in one of {', '.join(FORMATS)}")
    from triptych.evaluation.comparison import compare as put_together
    from triptych.studies.collect_runs import collect

    results, unfinished = collect(runs, checkpoint=checkpoint)
    with stages() as bars:
        comparison = put_together(
            results,
            unfinished,
            baseline=baseline,
            samples=bootstrap,
            seed=seed,
            progress=lambda done, total: bars("differences", done, total),
        )
    if not out:
        if format == "text":
            _print(comparison, Console(highlight=False), quote, by_category)
        else:
            typer.echo(_text(comparison, format, quote, by_category), nl=False)
    for path in out or ():
        kind = FORMATS[path.suffix.lower()]
        with atomic_write(path) as file:
            if kind == "text":
                _print(comparison, Console(file=file, width=160, highlight=False), quote, by_category)
            else:
                file.write(_text(comparison, kind, quote, by_category))


def _print(comparison: Comparison, console: Console, quote: QuoteMode, by_category: bool) -> None:
    from triptych.evaluation.comparison_tables import comparison_notes, comparison_tables
    from triptych.evaluation.tables import rich_table

    for table in comparison_tables(comparison, quote=quote, by_category=by_category):
        console.print(rich_table(table))
    for note in comparison_notes(comparison, quote):
        console.print(note, style="italic dim", markup=False, soft_wrap=True)


def _text(comparison: Comparison, kind: str, quote: QuoteMode, by_category: bool) -> str:
    from triptych.evaluation import formats
    from triptych.evaluation.comparison_tables import comparison_notes, comparison_tables, records

    notes = comparison_notes(comparison, quote)
    if kind == "csv":
        return formats.to_csv(records(comparison, quote))
    if kind == "json":
        return formats.to_json(
            records(comparison, quote),
            notes,
            data=comparison.data,
            split=comparison.split,
            protocol=comparison.protocol.model_dump(mode="json"),
            gallery_sizes=dict(comparison.gallery_sizes),
            gallery_hash=comparison.gallery_hash,
            baseline=comparison.baseline,
            unfinished=[vars(each) for each in comparison.unfinished],
        )
    tables = comparison_tables(comparison, quote=quote, by_category=by_category)
    if kind == "html":
        from triptych.studies.html.tables import tables_page

        return tables_page(
            f"Runs on {comparison.data}/{comparison.split}", tables, notes, "Figures are percent."
        )
    return formats.to_latex(tables, notes) if kind == "latex" else formats.to_markdown(tables, notes)
