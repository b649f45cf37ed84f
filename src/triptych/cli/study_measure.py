"""``triptych study efficiency`` and ``claims``: what is measured on methods and trained models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from triptych.cli.progress import stages
from triptych.cli.study_setting import (
    AlignOption,
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
    write_layouts,
)
from triptych.errors import UsageError

if TYPE_CHECKING:
    from triptych.studies.cells import Study
    from triptych.studies.declared_tables import PaperTable
    from triptych.studies.layout import Layout, Report
    from triptych.studies.measure_cost import Request


def efficiency(
    out: OutOption,
    variant: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[METHOD[.ROW]]...",
            help="Methods, or ablation rows such as intent.A1.",
            show_default="sprc tme intent.A1 intent conesep habit.D6 habit",
        ),
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="The backbone.", show_default="that of --init, else lite")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=2, help="Triplets a step.")] = 128,
    steps: Annotated[int, typer.Option(min=1, help="Training steps that are timed in each phase.")] = 50,
    queries: Annotated[int, typer.Option(min=32, help="Queries that are timed, at batch 1 and at 32.")] = 200,
    gallery: Annotated[int, typer.Option(min=1, help="Images that a query is scored against.")] = 2297,
    cached: Annotated[
        bool,
        typer.Option("--cached", help="Image tokens are there already; else each step encodes pictures."),
    ] = False,
    measure: Annotated[bool, typer.Option(help="Measure times and memory; else count only.")] = True,
    recall: Annotated[
        bool, typer.Option(help="Train each line at mix 0.2 for the recall columns; else they are left out.")
    ] = True,
    data: DataOptions = None,
    noise: NoiseOption = None,
    seed: SeedOption = None,
    init: InitOption = None,
    assignments: SetOption = None,
    jobs: JobsOption = 1,
    dry_run: DryRunOption = False,
    train: TrainOption = 1200,
    val: ValOption = 480,
    align_epochs: AlignOption = 8,
) -> None:
    """Say what methods cost beside what they find: counts, memory, seconds, recall; OUT/tables/efficiency.md.

    Multiply-accumulates and parameters are counted both as papers print them (module hooks on one triplet's training
    forward) and as they are. Every line is measured in a process of its own, one after the other, and kept. A recall
    column a data set: its protocol's average, the reference removed.
    """
    from triptych.studies.efficiency import VARIANTS
    from triptych.studies.layout import Layout
    from triptych.studies.reproduce import label_of, variant_lines

    chosen = list(dict.fromkeys(variant or VARIANTS))
    check_variants(chosen)
    setting = read_setting(
        out, data, noise=noise, seeds=seed, backbones=[backbone] if backbone else None, init=init,
        assignments=assignments, train=train, val=val, align_epochs=align_epochs,
    )  # fmt: skip
    layouts = [
        Layout(
            "efficiency",
            "recall of the lines above",
            variant_lines(chosen, name, setting.choice),
            quote=False,
        )
        for name in setting.choice.data
    ]

    def write(study: Study, given: Sequence[Layout]) -> Sequence[Path]:
        name = str({**_start(study), **study.backbone}.get("name", "lite"))
        settings = {**_start(study), **study.backbone, **({"name": backbone} if backbone else {"name": name})}
        request = _request(
            settings, batch_size=batch_size, steps=steps, queries=queries, gallery=gallery, live=not cached
        )
        report = _costs(study, chosen, request, measured=measure, recalls=given if recall else ())
        return write_layouts(study, given if recall else (), {"efficiency": [report]})

    if recall:
        run_layouts(setting, layouts, jobs=jobs, dry_run=dry_run, write=write)
        return
    console = Console(highlight=False)
    if dry_run:
        for name in chosen:
            console.print(label_of(name))
        return
    for path in write(setting.study(()), ()):
        console.print(f"table: {path}", soft_wrap=True)


def check_variants(names: Sequence[str]) -> None:
    """Raise ``UsageError`` where a method or an ablation row ``METHOD.ROW`` is unknown."""
    from triptych.methods import registry
    from triptych.methods.ablations import ablations

    known = dict(ablations())
    for name in names:
        registry.get(name.partition(".")[0])
        if "." in name and name not in known:
            raise UsageError(f'there is no ablation row "{name}"; `triptych methods ablations` lists them')


def write_with_costs(study: Study, layouts: Sequence[Layout], tables: Sequence[PaperTable]) -> Sequence[Path]:
    """Write layouts; those of the papers' cost tables have the counted costs before them."""
    before: dict[str, Sequence[Report]] = {}
    for table in tables:
        request = _request({"name": "lite", **_start(study), **study.backbone, **_named(study)})
        own = [layout for layout in layouts if layout.name == table.name]
        wanted = [name for name in table.variants if any(_has(layout, name) for layout in own)]
        report = _costs(
            study,
            wanted,
            request,
            measured=False,
            recalls=own,
            name=table.name,
            printed=table.quoted,
            source=f"{table.paper} table {table.number}",
            notes=("`triptych study efficiency` measures seconds and memory too.",),
        )
        before[table.name] = [report]
    return write_layouts(study, layouts, before)


