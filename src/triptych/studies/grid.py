"""A grid: methods x noise x seeds on one data set, each cell a run of its own, stopped and started at will."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from triptych.errors import TriptychError, UsageError
from triptych.evaluation import Evaluation
from triptych.evaluation.detection import Detection, detection
from triptych.files import atomic_write, write_json
from triptych.noise import KINDS, NoiseManifest, inject
from triptych.noise.corruption import Kind
from triptych.triplets import Benchmark, read_benchmark

NOISE_SEED = 42


@dataclass(frozen=True, order=True)
class NoiseLevel:
    """What is wrong with the training triplets of a cell.

    Attributes:
        kind: as ``triptych noise inject --kind``.
        ratio: share of the triplets that are wrong; 0 = none.
        oracle: the wrong ones are left out, as by a perfect filter.
    """

    kind: Kind
    ratio: float
    oracle: bool = False

    @property
    def name(self) -> str:
        """The level's name in tables and folders."""
        return f"{'oracle ' if self.oracle else ''}{self.kind} {self.ratio:g}"


def parse_noise(text: str) -> list[NoiseLevel]:
    """Read ``KIND:RATE,RATE``; an ``oracle:`` before it leaves the wrong triplets out.

    Raises:
        UsageError: it is written otherwise.

    Example:
        >>> [level.name for level in parse_noise("mix:0,0.5")]
        ['mix 0', 'mix 0.5']
    """
    rest = text.removeprefix("oracle:")
    name, _, rates = rest.partition(":")
    try:
        numbers = [float(rate) for rate in rates.split(",")]
    except ValueError:
        numbers = []
    kind = next((known for known in KINDS if known == name), None)
    if kind is None or not numbers or any(not 0 <= number <= 1 for number in numbers):
        raise UsageError(
            f"--noise {text}: write KIND:RATE,RATE such as mix:0,0.5, or oracle:mix:0.5; kinds: {', '.join(KINDS)}"
        )
    return [NoiseLevel(kind, number, oracle=rest != text) for number in numbers]


@dataclass(frozen=True)
class Cell:
    """One training of the grid."""

    method: str
    noise: NoiseLevel
    seed: int

    @property
    def name(self) -> str:
        """The name of the cell's folder."""
        return f"{self.method}-{self.noise.name.replace(' ', '-')}-seed{self.seed}"


@dataclass(frozen=True)
class Grid:
    """What is to be run.

    Attributes:
        data: the data set.
        folder: where cells, manifests and tables go.
        cells: the trainings.
        init: a model folder to start from.
        training: settings of all cells.
        switches: method to its switches.
    """

    data: Path
    folder: Path
    cells: tuple[Cell, ...]
    init: Path | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    switches: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def claim(self) -> None:
        """Make the folder this grid's.

        Raises:
            UsageError: it holds cells of other settings.
        """
        settings = json.loads(
            json.dumps(
                {
                    "data": str(self.data.resolve()),
                    "init": str(self.init.resolve()) if self.init else None,
                    "training": dict(self.training),
                    "switches": {name: dict(values) for name, values in self.switches.items()},
                }
            )
        )
        path = self.folder / "grid.json"
        if not path.is_file():
            write_json(path, settings)
        elif (found := json.loads(path.read_text(encoding="utf-8"))) != settings:
            different = [key for key in settings if found.get(key) != settings[key]]
            raise UsageError(
                f"{self.folder} holds a grid with another {' and '.join(different)}.\n"
                "  Give the same settings to go on with it, or choose another folder."
            )


@dataclass(frozen=True)
class Outcome:
    """What a finished cell found."""

    cell: Cell
    best: Evaluation
    last: Evaluation
    detection: Detection | None
    seconds: float


def run_grid(
    grid: Grid, *, jobs: int = 1, told: Callable[[Cell, float], None] = lambda cell, seconds: None
) -> list[Outcome]:
    """Run what is missing, each cell in a process of its own, and write ``grid.md``.

    Args:
        grid: what to run.
        jobs: cells at once; they share the cores.
        told: called with a cell that was finished now, and its seconds.

    Raises:
        UsageError: the folder holds another grid.
        TriptychError: a cell failed; the others are finished first.
    """
    grid.claim()
    benchmark = read_benchmark(grid.data)
    manifests = {
        level: manifest_of(benchmark, level, grid.folder / "noise")
        for level in sorted({cell.noise for cell in grid.cells})
    }
    threads = max((os.cpu_count() or 1) // jobs, 1)
    failed: list[str] = []

    def run(cell: Cell) -> None:
        if is_done(grid, cell):
            return
        started = time.monotonic()
        try:
            _run_cell(grid, cell, manifests[cell.noise], threads)
        except subprocess.CalledProcessError as error:
            failed.append(f"{cell.name}: {(error.stderr or '').strip()[-500:]}")
            return
        told(cell, time.monotonic() - started)
        write_tables(grid)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run, grid.cells))
    found = write_tables(grid)
    if failed:
        raise TriptychError(f"{len(failed)} of {len(grid.cells)} cells failed:\n" + "\n".join(failed))
    return [outcome for outcome in found if outcome.cell in grid.cells]


