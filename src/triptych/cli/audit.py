"""``triptych audit``: find wrong triplets, say which part, clean the data, and score an audit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer.core import TyperGroup

from triptych.cli.inputs import CacheOption, ImagesOption, JsonOption
from triptych.cli.progress import Stages, TrainingBar, stages, warn
from triptych.cli.settings import parse_assignment
from triptych.errors import UsageError

if TYPE_CHECKING:
    from triptych.audit.api import Audit
    from triptych.training.loop import Watcher

OVER_LIMIT = 3
"""The exit code where more triplets are wrong than ``--fail-over`` allows."""


class _RunByDefault(TyperGroup):
    """Lets ``triptych audit DATA`` stand for ``triptych audit run DATA``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_RunByDefault,
    help="Find triplets that are wrong, which part of them, and what would be right.\n\n"
    "`triptych audit DATA -o AUDIT` is short for `triptych audit run DATA -o AUDIT`.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
)

AuditFolder = Annotated[
    Path, typer.Argument(metavar="AUDIT", help="The folder that an audit wrote.", show_default=False)
]
DataPath = Annotated[
    Path,
    typer.Argument(metavar="DATA", help="The data set; its files are never changed.", show_default=False),
]
NoiseOption = Annotated[
    Path | None,
    typer.Option(
        "--noise",
        metavar="MANIFEST",
        help="Corrupt the triplets first, for benchmarks; the audit never learns which.",
        show_default=False,
    ),
]


@app.command()
def run(
    data: DataPath,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="AUDIT", help="The folder of the audit.", show_default=False),
    ],
    noise: NoiseOption = None,
    runs: Annotated[
        list[Path] | None,
        typer.Option(
            "--run",
            metavar="RUN",
            help="A run that was trained on these triplets: how far it trusted them counts too. May be repeated.",
            show_default=False,
        ),
    ] = None,
    init: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Start the models from this one, as `triptych align` writes.",
            show_default=False,
        ),
    ] = None,
    captions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="Captions of single pictures, to align a model on first.",
            show_default=False,
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--by", metavar="COLUMN", help="Also count by this column, such as annotator.", show_default=False
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="folds, rounds, methods, seeds, epochs, batch_size, learning_rate, probes, swaps, flag_at, seed, or"
            " backbone.KEY. May be repeated.",
            show_default=False,
        ),
    ] = None,
    fail_over: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help=f"Exit with code {OVER_LIMIT} where a larger share is wrong, as 2%; writes AUDIT/audit.sarif.",
            show_default=False,
        ),
    ] = None,
    report: Annotated[bool, typer.Option(help="Write the page for review, AUDIT/report.html.")] = True,
    images: ImagesOption = None,
    cache: CacheOption = None,
) -> None:
    """Find triplets that are wrong, which part of them, and what would be right.

    Rules find what needs no model. Small models are trained on all folds but one and judge that one, in two rounds; a
    classifier that is trained on triplets made wrong on purpose turns what they say into chances. 12,000 triplets
    take half an hour on two cores; stop it at any time, the same command goes on.

    Writes `verdicts.parquet` (a row a triplet), `summary.json` and `report.html`, to look at and to decide in.
    """
    from triptych.audit.gate import gate, parse_share, write_sarif

    limit = parse_share(fail_over) if fail_over is not None else None
    settings = _settings(assignments or [])
    from triptych.audit.api import audit
    from triptych.training.loop import Interrupted
    from triptych.triplets import read_benchmark

    benchmark = read_benchmark(data, images=images)
    warn(*benchmark.warnings)
    with stages() as bars:
        try:
            found = audit(
                benchmark,
                folder=out,
                noise=noise,
                runs=runs or (),
                init=init,
                captions=captions,
                source=source,
                settings=settings,
                cache=cache,
                stages=bars,
                watch=lambda name: _watch(bars, name),
            )
        except Interrupted:
            raise Interrupted("stopped; nothing is lost. Go on with the same command.") from None
        if report:
            from triptych.audit.report import write_report

            write_report(out / "report.html", found.verdicts, found.summary, benchmark.images, stages=bars)
    _show(found, out, report=report)
    if limit is not None:
        result = gate(found.verdicts, found.summary, limit)
        write_sarif(out / "audit.sarif", found.verdicts, result)
        Console(highlight=False).print(escape(result.sentence), soft_wrap=True)
        if not result.passes:
            raise typer.Exit(OVER_LIMIT)


