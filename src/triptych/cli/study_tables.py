"""``triptych study reproduce``, ``ablate`` and ``sweep``: tables that need trainings."""

from __future__ import annotations

from typing import Annotated

import typer

from triptych.cli.settings import parse_list
from triptych.cli.study_setting import (
    AlignOption,
    BackboneOption,
    DataOptions,
    DryRunOption,
    InitOption,
    JobsOption,
    NoiseOption,
    OutOption,
    SeedOption,
    SetOption,
    TrainOption,
    ValOption,
    read_setting,
    run_layouts,
)
from triptych.errors import UsageError


def reproduce(
    out: OutOption,
    table: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TABLE]...",
            help="Tables such as INTENT-3, or a paper for all of its: INTENT 1-6, ConeSep 1-6, HABIT 1-4.",
            show_default="all 16",
        ),
    ] = None,
    data: DataOptions = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Only the lines of this method; may be repeated.", show_default="all of the table"),
    ] = None,
    noise: NoiseOption = None,
    seed: SeedOption = None,
    backbone: BackboneOption = None,
    init: InitOption = None,
    assignments: SetOption = None,
    jobs: JobsOption = 1,
    dry_run: DryRunOption = False,
    train: TrainOption = 1200,
    val: ValOption = 480,
    align_epochs: AlignOption = 8,
) -> None:
    """Run what the tables of the three papers need, and lay them out as there: OUT/tables/TABLE.md, .csv, .json.

    Stop it at any time; the same command goes on where it stopped. Cells that several tables need are run once. A
    paper's figures stand beside ours, marked as quoted, only where data, galleries, noise and method are the same. A
    cell that is not finished is named, counted and in no mean.

    A first look, some minutes:

        triptych study reproduce INTENT-2 -o study --method rcl --method intent --noise mix:0,0.5 --train 600
            --set training.epochs=3

    The papers' setting (BLIP-2, official data) is the same command with --data FashionIQ --backbone blip2-vitg.
    """
    from triptych.cli.study_measure import write_with_costs
    from triptych.studies.declared_tables import find_tables
    from triptych.studies.reproduce import table_layouts

    tables = find_tables(table or ())
    setting = read_setting(
        out, data, methods=method, noise=noise, seeds=seed, backbones=backbone, init=init,
        assignments=assignments, train=train, val=val, align_epochs=align_epochs,
    )  # fmt: skip
    kept = [(each, table_layouts(each, setting.choice)) for each in tables]
    layouts = [layout for _, own in kept for layout in own]
    if not layouts:
        raise UsageError(
            f"--method {', '.join(method or ())}: no line of {', '.join(t.name for t in tables)}"
        )
    with_cost = [each for each, own in kept if own and each.kind == "efficiency"]
    run_layouts(
        setting,
        layouts,
        jobs=jobs,
        dry_run=dry_run,
        write=lambda study, given: write_with_costs(study, given, with_cost),
    )


def ablate(
    out: OutOption,
    method: Annotated[
        list[str], typer.Argument(metavar="METHOD...", help="intent, conesep or habit.", show_default=False)
    ],
    row: Annotated[
        list[str] | None,
        typer.Option(
            help="A row such as A1; may be repeated; `triptych methods ablations` lists them.",
            show_default="all",
        ),
    ] = None,
    data: DataOptions = None,
    noise: NoiseOption = None,
    seed: SeedOption = None,
    backbone: BackboneOption = None,
    init: InitOption = None,
    assignments: SetOption = None,
    jobs: JobsOption = 1,
    dry_run: DryRunOption = False,
    train: TrainOption = 1200,
    val: ValOption = 480,
    align_epochs: AlignOption = 8,
) -> None:
    """Train a method and each row of its ablation tables, and say how far each row is from the full method.

    The differences are paired by query, with bootstrap intervals. Noise: mix 0.2, as in the papers, unless --noise
    says otherwise. Tables: OUT/tables/ablate-METHOD.md, .csv, .json.
    """  # fmt: skip
    from triptych.studies.reproduce import ablation_layouts

    setting = read_setting(
        out, data, methods=method, noise=noise, seeds=seed, backbones=backbone, init=init,
        assignments=assignments, train=train, val=val, align_epochs=align_epochs,
    )  # fmt: skip
    layouts = [layout for name in method for layout in ablation_layouts(name, row or (), setting.choice)]
    run_layouts(setting, layouts, jobs=jobs, dry_run=dry_run)


def sweep(
    out: OutOption,
    preset: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PRESET]...",
            help="A sweep of the papers: conesep.omega, .kappa, .zeta, .nu, .gamma, .K; habit.kappa, .gamma;"
            " intent.mu-alpha.",
            show_default=False,
        ),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SECTION.KEY=VALUES",
            help="Any other setting: method.alpha=0.2,0.4,0.6; of two of them every pair is run. Needs --method.",
            show_default=False,
        ),
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Whose settings --vary means.", show_default=False)
    ] = None,
    data: DataOptions = None,
    noise: NoiseOption = None,
    seed: SeedOption = None,
    backbone: BackboneOption = None,
    init: InitOption = None,
    assignments: SetOption = None,
    jobs: JobsOption = 1,
    dry_run: DryRunOption = False,
    train: TrainOption = 1200,
    val: ValOption = 480,
    align_epochs: AlignOption = 8,
) -> None:
    """Train a method over values of a setting: how much does the result hang on it?

    A preset takes the papers' values; where their text prints only the best one, even steps around it, and the table
    says so. Noise: mix 0.2, as in the papers, unless --noise says otherwise. Tables: OUT/tables/sweep-NAME.md.
    """
    from triptych.studies.sweep import find_sweep, own_sweep, sweep_layouts

    sweeps = [find_sweep(name) for name in preset or ()]
    if vary:
        if method is None:
            raise UsageError("--vary needs --method: whose settings are these?")
        sweeps.append(own_sweep(method, dict(parse_list(each) for each in vary)))
    elif method is not None:
        raise UsageError("--method goes with --vary; a preset knows its method")
    if not sweeps:
        raise UsageError(
            "name a preset, or settings with --vary (`triptych study sweep --help` lists the presets)"
        )
    setting = read_setting(
        out, data, methods=[each.method for each in sweeps], noise=noise, seeds=seed, backbones=backbone,
        init=init, assignments=assignments, train=train, val=val, align_epochs=align_epochs,
    )  # fmt: skip
    layouts = [layout for each in sweeps for layout in sweep_layouts(each, setting.choice)]
    run_layouts(setting, layouts, jobs=jobs, dry_run=dry_run)
