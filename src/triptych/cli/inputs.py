"""Arguments and options that several verbs share, and the data that a trained model goes with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from triptych.cli.progress import warn
from triptych.errors import UsageError
from triptych.triplets import Benchmark, read_benchmark
from triptych.triplets.reader import Gallery

ModelFolder = Annotated[
    Path,
    typer.Argument(
        metavar="RUN", help="A run folder, or a model folder such as RUN/last.", show_default=False
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DATA", help="The data set.", show_default="the one the run was trained on"
    ),
]
ImagesOption = Annotated[
    Path | None,
    typer.Option("--images", help="Where the pictures are, if not beside the data.", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else, for scripts.")]
RecipeOption = Annotated[
    str | None,
    typer.Option(
        "--recipe", metavar="FILE_OR_NAME", help="Settings as TOML, or a recipe's name.", show_default=False
    ),
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        help="Any setting of the sections method, training, backbone and data. May be repeated.",
        show_default=False,
    ),
]
CheckpointOption = Annotated[str, typer.Option("--checkpoint", help="Which model of the run: best or last.")]
CacheOption = Annotated[
    Path | None,
    typer.Option("--cache", help="Folder of the image tokens.", show_default="the user's cache folder"),
]


def data_of(
    model: Path,
    data: Path | None,
    images: Path | None,
    *,
    gallery: Gallery = "original",
    leave_out_missing: bool = False,
) -> Benchmark:
    """Read the data that is named, or else what the run was trained on; say what is odd about it.

    Raises:
        UsageError: no data is named and ``model`` is no run.
        DataError: the data cannot be used.
    """
    if data is None:
        from triptych.training.model import WEIGHTS
        from triptych.training.run import Run

        if not model.exists():
            raise UsageError(f"{model}: there is no such folder")
        if (model / WEIGHTS).is_file():
            raise UsageError(f"say which data: --data DATA ({model} is a model, no run, and knows of none)")
        config = Run.open(model)[1]
        data = Path(config.data)
        images = images or (Path(config.images) if config.images else None)
    benchmark = read_benchmark(data, images=images, gallery=gallery, leave_out_missing=leave_out_missing)
    warn(*benchmark.warnings)
    return benchmark
