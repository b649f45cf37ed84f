"""``triptych data``: check and describe data sets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from triptych.cli.inputs import JsonOption
from triptych.cli.render import render
from triptych.triplets import Benchmark, Triplet, TripletTable, read_benchmark
from triptych.triplets.check import CheckReport, check_data
from triptych.triplets.findings import KINDS, Finding
from triptych.triplets.missing import missing_pictures

app = typer.Typer(
    help="Check, describe and make data sets.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
)

DataPath = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        help="A folder of FashionIQ, CIRR or CIRCO, or one like FashionIQ's with"
        " `captions/cap.<category>.<split>.json` and `image_splits/`, or a table of triplets (.csv, .tsv, .jsonl,"
        " .parquet) with the columns reference, text, target.",
        show_default=False,
    ),
]
ImagesPath = Annotated[
    Path | None,
    typer.Option(
        "--images",
        help="Folder, .zip or .tar of the pictures; by default images.zip, images.tar, images/ or what the data's"
        " own distribution calls it, beside the data.",
        show_default=False,
    ),
]

_COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


@app.command()
def check(
    path: DataPath,
    images: ImagesPath = None,
    as_json: JsonOption = False,
    limit: Annotated[
        int, typer.Option(min=0, help="Show at most this many findings of a kind; 0 shows all.")
    ] = 5,
) -> None:
    """List everything that is wrong with a data set, before any run.

    Every picture that is named is decoded: missing, damaged and oversized ones are found now, not in the
    middle of training. **Errors** make training or evaluation fail or go wrong, **warnings** are usable but
    probably not meant, **notes** are for information. Nothing is changed.

    Exit code: 0 where training would work, 1 where it would fail.
    """
    with _progress("decoding pictures", quiet=as_json) as advance:
        report = check_data(path, images=images, progress=advance)
    if as_json:
        typer.echo(json.dumps(report.as_dict(), ensure_ascii=False, indent=2))
    else:
        _print_report(report, limit)
    raise typer.Exit(1 if report.fails else 0)


@app.command()
def info(
    path: DataPath,
    images: ImagesPath = None,
    as_json: JsonOption = False,
    sample: Annotated[int, typer.Option(min=0, help="How many training triplets to show.")] = 3,
) -> None:
    """Describe a data set: counts per split and category, licence, a sample of triplets.

    Pictures are counted, not decoded; `triptych data check` does that.
    """
    benchmark = read_benchmark(path, images=images)
    if as_json:
        typer.echo(json.dumps(_facts(benchmark, sample), ensure_ascii=False, indent=2))
    else:
        _print_facts(benchmark, sample)


app.command()(render)


@contextmanager
def _progress(task: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on standard error, so that what is printed stays clean."""
    columns = (TextColumn(task), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=quiet) as bar:
        number = bar.add_task(task, total=None)
        yield lambda done, total: bar.update(number, completed=done, total=total)


def _print_report(report: CheckReport, limit: int) -> None:
    console = Console(highlight=False)
    by_kind: dict[str, list[Finding]] = {}
    for finding in report.findings:
        by_kind.setdefault(finding.kind, []).append(finding)
    for findings in by_kind.values():
        shown = findings[:limit] if limit else findings
        for finding in shown:
            colour = _COLOURS[finding.severity]
            field = (
                f' (field "{finding.field}")'
                if finding.field and finding.field not in finding.message
                else ""
            )
            text = escape(f"{finding.place}: {finding.message}{field}")
            console.print(f"[{colour}]{finding.severity}[/]: {text}", soft_wrap=True)
        if len(findings) > len(shown):
            more = f"  ... and {len(findings) - len(shown):,} more like this (--limit 0 shows all)"
            console.print(more, style="dim", soft_wrap=True)
        for mend in dict.fromkeys(finding.mend for finding in shown if finding.mend):
            console.print(f"  {escape(mend)}", style="dim", soft_wrap=True)
    if by_kind:
        table = Table("", "kind", "what", "count", box=box.SIMPLE_HEAD)
        for kind, findings in by_kind.items():
            severity = findings[0].severity
            table.add_row(f"[{_COLOURS[severity]}]{severity}[/]", kind, KINDS[kind][1], f"{len(findings):,}")
        console.print(table)
    queries = sum(sum(categories.values()) for categories in report.queries.values())
    console.print(
        f"{report.triplets:,} good training triplets, {queries:,} good queries;"
        f" {report.decoded:,} of {report.pictures:,} pictures decoded.",
        soft_wrap=True,
    )
    for line in report.missing:
        console.print(f"[yellow]{escape(line.sentence)}[/].", soft_wrap=True)
    verdict = "[red]Training would fail.[/]" if report.fails else "[green]Training would work.[/]"
    if not report.fails and not report.triplets:
        verdict = "[green]Evaluation would work[/]; there is nothing to train on."
    console.print(verdict)