def is_done(grid: Grid, cell: Cell) -> bool:
    """Say whether a cell is trained and scored."""
    return (grid.folder / cell.name / "cell.json").is_file()


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


def outcomes(grid: Grid) -> Iterator[Outcome]:
    """Read what is finished in the folder, cells that were asked for at another time too."""
    for path in sorted(grid.folder.glob("*/cell.json")):
        noted = json.loads(path.read_text(encoding="utf-8"))
        cell = Cell(noted["method"], NoiseLevel(**noted["noise"]), noted["seed"])
        found = Detection(**noted["detection"]) if noted["detection"] else None
        best, last = (Evaluation.read(path.parent / f"evaluation-{which}.json") for which in ("best", "last"))
        yield Outcome(cell, best, last, found, noted["seconds"])


def write_tables(grid: Grid) -> list[Outcome]:
    """Write ``grid.md`` from what is finished."""
    found = list(outcomes(grid))
    with atomic_write(grid.folder / "grid.md") as file:
        file.write(to_markdown(grid, found))
    return found


def to_markdown(grid: Grid, found: Sequence[Outcome]) -> str:
    """Write the table; a cell that was asked for and is not finished says so."""
    by_cell = {outcome.cell: outcome for outcome in found}
    cells = {*grid.cells, *by_cell}
    lines = [
        "| training data | method | seed | R@10 best epoch | R@10 last epoch | R@50 best | R@50 last "
        "| image-only R@10 | text-only R@10 | cleanliness AUROC | cleanliness AP |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in sorted(cells, key=lambda cell: (cell.noise.oracle, cell.noise, cell.method, cell.seed)):
        head = f"| {cell.noise.name} | `{cell.method}` | {cell.seed} |"
        outcome = by_cell.get(cell)
        if outcome is None:
            lines.append(f"{head} not run | | | | | | | |")
            continue
        best, last = (each.row("composed", "removed") for each in (outcome.best, outcome.last))
        low, high = best.intervals["R@10"]
        scores = outcome.detection or Detection(None, None, 0, 0)
        lines.append(
            f"{head} **{best.mean['R@10']:.1f}** [{low:.1f}, {high:.1f}] (epoch {outcome.best.model.epoch}) | "
            f"{last.mean['R@10']:.1f} (epoch {outcome.last.model.epoch}) | {best.mean['R@50']:.1f} | "
            f"{last.mean['R@50']:.1f} | {_half(outcome, 'image-only')} | {_half(outcome, 'text-only')} | "
            f"{_figure(scores.auroc)} | {_figure(scores.average_precision)} |"
        )
    return "\n".join(lines) + "\n"


def _half(outcome: Outcome, name: str) -> str:
    """Give what half of the query finds, where it can be asked alone."""
    rows = [row for row in outcome.best.rows if (row.name, row.reference) == (name, "removed")]
    return f"{rows[0].mean['R@10']:.1f}" if rows else "-"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _run_cell(grid: Grid, cell: Cell, manifest: Path | None, threads: int) -> None:
    from triptych.training.cleanliness import read_cleanliness
    from triptych.training.run import Run

    folder = grid.folder / cell.name
    started = time.monotonic()
    run = Run(folder)
    if not (run.last / "model.safetensors").is_file():
        if (folder / "config.json").is_file():
            _triptych(threads, "train", "--resume", folder)
        else:
            _triptych(threads, "train", "-o", folder, *_options(grid, cell, manifest))
    for which in ("best", "last"):
        _triptych(
            threads, "evaluate", folder, "--data", grid.data, "--checkpoint", which,
            "--protocol", "reference-removed", "--json", folder / f"evaluation-{which}.json",
            *(("--no-context",) if which == "last" else ()),
        )  # fmt: skip
    found = None
    if manifest is not None and not cell.noise.oracle:
        ids, values = read_cleanliness(run.cleanliness)
        found = detection(ids, values, NoiseManifest.read(run.noise).noisy_ids)
    write_json(
        folder / "cell.json",
        {**asdict(cell), "seconds": time.monotonic() - started, "detection": found and asdict(found)},
    )


def _options(grid: Grid, cell: Cell, manifest: Path | None) -> Iterator[str | Path]:
    yield from ("--data", grid.data, "--method", cell.method, "--seed", str(cell.seed))
    if manifest is not None:
        yield from ("--noise", manifest)
        if cell.noise.oracle:
            yield "--drop-noisy"
    if grid.init is not None:
        yield from ("--init", grid.init)
    for section, values in (("training", grid.training), ("method", grid.switches.get(cell.method, {}))):
        for key, value in values.items():
            yield from ("--set", f"{section}.{key}={json.dumps(value)}")


def _triptych(threads: int, *arguments: str | Path) -> None:
    """Run a verb in a process of its own.

    Raises:
        subprocess.CalledProcessError: it failed; its message is in ``stderr``.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, "-m", "triptych.cli.main", *map(str, arguments)]
    subprocess.run(
        command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
