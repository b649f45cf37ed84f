"""What runs and grids hold that can be compared, and which of them are not finished."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from triptych.errors import DataError, UsageError
from triptych.evaluation import Evaluation
from triptych.evaluation.comparison import Result, Unfinished
from triptych.studies.cells import CELL, MARKERS

CONFIG = "config.json"
_OWN = ("data", "images", "noise", "drop_noisy", "hash", "seed")  # no settings of a method


def collect(paths: Sequence[Path], *, checkpoint: str = "best") -> tuple[list[Result], list[Unfinished]]:
    """Read results.

    Args:
        paths: folders of runs or of grids, or JSON files that `triptych evaluate` wrote.
        checkpoint: whether the evaluation of a run's ``best`` or ``last`` model is read.

    Returns:
        The finished results, and what has none: a run that is still training, or was never evaluated.

    Raises:
        UsageError: there is nothing at a path, a folder holds neither runs nor cells, or a path is named twice.
        DataError: a file cannot be read.
    """
    twice = next((path for at, path in enumerate(paths) if path.resolve() in _resolved(paths[:at])), None)
    if twice is not None:
        raise UsageError(f"{twice} is named twice")
    results: list[Result] = []
    unfinished: list[Unfinished] = []
    for path in paths:
        for found in _at(path, checkpoint):
            if isinstance(found, Unfinished):
                unfinished.append(found)
            elif any(result.name == found.name for result in results):
                results.append(replace(found, name=f"{path.resolve().parent.name}/{found.name}"))
            else:
                results.append(found)
    return results, unfinished


def _resolved(paths: Sequence[Path]) -> set[Path]:
    return {path.resolve() for path in paths}


def _at(path: Path, checkpoint: str) -> Iterator[Result | Unfinished]:
    if not path.exists():
        raise UsageError(f"{path}: there is no such file or folder")
    if path.is_file():
        evaluation = Evaluation.read(path)
        yield Result(evaluation.model.name, evaluation, evaluation.model.seed, {})
        return
    if _is_run(path):
        yield _run(path, checkpoint)
        return
    cells = [folder for folder in sorted(path.iterdir()) if folder.is_dir() and _is_run(folder)]
    if not cells:
        raise UsageError(
            f"{path}: there is no run, no grid and no result here\n"
            "  Give the folders of runs or grids, or JSON files of `triptych evaluate --json`."
        )
    in_grid = any((path / marker).is_file() for marker in MARKERS)
    for folder in cells:
        if in_grid and not (folder / CELL).is_file():
            yield Unfinished(folder.name, "the cell is not finished")
        else:
            yield _run(folder, checkpoint)


def _is_run(folder: Path) -> bool:
    return (folder / CONFIG).is_file() or (folder / CELL).is_file()


def _run(folder: Path, checkpoint: str) -> Result | Unfinished:
    name = folder.resolve().name
    config = _object(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    finished = (folder / CELL).is_file() or (folder / "last" / "model.safetensors").is_file()
    if config and not finished:
        return Unfinished(name, f"still training; `triptych train --resume {folder}` goes on with it")
    files = [folder / f"evaluation-{checkpoint}.json", folder / "evaluation.json"]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        return Unfinished(name, f"not evaluated; run `triptych evaluate {folder} --checkpoint {checkpoint}`")
    evaluation = Evaluation.read(file)
    training = config.get("training", {})
    seed = training.get("seed", evaluation.model.seed)
    if evaluation.noise is not None and (config.get("drop_noisy") or evaluation.noise.asked is None):
        evaluation = evaluation.model_copy(update={"noise": _noise(folder, config, evaluation)})
    return Result(name, evaluation, seed, dict(_flat(config)))


def _noise(folder: Path, config: Mapping[str, Any], evaluation: Evaluation) -> Any:
    """Complete what an older version wrote of the noise, from the run's manifest."""
    assert evaluation.noise is not None
    manifest = _object(folder / "noise.json") if (folder / "noise.json").is_file() else {}
    asked = evaluation.noise.asked if evaluation.noise.asked is not None else manifest.get("ratio_asked")
    return evaluation.noise.model_copy(
        update={"asked": asked, "dropped": bool(config.get("drop_noisy")) or evaluation.noise.dropped}
    )


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Give settings by dotted name; seeds, data and noise are left out."""
    for name, value in values.items():
        if name in _OWN:
            continue
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif f"{prefix}{name}" != "method.name":
            yield f"{prefix}{name}", json.dumps(value) if not isinstance(value, str) else value


def _object(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"is not valid JSON ({error})", file=path) from error
    if not isinstance(values, dict):
        raise DataError("an object is expected", file=path)
    return values