def _facts(benchmark: Benchmark, sample: int) -> dict[str, Any]:
    train = benchmark.train.column("category")
    return {
        "name": benchmark.name,
        "path": str(benchmark.path),
        "train": {category: train.count(category) for category in benchmark.train.categories},
        "splits": {
            split: {
                query_set.category: {
                    "queries": len(query_set.queries),
                    "gallery": len(query_set.gallery),
                    "with_several_answers": sum(len(found) > 1 for found in query_set.answers.values()),
                }
                for query_set in query_sets
            }
            for split, query_sets in benchmark.splits.items()
        },
        "pictures": len(benchmark.images),
        "pictures_at": str(benchmark.images.path),
        "licence": benchmark.licence,
        "protocol": benchmark.protocol,
        "missing": [asdict(line) for line in missing_pictures(benchmark)] if len(benchmark.images) else [],
        "warnings": list(benchmark.warnings),
        "sample": [
            {
                "triplet_id": triplet.triplet_id,
                "reference": triplet.reference,
                "captions": list(triplet.captions),
                "target": triplet.target,
            }
            for triplet in _sample(benchmark.train or _queries(benchmark), sample)
        ],
    }


def _queries(benchmark: Benchmark) -> TripletTable:
    """Return all queries, of data that has nothing to train on."""
    return TripletTable.concat([part.queries for parts in benchmark.splits.values() for part in parts])


def _sample(table: TripletTable, size: int) -> list[Triplet]:
    """Take rows at equal distances, the same each time."""
    size = min(size, len(table))
    return [table[(2 * number + 1) * len(table) // (2 * size)] for number in range(size)]


def _print_facts(benchmark: Benchmark, sample: int) -> None:
    console = Console(highlight=False)
    facts = _facts(benchmark, sample)
    console.print(f"[bold]{escape(benchmark.name)}[/bold]  {escape(str(benchmark.path))}", soft_wrap=True)
    table = Table("split", "category", box=box.SIMPLE_HEAD)
    for title in ("triplets", "gallery", "several answers"):
        table.add_column(title, justify="right")
    for category, count in facts["train"].items():
        table.add_row("train", escape(category), f"{count:,}", "", "")
    for split, categories in facts["splits"].items():
        for category, counts in categories.items():
            numbers = (f"{value:,}" if value else "" for value in counts.values())
            table.add_row(escape(split), escape(category), *numbers)
    console.print(table)
    console.print(f"pictures: {facts['pictures']:,} in {escape(facts['pictures_at'])}", soft_wrap=True)
    console.print(f"scored by the protocol: {escape(facts['protocol'])}", soft_wrap=True)
    console.print(f"licence: {escape(benchmark.licence)}", soft_wrap=True)
    for warning in benchmark.warnings:
        console.print(f"[yellow]warning[/]: {escape(warning)}", soft_wrap=True)
    for triplet in facts["sample"]:
        captions = " / ".join(f'"{caption}"' for caption in triplet["captions"])
        line = f"{triplet['triplet_id']}: {triplet['reference']} + {captions} -> {triplet['target']}"
        console.print(escape(line), soft_wrap=True)
