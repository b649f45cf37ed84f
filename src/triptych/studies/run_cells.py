"""Runs the cells of a study that are missing, each in a process of its own; stopped and started at will."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from triptych.errors import TriptychError
from triptych.evaluation.detection import Detection, detection
from triptych.noise import NoiseManifest, inject
from triptych.studies.cells import Cell, NoiseLevel, Study
from triptych.triplets import Benchmark, read_benchmark

NOISE_SEED = 42
Told = Callable[[Cell, float], None]
"""Called with a cell that was finished now, and its seconds."""


def run_cells(
    study: Study,
    *,
    jobs: int = 1,
    told: Told = lambda cell, seconds: None,
    after: Callable[[], None] = lambda: None,
) -> None:
    """Run what is missing.

    Args:
        study: what to run.
        jobs: cells at once; they share the cores, and take the GPUs in turn where there are several.
        told: called with a cell that was finished now, and its seconds.
        after: called when a cell was finished, such as to write the tables anew.

    Raises:
        UsageError: the folder holds another study.
        TriptychError: a cell failed; the others are finished first.
    """
    study.claim()
    missing = [cell for cell in study.cells if not study.is_done(cell)]
    if not missing:
        return
    benchmarks = {name: read_benchmark(study.data[name]) for name in {cell.data for cell in missing}}
    manifests = {
        (name, level): manifest_of(benchmarks[name], level, study.folder / "noise" / name)
        for name, level in sorted({(cell.data, cell.noise) for cell in missing})
    }
    slots: queue.Queue[Mapping[str, str]] = queue.Queue()
    for slot in _environments(jobs):
        slots.put(slot)
    failed: list[str] = []

    def run(cell: Cell) -> None:
        started, environment = time.monotonic(), slots.get()
        try:
            protocol = benchmarks[cell.data].protocol
            _run_cell(study, cell, manifests[cell.data, cell.noise], protocol, environment)
        except subprocess.CalledProcessError as error:
            failed.append(f"{cell.name}: {(error.stderr or '').strip()[-500:]}")
            return
        finally:
            slots.put(environment)
        told(cell, time.monotonic() - started)
        after()

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run, missing))
    if failed:
        raise TriptychError(f"{len(failed)} of {len(study.cells)} cells failed:\n" + "\n".join(failed))


def manifest_of(benchmark: Benchmark, level: NoiseLevel, folder: Path) -> Path | None:
    """Return the manifest of a level: the data set's own where it has one, else one that is made once."""
    if level.ratio == 0:
        return None
    name = f"{level.kind}-{level.ratio:g}-seed{NOISE_SEED}.json"
    own = benchmark.path / "noise" / name
    if own.is_file():
        return own
    path = folder / name
    if not path.is_file():
        inject(benchmark.train, kind=level.kind, ratio=level.ratio, seed=NOISE_SEED).write(path)
    return path


def protocol_of(own: str) -> str:
    """Return the protocol that a study scores by: FashionIQ-like data as the three papers' code does."""
    return "reference-removed" if own == "fashioniq" else own


def _run_cell(
    study: Study, cell: Cell, manifest: Path | None, own_protocol: str, environment: Mapping[str, str]
) -> None:
    from triptych.training.cleanliness import read_cleanliness
    from triptych.training.run import Run

    folder = study.folder / cell.name
    started = time.monotonic()
    run = Run(folder)
    if not (run.last / "model.safetensors").is_file():
        if (folder / "config.json").is_file():
            _triptych(environment, "train", "--resume", folder)
        else:
            _triptych(environment, "train", "-o", folder, *options_of(study, cell, manifest))
    trained = time.monotonic() - started
    for which in study.scored:
        _triptych(
            environment, "evaluate", folder, "--data", study.data[cell.data], "--checkpoint", which,
            "--protocol", protocol_of(own_protocol), "--json", folder / f"evaluation-{which}.json",
            *(("--no-context",) if which == "last" else ()),
        )  # fmt: skip
    found: Detection | None = None
    if manifest is not None and not cell.noise.oracle:
        ids, values = read_cleanliness(run.cleanliness)
        found = detection(ids, values, NoiseManifest.read(run.noise).noisy_ids)
    study.note(
        cell,
        seconds=time.monotonic() - started,
        train_seconds=trained,
        detection=found and asdict(found),
    )


def options_of(study: Study, cell: Cell, manifest: Path | None) -> Iterator[str | Path]:
    """Yield the words of ``triptych train`` for a cell."""
    yield from ("--data", study.data[cell.data], "--method", cell.method, "--seed", str(cell.seed))
    if manifest is not None:
        yield from ("--noise", manifest)
        if cell.noise.oracle:
            yield "--drop-noisy"
    if study.init is not None:
        yield from ("--init", study.init)
    if cell.backbone:
        yield from ("--backbone", cell.backbone)
    if cell.row:
        yield from ("--ablate", cell.row)
    shared = {
        f"{section}.{key}": json.dumps(value)
        for section, values in (
            ("training", study.training),
            ("backbone", study.backbone),
            ("method", study.switches.get(cell.method, {})),
        )
        for key, value in values.items()
    }
    for key, value in {**shared, **dict(cell.settings)}.items():
        yield from ("--set", f"{key}={value}")


def _environments(jobs: int) -> list[dict[str, str]]:
    """Make the environment of each cell that runs at once: its share of the cores, and a GPU of several."""
    threads = max((os.cpu_count() or 1) // jobs, 1)
    shared = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
    devices = _devices()
    one_each = len(devices) > 1
    return [
        {**shared, **({"CUDA_VISIBLE_DEVICES": devices[job % len(devices)]} if one_each else {})}
        for job in range(jobs)
    ]


def _devices() -> list[str]:
    if said := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return said.split(",")
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def _triptych(environment: Mapping[str, str], *arguments: str | Path) -> None:
    """Run a verb in a process of its own.

    Raises:
        subprocess.CalledProcessError: it failed; its message is in ``stderr``.
    """
    command = [sys.executable, "-m", "triptych.cli.main", *map(str, arguments)]
    subprocess.run(
        command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
