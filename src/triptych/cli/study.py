"""``triptych study``: many trainings at once, for comparisons."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from triptych.cli.study_measure import claims, efficiency
from triptych.cli.study_setting import read_assignments
from triptych.cli.study_tables import ablate, reproduce, sweep
from triptych.errors import UsageError

app = typer.Typer(
    help="Run many trainings and compare them.",
    rich_markup_mode="markdown",
    add_completion=False,
    no_args_is_help=True,
)


@app.callback()
def study() -> None:
    """Run many trainings and compare them; each study can be stopped and started again."""


@app.command()
def grid(
    data: Annotated[Path, typer.Argument(help="The data set.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the study; a finished cell is kept.")],
    method: Annotated[
        list[str] | None,
        typer.Option(help="A method; may be repeated.", show_default="all"),
    ] = None,
    noise: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND:RATES",
            help="Noise such as mix:0,0.2 or hard:0.5; oracle:mix:0.5 leaves the wrong triplets out. May be repeated.",
            show_default="mix:0,0.5",
        ),
    ] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Seeds; may be repeated.", show_default="0")] = None,
    init: Annotated[
        Path | None, typer.Option(help="Start each cell from this model, such as `triptych align` writes.")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SECTION.KEY=VALUE",
            help="A setting of `training`, or of a method by its name: intent.counterfactual_bank=4. May be repeated.",
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Cells at once; they share the cores.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cells and run nothing.")] = False,
) -> None:
    """Train methods x noise x seeds on one data set, and write a table: recall, and how well noise was found.

    Each cell is a run folder. Stop it at any time; the same command goes on where it stopped. A cell that fails is
    named at the end, and the others are finished. The table is OUT/grid.md; manifests that the data set does not
    bring (noise/KIND-RATE-seed42.json) are made in OUT/noise.
    """
    from triptych.methods import registry
    from triptych.studies import grid as study_grid
    from triptych.studies.cells import Cell, parse_noise

    levels = [level for text in noise or ["mix:0,0.5"] for level in parse_noise(text)]
    methods = method or list(registry.names())
    for name in methods:
        registry.get(name)
    training, backbone, switches = read_assignments(assignments or (), registry.names())
    if backbone:
        raise UsageError("--set backbone: a grid has none; `triptych study reproduce` and `sweep` have")
    for name in methods:
        registry.configure(name, switches.get(name, {}))
    cells = tuple(Cell(name, level, each) for level in levels for each in seed or [0] for name in methods)
    plan = study_grid.make_grid(data, out, cells, init, training, switches)
    console = Console(highlight=False)
    done = {cell for cell in cells if plan.is_done(cell)}
    if dry_run:
        for cell in cells:
            console.print(f"{cell.name}  {'done' if cell in done else 'to run'}", soft_wrap=True)
        return
    console.print(f"{len(cells)} cells, {len(done)} of them done; {jobs} at once")
    count = len(done)

    def told(cell: Cell, seconds: float) -> None:
        nonlocal count
        count += 1
        console.print(f"{count}/{len(cells)}  {cell.name}  {seconds:.0f} s", soft_wrap=True)

    study_grid.run_grid(plan, jobs=jobs, told=told)
    console.print(f"table: {out / 'grid.md'}", soft_wrap=True)


for verb in (reproduce, ablate, sweep, efficiency, claims):
    app.command()(verb)
