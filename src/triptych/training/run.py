"""Run: the folder of a training run, with all that is needed to understand, repeat and resume it.

``config.json`` the resolved settings and their hash; ``environment.json``; ``noise.json`` the manifest in use;
``metrics.jsonl`` one JSON object a line; ``cleanliness.parquet`` how far each triplet was trusted in each epoch;
``checkpoint.safetensors``; ``best/`` and ``last/`` model folders.
"""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from triptych.errors import DataError, UsageError
from triptych.files import atomic_write, explain_full_disk, write_json
from triptych.noise import NoiseManifest
from triptych.training.config import RunConfig, settings_hash


class Run:
    """A run folder.

    Args:
        folder: where it is or will be.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoint = folder / "checkpoint.safetensors"
        self.noise = folder / "noise.json"
        self.best = folder / "best"
        self.last = folder / "last"
        self.cleanliness = folder / "cleanliness.parquet"
        self._metrics = folder / "metrics.jsonl"

    @classmethod
    def create(cls, folder: Path, config: RunConfig, noise: NoiseManifest | None = None) -> Run:
        """Start a run folder; the settings are written last, so a folder with settings is complete.

        Raises:
            UsageError: the folder already holds something.
        """
        cls.refuse_used(folder)
        run = cls(folder)
        write_json(folder / "environment.json", environment())
        if noise is not None:
            noise.write(run.noise)
        run.truncate_metrics(0)
        write_json(folder / "config.json", {"hash": config.fingerprint(), **config.model_dump(mode="json")})
        return run

    @staticmethod
    def refuse_used(folder: Path) -> None:
        """Raise ``UsageError`` where a new run cannot go."""
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(
                f"{folder} is there already and not empty.\n"
                f"  Choose another folder with -o, or go on with `triptych train --resume {folder}`."
            )

    @classmethod
    def open(cls, folder: Path) -> tuple[Run, RunConfig]:
        """Open a run folder and read its settings.

        Raises:
            DataError: it is none, or its settings were changed by hand.
        """
        path = folder / "config.json"
        if not path.is_file():
            raise DataError(
                "there is no run here (no config.json)", file=folder, mend="Start one with `triptych train`."
            )
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise DataError(f"is not valid JSON ({error})", file=path) from error
        found = values.pop("hash", None) if isinstance(values, dict) else None
        if found is None:
            mend = "A run folder is what `triptych train` writes; RUN/best and RUN/last are models."
            raise DataError("there is no run here: these are not a run's settings", file=path, mend=mend)
        config = RunConfig.parse(values)
        if found != settings_hash(values):
            raise DataError(
                "the settings do not match their hash; the run would go on with others",
                file=path,
                field="hash",
            )
        return cls(folder), config

    def sweep(self) -> None:
        """Remove what a killed process was about to write; only whoever goes on with the run may do so."""
        for leftover in self.folder.rglob(".*.tmp"):
            leftover.unlink(missing_ok=True)

    def log(self, entry: dict[str, Any]) -> None:
        """Append one line to the metrics."""
        with explain_full_disk(self._metrics), self._metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """Read the metrics; a last line that a kill cut off is left out."""
        entries = []
        if self._metrics.is_file():
            for line in self._metrics.read_text(encoding="utf-8").splitlines():
                try:
                    entries.append(json.loads(line))
                except ValueError:
                    break
        return entries

    def truncate_metrics(self, lines: int) -> int:
        """Keep the first lines only, those that the checkpoint vouches for, and return how many there are."""
        found = self._metrics.read_text(encoding="utf-8").splitlines() if self._metrics.is_file() else []
        kept = found[:lines]
        with atomic_write(self._metrics) as file:
            file.writelines(line + "\n" for line in kept)
        return len(kept)


def environment() -> dict[str, Any]:
    """Describe the machine and the packages that decide a result."""
    packages = {}
    for name in ("triptych", "torch", "transformers", "accelerate", "numpy", "safetensors", "pillow"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = "not installed"
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "packages": packages,
    }
