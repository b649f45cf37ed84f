"""Killed anywhere, resumed in a new process: the run ends in the bytes of one that nobody disturbed."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from triptych.noise import inject
from triptych.training.run import Run
from triptych.triplets import Benchmark

DRIVER = Path(__file__).with_name("lives.py")


def live(
    tmp_path: Path, data: Path, settings: dict[str, Any], lives: dict[str, list[dict[str, Any]]]
) -> tuple[dict[str, list[int]], str]:
    """Give each run's exit codes, and what was printed; each run has an empty cache of its own."""
    plans = [
        {
            "data": str(data),
            "folder": str(tmp_path / name),
            "cache": str(tmp_path / f"{name}-cache"),
            "settings": settings,
            "lives": how,
        }
        for name, how in lives.items()
    ]
    path = tmp_path / "plans.json"
    path.write_text(json.dumps(plans))
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(path)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # a process with more threads cannot be forked
    )
    assert done.returncode == 0, done.stderr
    codes = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return dict(zip(lives, codes, strict=True)), done.stderr


def outcome(run: Run) -> tuple[bytes, bytes, bytes, list[dict[str, Any]]]:
    entries = run.metrics()
    for entry in entries:
        entry.pop("triplets_per_second", None)
    best, last = ((folder / "model.safetensors").read_bytes() for folder in (run.best, run.last))
    return best, last, run.checkpoint.read_bytes(), entries


@pytest.fixture(scope="module")
def settings(
    sizes: dict[str, Any], bench: Benchmark, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """INTENT with live counterfactuals, dropout, noise and random captions: whatever draws a number."""
    noise = tmp_path_factory.mktemp("noise") / "mix.json"
    inject(bench.train, kind="mix", ratio=0.5, seed=3).write(noise)
    training = {"epochs": 3, "batch_size": 8, "checkpoint_every": 2, "captions": "random4"}
    return {"method": "intent", "backbone": sizes, "noise": str(noise), "training": training}


def test_killed_anywhere(tmp_path: Path, tiny_benchmark: Path, settings: dict[str, Any]) -> None:
    """15 steps, 3 validations. The steps and moments are random; the end is not."""
    draws = random.Random(os.environ.get("PYTEST_SEED"))
    moments = [
        {"step": draws.randint(1, 5)},
        {"in": "checkpoint", "time": draws.randint(1, 2)},
        {"in": "validation", "time": 1},
        {"in": "best", "time": 1},
        {"seconds": draws.uniform(0.01, 0.6)},
        {"ctrl_c": draws.randint(1, 3)},
        {},
    ]
    codes, said = live(tmp_path, tiny_benchmark, settings, {"whole": [{}], "killed": moments})
    assert codes["whole"] == [0], said
    ends = codes["killed"]
    assert ends[-1] == 0, said
    assert ends[0] == -9
    assert set(ends) <= {-9, -14, 130, 0}, (moments, ends, said)
    assert sum(end == 0 for end in ends) < 5, (moments, ends)
    if 130 in ends:
        assert f"triptych train --resume {tmp_path / 'killed'}" in said
        assert "Traceback" not in said
    assert list((tmp_path / "killed").rglob("*.tmp")) == []
    assert outcome(Run(tmp_path / "killed")) == outcome(Run(tmp_path / "whole")), (moments, ends)
