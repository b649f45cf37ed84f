"""``triptych evaluate``: score a trained model on a split."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from triptych.cli.inputs import CacheOption, CheckpointOption, DataOption, ImagesOption, ModelFolder, data_of
from triptych.cli.progress import stages, warn
from triptych.errors import DataError, UsageError
from triptych.files import atomic_write

if TYPE_CHECKING:
    from triptych.evaluation import Evaluation
    from triptych.triplets import Benchmark

app = typer.Typer(rich_markup_mode="markdown", add_completion=False)

_MEGABYTE = 2**20
_USUAL = ("original", "fixed", "strip_join")


@app.command()
def evaluate(
    model: ModelFolder,
    data: DataOption = None,
    split: Annotated[str, typer.Option(help="Which split of the data.")] = "val",
    checkpoint: CheckpointOption = "best",
    protocol: Annotated[
        str | None,
        typer.Option(
            help="fashioniq quotes the figures with the reference in the gallery, reference-removed those"
            " without, and so do cirr and circo; both are always shown.",
            show_default="the data's own",
        ),
    ] = None,
    category: Annotated[
        list[str] | None,
        typer.Option(help="Score this category only; may be repeated.", show_default="all"),
    ] = None,
    gallery: Annotated[
        Literal["original", "union"],
        typer.Option(
            help="What is searched: all pictures of the split, or only the references and targets of its queries"
            " (FashionIQ's val-split protocol)."
        ),
    ] = "original",
    submission: Annotated[
        Path | None,
        typer.Option(
            "--submission",
            metavar="FOLDER",
            help="Write the files that the server of CIRR or CIRCO scores, check them, and score nothing here.",
            show_default=False,
        ),
    ] = None,
    captions: Annotated[
        Literal["fixed", "reversed", "first", "second"],
        typer.Option(help='How two captions are joined: "A and B", "B and A", A, or B.'),
    ] = "fixed",
    text_style: Annotated[
        Literal["strip_join", "correct"],
        typer.Option(
            help="How captions are cleaned: strip_join as SPRC and TME, correct as INTENT, HABIT and ConeSep"
            " (no punctuation at all)."
        ),
    ] = "strip_join",
    leave_out_missing: Annotated[
        bool,
        typer.Option(
            "--leave-out-missing",
            help="Where pictures are missing, score the queries that are left, and say how many.",
        ),
    ] = False,
    context: Annotated[
        bool,
        typer.Option(
            help="Also score queries by image alone, by text alone, with an empty text, and with an average"
            " reference: what composing adds."
        ),
    ] = True,
    phrasings: Annotated[
        bool,
        typer.Option(
            help="With context, also score the other joins of two captions: what the wording changes."
        ),
    ] = True,
    bootstrap: Annotated[
        int, typer.Option(min=0, help="Draws behind the 95 % intervals; 0 leaves them out.")
    ] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
    by_category: Annotated[
        bool, typer.Option("--by-category", help="A line for each category in place of their mean.")
    ] = False,
    json_file: Annotated[
        str | None,
        typer.Option(
            "--json",
            metavar="FILE|-",
            help="Also write JSON; - prints it and nothing else.",
            show_default="RUN/evaluation-CHECKPOINT.json, of the run's own data",
        ),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown, for a report.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Write the tables to a file instead.", show_default=False
        ),
    ] = None,
    memory_mb: Annotated[
        int,
        typer.Option(min=1, help="What the ranking may hold at once, in MiB; it is exact whatever this is."),
    ] = 256,
    images: ImagesOption = None,
    cache: CacheOption = None,
) -> None:
    """Score a trained model: R@K and, where several right answers are known, mAP@K; or write a server's files.

    FashionIQ, CIRR and CIRCO are scored as their authors do. Every figure is given with the reference image kept
    in the gallery and removed from it, because published tables mix the two. The tables name protocol, gallery,
    model and noise manifest; the JSON holds the same.
    """
    if json_file == "-" and (markdown or out):
        raise UsageError("--json - prints JSON and nothing else: leave out --markdown and -o")
    if submission is not None and (leave_out_missing or category):
        raise UsageError(
            "--submission: the server wants every query; leave out --leave-out-missing and --category"
        )
    benchmark = data_of(model, data, images, gallery=gallery, leave_out_missing=leave_out_missing)
    if category:
        from triptych.training.splits import only_categories

        benchmark = only_categories(benchmark, split, category)
    shared: dict[str, Any] = {
        "split": split,
        "checkpoint": checkpoint,
        "captions": captions,
        "style": text_style,
        "memory_budget_bytes": memory_mb * _MEGABYTE,
        "cache": cache,
    }
    if submission is not None:
        _submit(model, benchmark, submission, shared)
        return
    result = _evaluate(
        model,
        benchmark,
        **shared,
        protocol=protocol,
        context=context,
        phrasings=context and phrasings,
        samples=bootstrap,
        seed=seed,
    )
    if json_file == "-":
        typer.echo(result.model_dump_json(indent=2))
        return
    if json_file is not None:
        result.write(Path(json_file))
    elif data is None and not (leave_out_missing or category) and (gallery, captions, text_style) == _USUAL:
        _keep(result, model / f"evaluation-{checkpoint}.json")
    if out is None:
        _print(result, Console(highlight=False), markdown=markdown, by_category=by_category)
        return
    with atomic_write(out) as file:
        console = Console(file=file, width=120, highlight=False)
        _print(result, console, markdown=markdown, by_category=by_category)


def _evaluate(model: Path, benchmark: Benchmark, **settings: Any) -> Evaluation:
    from triptych.training.evaluate import evaluate as score

    with stages() as bars:
        return score(model, benchmark, progress=lambda d, t: bars("image tokens", d, t), **settings)


def _keep(result: Evaluation, path: Path) -> None:
    """Put the result into the run folder, where `triptych compare` finds it."""
    try:
        result.write(path)
    except DataError as error:
        warn(f"the result is not kept in the run: {error}")


def _submit(model: Path, benchmark: Benchmark, folder: Path, settings: dict[str, Any]) -> None:
    """Write the server's files and check them.

    Raises:
        typer.Exit: a file would be refused.
    """
    from triptych.cli.submission import show
    from triptych.evaluation.submission_check import check_submission
    from triptych.training.submit import submit

    with stages() as bars:
        files = submit(model, benchmark, folder, progress=lambda d, t: bars("image tokens", d, t), **settings)
    reports = [check_submission(path, benchmark) for path in files]
    for report in reports:
        show(report)
    if not all(report.passes for report in reports):
        raise typer.Exit(1)


def _print(result: Evaluation, console: Console, *, markdown: bool, by_category: bool) -> None:
    from triptych.evaluation import rich_table, to_markdown, to_tables
    from triptych.evaluation.tables import provenance

    if markdown:
        console.out(to_markdown(result), end="", highlight=False)
        return
    for table in to_tables(result, by_category=by_category):
        console.print(rich_table(table))
    if by_category:  # else they stand below the first table
        for sentence in provenance(result):
            console.print(sentence, style="italic dim", markup=False, soft_wrap=True)
