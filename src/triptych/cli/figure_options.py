"""What the commands of ``triptych figure`` share: arguments, opened runs, and how a figure is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from triptych.cli.progress import stages, warn
from triptych.errors import UsageError

if TYPE_CHECKING:
    from triptych.evaluation.comparison import Result
    from triptych.studies.figures.opened_run import OpenedRun
    from triptych.triplets import Benchmark

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.", show_default=False)]
OneRun = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)]
Results = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...",
        help="Folders of evaluated runs or of grids, or JSON files of `triptych evaluate --json`.",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="STEM", help="Where to write STEM.png, STEM.svg and STEM.json.",
        show_default="figures/NAME",
    ),
]  # fmt: skip
Split = Annotated[str, typer.Option(help="Which split of the data the queries are of.")]
Seed = Annotated[
    int, typer.Option(min=0, help="Seed of what is drawn at random; the same seed, the same figure.")
]
Metric = Annotated[str, typer.Option(help="Such as R@10, R@50 or mAP@5.")]
Side = Annotated[
    Literal["kept", "removed"] | None,
    typer.Option(
        "--reference",
        help="With the reference in the gallery or out of it.",
        show_default="the protocol's headline",
    ),
]


@contextmanager
def opened_runs(
    runs: Sequence[Path], benchmark: Benchmark, checkpoint: str, cache: Path | None
) -> Iterator[list[OpenedRun]]:
    """Open runs on a data set, with bars while pictures are encoded."""
    from triptych.studies.figures.opened_run import OpenedRun

    with stages() as bars:
        yield [
            OpenedRun.open(
                run,
                benchmark,
                checkpoint=checkpoint,
                cache=cache,
                progress=lambda done, total: bars("image tokens", done, total),
            )
            for run in runs
        ]


def results_of(runs: Sequence[Path], checkpoint: str) -> list[Result]:
    """Read the results of runs, and name those that have none.

    Raises:
        UsageError: none has one.
    """
    from triptych.studies.collect_runs import collect

    found, unfinished = collect(runs, checkpoint=checkpoint)
    warn(*(f"{each.name} is left out: {each.reason}" for each in unfinished))
    if not found:
        raise UsageError("none of these runs has a result")
    return found


def write(name: str, drawing: Any, out: Path | None, numbers: Any, *notes: str) -> None:
    """Write a figure and its numbers, and print where."""
    from triptych.studies.figures.canvas import write_figure

    console = Console(highlight=False)
    for path in write_figure(drawing, out or Path("figures") / name, name, numbers, notes):
        console.print(str(path), soft_wrap=True, markup=False)
