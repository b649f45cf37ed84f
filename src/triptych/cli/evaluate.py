"""``triptych evaluate``: score a trained model on a split."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from triptych.cli.inputs import CacheOption, CheckpointOption, DataOption, ImagesOption, ModelFolder, data_of
from triptych.cli.progress import stages
from triptych.errors import UsageError
from triptych.files import atomic_write

if TYPE_CHECKING:
    from triptych.evaluation import Evaluation

app = typer.Typer(rich_markup_mode="markdown", add_completion=False)

_MEGABYTE = 2**20


@app.command()
def evaluate(
    model: ModelFolder,
    data: DataOption = None,
    split: Annotated[str, typer.Option(help="Which split of the data.")] = "val",
    checkpoint: CheckpointOption = "best",
    protocol: Annotated[
        str,
        typer.Option(
            help="fashioniq quotes the figures with the reference in the gallery, reference-removed those"
            " without; both are always shown."
        ),
    ] = "fashioniq",
    context: Annotated[
        bool,
        typer.Option(
            help="Also score queries by image alone, by text alone, with an empty text, and with an average"
            " reference: what composing adds."
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
            show_default=False,
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
    """Score a trained model: R@K and, where several right answers are known, mAP@K.

    Every figure is given with the reference image kept in the gallery and removed from it, because published
    tables mix the two. The tables name protocol, gallery, model and noise manifest; the JSON holds the same.
    """
    if json_file == "-" and (markdown or out):
        raise UsageError("--json - prints JSON and nothing else: leave out --markdown and -o")
    result = _evaluate(
        model,
        data,
        images,
        split=split,
        checkpoint=checkpoint,
        protocol=protocol,
        context=context,
        samples=bootstrap,
        seed=seed,
        memory_budget_bytes=memory_mb * _MEGABYTE,
        cache=cache,
    )
    if json_file == "-":
        typer.echo(result.model_dump_json(indent=2))
        return
    if json_file is not None:
        result.write(Path(json_file))
    if out is None:
        _print(result, Console(highlight=False), markdown=markdown, by_category=by_category)
        return
    with atomic_write(out) as file:
        console = Console(file=file, width=120, highlight=False)
        _print(result, console, markdown=markdown, by_category=by_category)


def _evaluate(model: Path, data: Path | None, images: Path | None, **settings: Any) -> Evaluation:
    from triptych.training.evaluate import evaluate as score

    benchmark = data_of(model, data, images)
    with stages() as bars:
        return score(model, benchmark, progress=lambda d, t: bars("image tokens", d, t), **settings)


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
