"""HABIT killed in the middle and resumed: the same bytes, whether its history is in RAM or on disk."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triptych.noise import NoiseManifest, inject
from triptych.training.cleanliness import read_cleanliness
from triptych.training.loop import Step, Watcher
from triptych.training.run import Run
from triptych.training.train import resume
from triptych.triplets import Benchmark

HISTORIES = ("sample_bank", "released")
MEMORIES = ("ram", "disk")
CRASHES = ((0, 3), (1, 1), (1, 4))
"""Epochs and steps: before there is a past; before the second epoch has a checkpoint; after its first one."""


class Crash(Exception):
    """The end of a process, as far as the run is concerned."""


def crash_at(epoch: int, step: int) -> Watcher:
    def tick(now: Step) -> None:
        if (now.epoch, now.step) == (epoch, step):
            raise Crash

    return Watcher(on_step=tick)


def settings(history: str, memory: str) -> dict[str, Any]:
    """Two epochs of 5 steps; with min_samples = 2 some triplets of 8 are outliers and some are not."""
    return {
        "method": {"name": "habit", "history": history, "min_samples": 2},
        "training": {"epochs": 2, "batch_size": 8, "checkpoint_every": 2, "memory": memory},
    }


def outcome(run: Run) -> dict[str, Any]:
    """Give all that a run leaves behind, as bytes, but its speed and its settings."""
    files = [*run.best.rglob("*"), *run.last.rglob("*"), *(run.folder / "memory").rglob("*"), run.checkpoint]
    entries = run.metrics()
    for entry in entries:
        entry.pop("triplets_per_second", None)
    return {
        **{str(file.relative_to(run.folder)): file.read_bytes() for file in files if file.is_file()},
        "metrics": entries,
        "cleanliness": run.cleanliness.read_bytes(),
    }


def differing(first: Run, second: Run) -> list[str]:
    one, other = outcome(first), outcome(second)
    assert set(one) == set(other)
    return [name for name in one if one[name] != other[name]]


@pytest.fixture(scope="module")
def manifest(bench: Benchmark) -> NoiseManifest:
    return inject(bench.train, kind="mix", ratio=0.5, seed=3)


@pytest.fixture(scope="module")
def whole(
    pristine: Any, run_small: Callable[..., Any], manifest: NoiseManifest
) -> dict[tuple[str, str], Run]:
    """Runs that nobody disturbed; towers are loaded before, as loading them draws numbers too."""
    return {
        (history, memory): run_small(noise=manifest, **settings(history, memory))
        for history in HISTORIES
        for memory in MEMORIES
    }


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("history", HISTORIES)
def test_a_run_that_crashed_again_and_again_ends_in_the_same_bytes(
    history: str,
    memory: str,
    run_small: Callable[..., Any],
    manifest: NoiseManifest,
    whole: dict[tuple[str, str], Run],
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    with pytest.raises(Crash):
        run_small(folder, noise=manifest, watcher=crash_at(*CRASHES[0]), **settings(history, memory))
    for place in CRASHES[1:]:
        with pytest.raises(Crash):
            resume(folder, watcher=crash_at(*place))
    run = resume(folder)
    assert len(list((folder / "memory").rglob("*.bin"))) == (10 if memory == "disk" else 0)
    assert differing(run, whole[history, memory]) == []


@pytest.mark.slow
def test_killed_for_good_with_files_half_written(
    manifest: NoiseManifest,
    whole: dict[tuple[str, str], Run],
    sizes: dict[str, Any],
    tiny_benchmark: Path,
    tmp_path: Path,
) -> None:
    """kill -9 in the second epoch, and another process goes on."""
    noise = tmp_path / "mix.json"
    manifest.write(noise)
    plan = {
        "data": str(tiny_benchmark),
        "folder": str(tmp_path / "run"),
        "cache": os.environ["TRIPTYCH_CACHE"],
        "settings": {"backbone": sizes, "noise": str(noise), **settings("sample_bank", "disk")},
        "lives": [{"step": 9}, {}],
    }
    path = tmp_path / "plans.json"
    path.write_text(json.dumps([plan]))
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("lives.py")), str(path)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # a process with more threads cannot be forked
    )
    assert done.stdout.splitlines() == ["[-9, 0]"], done.stderr
    assert differing(Run(tmp_path / "run"), whole["sample_bank", "disk"]) == []


@pytest.mark.parametrize("history", HISTORIES)
def test_ram_and_disk_train_the_same_weights(history: str, whole: dict[tuple[str, str], Run]) -> None:
    assert differing_weights(whole[history, "ram"], whole[history, "disk"]) == []


def differing_weights(first: Run, second: Run) -> list[str]:
    one, other = outcome(first), outcome(second)
    names = ("last/model.safetensors", "best/model.safetensors", "metrics", "cleanliness")
    return [name for name in names if one[name] != other[name]]


def test_the_history_matters_from_the_second_epoch_on(whole: dict[tuple[str, str], Run]) -> None:
    bank, released = (whole[history, "ram"].metrics() for history in HISTORIES)
    for ours, theirs in zip(bank, released, strict=True):
        if ours["kind"] == "step":
            assert ("kl" in ours["losses"]) == (ours["epoch"] == 1)
            if ours["epoch"] == 0:
                assert ours["losses"] == theirs["losses"]
    second = [entry for entry in bank if entry["kind"] == "step" and entry["epoch"]]
    assert second[0]["losses"]["kl"] > 0
    assert any(0 < entry["diagnostics"]["trusted"] < 1 for entry in second)
    assert differing_weights(whole["sample_bank", "ram"], whole["released", "ram"]) != []


def test_cleanliness_is_recorded(whole: dict[tuple[str, str], Run], bench: Benchmark) -> None:
    for epoch in (1, 2):
        ids, values = read_cleanliness(whole["sample_bank", "ram"].cleanliness, epoch)
        assert set(ids) == set(bench.train.triplet_ids)
        assert ((values > 0) & (values <= 1)).all()
