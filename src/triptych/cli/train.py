"""``triptych train``: train a method on triplets, or go on with a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from triptych.cli.inputs import RecipeOption, SettingsOption
from triptych.cli.progress import TrainingBar, stages, warn
from triptych.cli.settings import Settings, merge
from triptych.errors import UsageError

if TYPE_CHECKING:
    from triptych.training.run import Run

_QUIET = os.environ.get("RANK", "0") != "0"
"""Whether this is one of several processes and another one speaks for all."""

app = typer.Typer(rich_markup_mode="markdown", add_completion=False)


@app.command()
def train(
    data: Annotated[
        str | None,
        typer.Option(
            "--data", metavar="DATA", help="The data set; see `triptych data check`.", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="RUN", help="The run folder; must be new or empty.", show_default=False
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", metavar="RUN", help="Go on with this run instead.", show_default=False),
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="A method, as `triptych methods` lists them.", show_default="intent")
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="What turns pictures and texts into features.", show_default="that of --init, else lite"
        ),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(
            metavar="MANIFEST", help="Train on noisy triplets: those of this manifest.", show_default=False
        ),
    ] = None,
    noise_curriculum: Annotated[
        str | None,
        typer.Option(
            metavar="RATES",
            help="Less noise at first: rates such as 0.2,0.5,0.8, each for an equal part of the epochs.",
            show_default=False,
        ),
    ] = None,
    drop_noisy: Annotated[
        bool,
        typer.Option("--drop-noisy", help="Leave the manifest's triplets out, as a perfect filter would."),
    ] = False,
    leave_out_missing: Annotated[
        bool,
        typer.Option(
            "--leave-out-missing",
            help="Where pictures are missing, train and validate on what is left, and say how much that is.",
        ),
    ] = False,
    init: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Start from this model, such as `triptych align` writes.",
            show_default=False,
        ),
    ] = None,
    recipe: RecipeOption = None,
    assignments: SettingsOption = None,
    ablate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METHOD.ROW",
            help="A row of a paper's ablation table; `triptych methods ablations` lists them. May be repeated.",
            show_default=False,
        ),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the triplets.", show_default="12")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Triplets a step.", show_default="128")] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Peak learning rate.", show_default="the backbone's own")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="The same seed gives the same model.", show_default="0")
    ] = None,
    images: Annotated[
        str | None, typer.Option(help="Where the pictures are, if not beside the data.", show_default=False)
    ] = None,
    cache: Annotated[
        str | None,
        typer.Option(help="Folder of the image tokens.", show_default="the user's cache folder"),
    ] = None,
) -> None:
    """Train a retrieval model on (reference, text, target) triplets.

    The run folder holds everything: the resolved settings, the noise manifest, metrics, checkpoints and the
    best and last model. Stop it at any time; `triptych train --resume RUN` goes on exactly where it was.

    Settings: `--set` wins over options, options over the recipe, the recipe over defaults.
    `triptych methods show METHOD` lists a method's switches.
    """
    given: dict[str, tuple[str, str, Any]] = {
        "--data": ("data", "path", data),
        "--images": ("data", "images", images),
        "--noise": ("data", "noise", noise),
        "--drop-noisy": ("data", "drop_noisy", drop_noisy or None),
        "--leave-out-missing": ("data", "leave_out_missing", leave_out_missing or None),
        "--noise-curriculum": ("training", "noise_curriculum", _rates(noise_curriculum)),
        "--init": ("data", "init", init),
        "--method": ("method", "name", method),
        "--backbone": ("backbone", "name", backbone),
        "--epochs": ("training", "epochs", epochs),
        "--batch-size": ("training", "batch_size", batch_size),
        "--learning-rate": ("training", "learning_rate", learning_rate),
        "--seed": ("training", "seed", seed),
    }
    if resume is not None:
        others = {"-o": out, "--recipe": recipe, "--set": assignments, "--ablate": ablate}
        values = {**{option: value for option, (*_, value) in given.items()}, **others}
        if refused := [option for option, value in values.items() if value is not None]:
            raise UsageError(f"a run goes on with its own settings: leave out {', '.join(refused)}")
        _show_end(_resume(resume, cache))
        return
    options: dict[str, dict[str, Any]] = {section: {} for section, *_ in given.values()}
    for section, key, value in given.values():
        options[section][key] = value
    options["data"]["cache"] = cache
    settings = merge(recipe, options, assignments or ())
    if "path" not in settings["data"]:
        raise UsageError("say what to train on: --data DATA (`triptych data render DATA` makes some)")
    if out is None:
        raise UsageError("say where the run goes: -o RUN")
    if ablate:
        from triptych.methods.ablations import apply_ablations

        settings["method"] = apply_ablations(ablate, settings["method"])
    _show_end(_train(settings, out))


def _rates(text: str | None) -> list[float] | None:
    try:
        return None if text is None else [float(rate) for rate in text.split(",")]
    except ValueError:
        raise UsageError(f"--noise-curriculum {text}: write rates such as 0.2,0.5,0.8") from None


def _train(settings: Settings, out: Path) -> Run:
    from triptych.training.train import train as start
    from triptych.triplets import read_benchmark
    from triptych.triplets.missing import missing_pictures

    given = settings["data"]
    images = given.get("images")
    benchmark = read_benchmark(given["path"], images=images)
    if not _QUIET:
        warn(*benchmark.warnings)
        if given.get("leave_out_missing"):
            warn(*(f"left out: {line.sentence}" for line in missing_pictures(benchmark)))
    with stages(quiet=_QUIET) as bars:
        return start(
            benchmark,
            out,
            method={"name": "intent", **settings["method"]},
            backbone=settings["backbone"],
            noise=given.get("noise"),
            drop_noisy=given.get("drop_noisy", False),
            leave_out_missing=given.get("leave_out_missing", False),
            init=given.get("init"),
            training=settings["training"],
            images=images,
            cache=given.get("cache"),
            watcher=TrainingBar(bars).watcher(),
            stages=bars,
        )


def _resume(folder: Path, cache: str | None) -> Run:
    from triptych.training.train import resume

    with stages(quiet=_QUIET) as bars:
        return resume(folder, cache=cache, watcher=TrainingBar(bars).watcher(), stages=bars)


def _show_end(run: Run) -> None:
    """Say where the best model is, and what to do with it."""
    if _QUIET:
        return
    validations = [entry for entry in run.metrics() if entry["kind"] == "validation"]
    best = [entry for entry in validations if entry["improved"]][-1]
    figures = best["metrics"]["kept"]
    console = Console(highlight=False)
    console.print(
        f"best model: [bold]{escape(str(run.best))}[/bold] (epoch {best['epoch'] + 1} of {len(validations)};"
        f" R@10 {figures['R@10']:.1f}, R@50 {figures['R@50']:.1f} with the reference kept)",
        soft_wrap=True,
    )
    console.print(f"Next: triptych evaluate {escape(str(run.folder))}", soft_wrap=True)
