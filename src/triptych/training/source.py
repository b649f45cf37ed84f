"""What evaluation and search are given: a Run, the folder of a run or a model, or a loaded Model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from triptych.errors import DataError, UsageError
from triptych.training.model import CONFIG, WEIGHTS, Model, load_model
from triptych.training.run import Run

Checkpoint: TypeAlias = Literal["best", "last"]
Source: TypeAlias = Model | Run | str | Path


@dataclass(frozen=True)
class Opened:
    """A model that is ready to score.

    Attributes:
        model: in eval mode.
        name: what reports call it: the folder's name.
        noise_file: the manifest that it was trained with, where there is one.
        noise_name: what the manifest was called when it was given.
        dropped: whether the wrong triplets were left out of training.
        seed: of the training run.
    """

    model: Model
    name: str
    noise_file: Path | None = None
    noise_name: str | None = None
    dropped: bool = False
    seed: int | None = None


def open_model(source: Source, *, checkpoint: str = "best") -> Opened:
    """Load what is to be scored.

    Args:
        source: a run, the folder of a run or of a model, or a model that is loaded already.
        checkpoint: the ``best`` or the ``last`` model of a run; a model has nothing to choose.

    Raises:
        UsageError: there is nothing at the path, or ``checkpoint`` is neither of the two.
        DataError: the folder holds no model, or none of that checkpoint yet.
    """
    if checkpoint not in get_args(Checkpoint):
        known = ", ".join(get_args(Checkpoint))
        raise UsageError(f'unknown checkpoint "{checkpoint}"; choose one of: {known}')
    if isinstance(source, Model):
        return Opened(source, "model")
    folder = source.folder if isinstance(source, Run) else Path(source)
    if not folder.exists():
        raise UsageError(f"{folder}: there is no such folder")
    name = folder.resolve().name
    if (folder / WEIGHTS).is_file() or not (folder / CONFIG).is_file():
        return Opened(load_model(folder), name)
    run, config = Run.open(folder)
    chosen = run.best if checkpoint == "best" else run.last
    if not (chosen / WEIGHTS).is_file():
        other = ", or take --checkpoint best" if (run.best / WEIGHTS).is_file() else ""
        raise DataError(
            f"this run has no {checkpoint} model yet",
            file=folder,
            mend=f"Go on with `triptych train --resume {folder}`{other}.",
        )
    given = None if config.noise in (None, "given") else Path(str(config.noise)).name
    noise = run.noise if config.noise else None
    return Opened(load_model(chosen), name, noise, given, config.drop_noisy, config.training.seed)