@app.command()
def apply(
    data: DataPath,
    verdicts: Annotated[
        Path,
        typer.Option(
            metavar="AUDIT", help="The audit's folder, or its verdicts.parquet.", show_default=False
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="CLEAN", help="A new folder.", show_default=False)
    ],
    decisions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="decisions.json that the report exported; a decision wins.",
            show_default=False,
        ),
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Leave flagged triplets out.")] = False,
    fix: Annotated[
        bool,
        typer.Option("--fix", help="Replace the wrong part by the best proposal where that is sure enough."),
    ] = False,
    weight: Annotated[
        bool, typer.Option("--weight", help="Keep all triplets, with their score as a field `weight`.")
    ] = False,
    noise: NoiseOption = None,
    images: ImagesOption = None,
) -> None:
    """Write the data again without its wrong triplets, or with them mended; the input stays as it is.

    The result has the input's format; `changes.jsonl` in it lists each change. `--fix` may be given with `--drop` or
    `--weight`, which then do what cannot be fixed. With decisions alone, only what was decided is done.
    """
    from triptych.audit.changes import check_modes, check_same_data, plan_changes, read_decisions
    from triptych.audit.clean import write_cleaned
    from triptych.audit.verdicts import Verdicts
    from triptych.noise import NoiseManifest
    from triptych.triplets import read_benchmark

    given = {"drop": drop, "fix": fix, "weight": weight}
    modes = check_modes([name for name, asked in given.items() if asked])
    if not modes and decisions is None:
        raise UsageError(
            "say what to do with flagged triplets: --drop, --fix or --weight, or give --decisions"
        )
    benchmark = read_benchmark(data, images=images)
    manifest = NoiseManifest.read(noise, benchmark.train) if noise is not None else None
    read = Verdicts.read(verdicts)
    check_same_data(read, manifest.apply(benchmark.train) if manifest else benchmark.train, data)
    changes = plan_changes(read, modes, read_decisions(decisions) if decisions else None)
    cleaned = write_cleaned(benchmark, changes, out, noise=manifest)
    warn(*cleaned.notes)
    console = Console(highlight=False)
    counts = ", ".join(f"{count:,} {_DONE[action]}" for action, count in sorted(cleaned.counts.items()))
    console.print(
        f"{counts or 'nothing to change'}: [bold]{escape(str(cleaned.path))}[/bold]", soft_wrap=True
    )
    console.print(f"each change: {escape(str(cleaned.log))}", soft_wrap=True)