def _costs(
    study: Study,
    variants: Sequence[str],
    request: Request,
    *,
    measured: bool,
    recalls: Sequence[Layout],
    **shown: Any,
) -> Report:
    from triptych.studies.efficiency import cost_report, count_cost, measure, method_settings
    from triptych.studies.layout import recall_columns

    costs = []
    with Console(stderr=True).status("counting") as status:
        for variant in variants:
            switches = study.switches.get(variant.partition(".")[0], {})
            status.update(f"counting {variant}")
            cost = count_cost(variant, request.backbone, switches, request.batch_size)
            own = request.model_copy(update={"method": method_settings(variant, switches)})
            if measured:
                status.update(f"measuring {variant}")
                cost = replace(cost, measured=measure(study.folder / "costs", variant, own))
            costs.append(cost)
    columns = recall_columns(study, recalls)
    return cost_report(costs, request, recalls=lambda variant: columns.get(variant, {}), **shown)


def _request(backbone: Mapping[str, Any], **values: Any) -> Request:
    from triptych.studies.measure_cost import Request

    return Request(method={}, backbone=dict(backbone), **values)


def _start(study: Study) -> dict[str, Any]:
    """Return the backbone of the start model, where there is one."""
    from triptych.training.model import WEIGHTS, model_folder, read_settings

    if study.init is None or not (model_folder(study.init) / WEIGHTS).is_file():
        return {}
    return dict(read_settings(model_folder(study.init))["backbone"])


def _named(study: Study) -> dict[str, Any]:
    names = {cell.backbone for cell in study.cells if cell.backbone}
    return {"name": names.pop()} if len(names) == 1 else {}


def _has(layout: Layout, variant: str) -> bool:
    return any((cell.row or cell.method) == variant for line in layout.lines for cell in line.cells)


def claims(
    out: OutOption,
    claim: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CLAIM]...",
            help="references: recall when the reference pictures are altered at test time (INTENT). backlash: recall"
            " near wrong triplets before and after unlearning (ConeSep). terms: gradients of each loss term.",
            show_default="all",
        ),
    ] = None,
    data: DataOptions = None,
    variant: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            metavar="METHOD[.ROW]",
            help="In place of the claim's own methods (not of backlash); may be repeated.",
            show_default="references: rcl, intent.A1, intent; terms: habit, intent, conesep",
        ),
    ] = None,
    noise: NoiseOption = None,
    seed: SeedOption = None,
    init: InitOption = None,
    assignments: SetOption = None,
    jobs: JobsOption = 1,
    dry_run: DryRunOption = False,
    train: TrainOption = 1200,
    val: ValOption = 480,
    align_epochs: AlignOption = 8,
) -> None:
    """Measure what the papers argue and never measured; OUT/tables/claims-CLAIM.md, .csv, .json.

    references: queries with spectrum mix, blur and jitter of several strengths and, on the drawn benchmark, the same
    things over other backgrounds. backlash: ConeSep at the end of its first phase, at its end, without unlearning,
    and with the wrong triplets left out (masking only). terms: a term below 1 % of the largest gradient is named.
    Noise: mix 0.2 unless --noise says otherwise.
    """
    from triptych.studies.claims import CLAIMS, claim_lines, claim_report
    from triptych.studies.layout import Layout
    from triptych.studies.write_reports import write_reports

    if unknown := [name for name in claim or () if name not in CLAIMS]:
        raise UsageError(f'there is no claim "{unknown[0]}"; there are: {", ".join(CLAIMS)}')
    chosen = [name for name in CLAIMS if not claim or name in claim]
    check_variants(variant or ())
    setting = read_setting(
        out, data, noise=noise, seeds=seed, init=init, assignments=assignments, train=train, val=val,
        align_epochs=align_epochs,
    )  # fmt: skip
    choice = replace(setting.choice, methods=tuple(variant or ()))
    layouts = [
        Layout(f"claims-{name}", CLAIMS[name], lines, quote=False)
        for name in chosen
        for each in choice.data
        if (lines := claim_lines(name, each, choice, setting.training))
    ]
    if not layouts:
        raise UsageError("backlash needs noise: give --noise mix:0.2 or another rate above 0")

    def write(study: Study, given: Sequence[Layout]) -> Sequence[Path]:
        reports: dict[str, list[Report]] = {}
        with stages() as bars:
            for layout in given:
                name = next(each for each in CLAIMS if layout.name == f"claims-{each}")
                own = claim_report(name, study, layout.lines, progress=bars)
                reports.setdefault(layout.name, []).append(own)
        return [write_reports(study.folder, name, own) for name, own in reports.items()]

    run_layouts(setting, layouts, jobs=jobs, dry_run=dry_run, write=write)
