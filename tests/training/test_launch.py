"""Two processes as a user starts them: the same run as one, killed and interrupted, resumed, and written once."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from triptych.training.run import Run

LAUNCH = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]


class Launcher:
    """Starts ``triptych train``, in two processes or in one."""

    def __init__(self, folder: Path, sizes: dict[str, Any], data: Path) -> None:
        self.started: list[subprocess.Popen[str]] = []
        self.environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "TRIPTYCH_CACHE": str(folder / "cache"),
        }
        values = {f"backbone.{key}": value for key, value in sizes.items() if key != "name"}
        values |= {"backbone.dropout": 0.0, "training.batch_size": 8, "training.checkpoint_every": 3}
        self.options = ["--data", str(data), "--method", "intent", "--epochs", "4"]
        for key, value in values.items():
            self.options += ["--set", f"{key}={value}"]

    def start(self, *arguments: str, processes: int = 2) -> subprocess.Popen[str]:
        """Start a training in a process group of its own, as a shell does."""
        command = [sys.executable, *(LAUNCH if processes > 1 else []), "-m", "triptych", "train", *arguments]
        training = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment,
            start_new_session=True,
        )
        self.started.append(training)
        return training

    def end(self) -> None:
        """Kill what still runs."""
        for training in self.started:
            if training.poll() is None:
                end(training)

    def finish(self, *arguments: str, processes: int = 2) -> None:
        """Train to the end."""
        training = self.start(*arguments, processes=processes)
        said, _ = training.communicate(timeout=240)
        assert training.returncode == 0, said


def taken(folder: Path) -> list[dict[str, Any]]:
    """Read the steps of a run that may be writing them just now."""
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.is_file() else []
    entries = [json.loads(line) for line in lines if line.endswith("\n")]
    return [entry for entry in entries if entry["kind"] == "step"]


def wait_for(steps: int, folder: Path, training: subprocess.Popen[str]) -> None:
    for _ in range(6000):
        if len(taken(folder)) >= steps:
            return
        assert training.poll() is None, training.communicate()[0]
        time.sleep(0.05)
    raise AssertionError(f"{folder} has no {steps} steps after five minutes")


def end(training: subprocess.Popen[str]) -> None:
    """Kill -9 a launcher and its processes, which each have a session of their own."""
    found = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
    pairs = [tuple(map(int, line.split())) for line in found.stdout.splitlines()]
    for pid in (*(pid for pid, parent in pairs if parent == training.pid), training.pid):
        os.kill(pid, signal.SIGKILL)
    training.communicate()


@pytest.fixture
def launcher(tiny_benchmark: Path, sizes: dict[str, Any], tmp_path: Path) -> Iterator[Launcher]:
    """A launcher whose processes end with the test."""
    launcher = Launcher(tmp_path, sizes, tiny_benchmark)
    yield launcher
    launcher.end()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_processes_from_the_shell(launcher: Launcher, tmp_path: Path) -> None:
    """20 steps in 2 processes: killed -9 after 5, interrupted after 11; byte for byte as if nobody had touched it."""
    one, two, cut = (tmp_path / name for name in ("one", "two", "cut"))
    launcher.finish(*launcher.options, "-o", str(one), processes=1)
    launcher.finish(*launcher.options, "-o", str(two))
    alone, shared = taken(one), taken(two)
    assert len(alone) == len(shared) == 20  # the second process wrote nothing
    assert alone[0]["losses"] == pytest.approx(shared[0]["losses"], rel=0, abs=1e-6)
    assert alone[0]["gradient_norm"] == pytest.approx(shared[0]["gradient_norm"], rel=1e-6)
    for left, right in zip(alone, shared, strict=True):  # near ties make more of a rounding
        assert left["losses"]["total"] == pytest.approx(right["losses"]["total"], rel=0, abs=1e-4)

    training = launcher.start(*launcher.options, "-o", str(cut))
    wait_for(5, cut, training)
    end(training)

    training = launcher.start("--resume", str(cut))
    wait_for(11, cut, training)
    os.killpg(training.pid, signal.SIGINT)
    said, _ = training.communicate(timeout=120)
    assert training.returncode != 0
    assert "nothing is lost" in said
    assert f"triptych train --resume {cut}" in said

    launcher.finish("--resume", str(cut))
    assert not list(cut.rglob("*.tmp"))
    for left, right in ((Run(two).best, Run(cut).best), (Run(two).last, Run(cut).last)):
        assert (left / "model.safetensors").read_bytes() == (right / "model.safetensors").read_bytes()
    timeless = [[{**e, "triplets_per_second": 0} for e in run] for run in (taken(two), taken(cut))]
    assert timeless[0] == timeless[1]