@app.command()
def score(
    audit: AuditFolder,
    manifest: Annotated[
        Path,
        typer.Option("--manifest", metavar="MANIFEST", help="What was made wrong.", show_default=False),
    ],
    data: Annotated[
        Path | None,
        typer.Option("--data", help="The clean data.", show_default="the data that was audited"),
    ] = None,
    attributes: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="A folder with attributes.csv and changed_fields.train.json: a second truth.",
            show_default=False,
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw said against true chances (.png, .svg).", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say how well an audit found what a noise manifest made wrong.

    With `--attributes`, moved texts that happen to name the right values are counted as right, and proposals are
    compared with the labels of the pictures.
    """
    from triptych.audit.score_folder import score_folder

    figures = score_folder(audit, manifest, data=data, attributes=attributes)
    if plot is not None:
        from triptych.audit.score_folder import draw_reliability

        draw_reliability(figures["reliability"], plot)
    if as_json:
        typer.echo(json.dumps(figures, indent=2))
        return
    _show_score(figures)


_DONE = {"drop": "dropped", "fix": "fixed", "weight": "weighted", "keep": "flagged and kept"}


def _settings(assignments: list[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    backbone: dict[str, Any] = {}
    for text in assignments:
        key, value = parse_assignment(text)
        if key.startswith("backbone."):
            backbone[key.removeprefix("backbone.")] = value
        elif key in ("methods", "seeds") and not isinstance(value, list):
            settings[key] = [value]
        else:
            settings[key] = value
    if backbone:
        settings["backbone"] = {"name": "lite", **backbone}
    return settings


def _watch(bars: Stages, name: str) -> Watcher:
    from triptych.training.loop import Watcher

    bar = TrainingBar(bars, f"training {name}").watcher()
    return Watcher(on_step=bar.on_step)


def _show(found: Audit, out: Path, *, report: bool) -> None:
    console, summary = Console(highlight=False), found.summary
    warn(*summary["notes"])
    table = Table("category", box=box.SIMPLE_HEAD)
    for title in ("triplets", "flagged", "wrong, estimated", "95 % interval"):
        table.add_column(title, justify="right")
    groups = {**summary["by_category"], **summary.get("by_source", {})}
    for name, group in [*groups.items(), ("all", summary)]:
        wrong = group["wrong"]
        table.add_row(
            escape(name),
            f"{group['triplets']:,}",
            f"{group['flagged']:,}",
            f"{wrong['share']:.1%}",
            f"{wrong['low']:.1%} to {wrong['high']:.1%}",
        )
    console.print(table)
    if summary["rules"]:
        rules = Table("rule", "weight", box=box.SIMPLE_HEAD)
        rules.add_column("triplets", justify="right")
        rules.add_column("means")
        for rule, said in summary["rules"].items():
            rules.add_row(rule, said["weight"], f"{said['triplets']:,}", said["means"])
        console.print(rules)
    console.print(f"verdicts: [bold]{escape(str(out / 'verdicts.parquet'))}[/bold]", soft_wrap=True)
    if report:
        console.print(f"look and decide: {escape(str(out / 'report.html'))}", soft_wrap=True)


def _show_score(figures: dict[str, Any]) -> None:
    console = Console(highlight=False)
    table = Table("", box=box.SIMPLE_HEAD, show_header=False)
    table.add_column(justify="right")

    def line(name: str, value: Any, form: str = ".3f") -> None:
        table.add_row(name, "-" if value is None else format(value, form))

    line("triplets", figures["triplets"], ",")
    line("wrong", figures["wrong"], ",")
    for name in ("auroc", "average_precision"):
        line(name, figures[name])
    for budget, value in figures["precision_at"].items():
        line(f"precision of the worst {budget}", value)
    line("recall at 90 % precision", figures["recall_at_90_precision"])
    line("precision of the flags", figures["flag_precision"])
    line("recall of the flags", figures["flag_recall"])
    line("share of wrong, estimated", figures["estimated_rate"], ".1%")
    line("share of wrong, true", figures["true_rate"], ".1%")
    line("Brier score", figures["brier"])
    line("corner named right, of flagged wrong ones", figures["corner_accuracy"])
    for name, value in figures.items():
        if name.startswith("right_"):
            line(f"{name.replace('_', ' ')} among five", value["share"])
    console.print(table)
    kinds = Table("wrong field", box=box.SIMPLE_HEAD)
    for title in ("wrong", "AUROC", "AP", "flagged", "corner right"):
        kinds.add_column(title, justify="right")
    for kind, found in figures["by_kind"].items():
        values = (found["auroc"], found["average_precision"], found["found"], found["corner_accuracy"])
        kinds.add_row(kind, f"{found['wrong']:,}", *("-" if v is None else f"{v:.3f}" for v in values))
    console.print(kinds)
    bins = Table("said to be wrong", box=box.SIMPLE_HEAD)
    for title in ("triplets", "mean said", "really wrong"):
        bins.add_column(title, justify="right")
    for each in figures["reliability"]:
        bins.add_row(
            f"{each['low']:.1f} to {each['high']:.1f}",
            f"{each['triplets']:,}",
            f"{each['said']:.3f}",
            f"{each['was']:.3f}",
        )
    console.print(bins)
