"""``triptych demo``: from noisy triplets to a report, in one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from triptych.cli.progress import TrainingBar, stages

app = typer.Typer(rich_markup_mode="markdown", add_completion=False)


@app.command()
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for data, runs and the report.")
    ] = Path("demo"),
    data: Annotated[
        Path | None,
        typer.Option(help="Your own data set, with captions.csv or attributes.csv; else one is drawn."),
    ] = None,
    ratio: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the training triplets made wrong.")
    ] = 0.5,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs of each method.")] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="Methods to compare; may be given several times.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of drawing and training.")] = 0,
) -> None:
    """Show what wrong triplets do to training: a table, learning curves, and queries with their hits.

    Draws a benchmark (or takes --data), makes half of its training triplets wrong, trains a naive method and a robust
    one from the same aligned start, scores the best and the last epoch of both, and writes report.html. At the end it
    builds a small gallery to try in a browser with `triptych serve`.
    Interrupted? Run it again: what is finished is kept.
    """
    from triptych.studies.demo import DemoSettings, run_demo
    from triptych.studies.demo_gallery import GALLERY, missing_packages

    chosen: dict[str, Any] = {"ratio": ratio, "seed": seed}
    if data is not None:
        chosen |= {"data": str(data), "epochs": 8, "batch_size": 128}
    if epochs is not None:
        chosen["epochs"] = epochs
    if method:
        chosen["methods"] = tuple(method)
    with stages() as bars:
        report = run_demo(
            output,
            DemoSettings(**chosen),
            stages=bars,
            watch=lambda name: TrainingBar(bars, name).watcher(),
        )
    typer.echo(f"Report: {report.resolve()}")
    typer.echo(
        f'Search it: triptych search {output / "intent"} --data {data or output / "data"} --text "..." --reference ID'
    )
    if missing_packages():
        typer.echo(
            'Try it in a browser: pip install "triptych[search,serve]", and run this again; the rest is kept.'
        )
    else:
        typer.echo(f"Try it in a browser: triptych serve {output / GALLERY}")
