"""TME and RDE through the whole training: killed and resumed, with a memory in RAM or on disk, the same bytes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from triptych.training.cleanliness import read_cleanliness
from triptych.training.loop import Watcher
from triptych.training.model import load_model
from triptych.training.run import Run
from triptych.training.train import resume

METHODS: dict[str, dict[str, Any]] = {
    "tme": {
        "qformer_epochs": 1,
        "proj_epochs": 1,
        "last_epochs": 0,
        "partitioner": "percent",
        "noisy_share": 0.4,
    },
    "rde": {"warmup_epochs": 1},
}
TRAINING = {"epochs": 3, "checkpoint_every": 2, "captions": "random4"}


class Killed(BaseException):
    pass


def die_after(steps: int) -> Watcher:
    """Leave the loop as a kill does, with nothing saved, after some steps of this life."""
    seen: list[Any] = []

    def step(entry: Any) -> None:
        seen.append(entry)
        if len(seen) == steps:
            raise Killed

    return Watcher(on_step=step)


def outcome(run: Run) -> tuple[bytes, bytes, list[dict[str, Any]], list[Any]]:
    entries = run.metrics()
    for entry in entries:
        entry.pop("triplets_per_second", None)
    best, last = ((folder / "model.safetensors").read_bytes() for folder in (run.best, run.last))
    ids, values = read_cleanliness(run.cleanliness)
    return best, last, entries, [ids, values.tolist()]


@pytest.fixture(scope="module")
def whole(run_small: Callable[..., Any], pristine: Any) -> dict[str, Run]:
    """Run each without a break; the towers are loaded before, since loading them draws numbers."""
    return {
        name: run_small(method={"name": name, **switches}, training=TRAINING)
        for name, switches in METHODS.items()
    }


@pytest.mark.parametrize(("name", "memory"), [("tme", "ram"), ("tme", "disk"), ("rde", "ram")])
def test_killed_and_resumed(
    name: str, memory: str, whole: dict[str, Run], run_small: Callable[..., Any], tmp_path: Path
) -> None:
    """Five steps an epoch, saved after 2, 4 and 5; the deaths are in the first phases and after the division."""
    folder = tmp_path / "run"
    training = {**TRAINING, "memory": memory}
    with pytest.raises(Killed):
        run_small(folder, method={"name": name, **METHODS[name]}, training=training, watcher=die_after(8))
    for steps in (5, 4):
        with pytest.raises(Killed):
            resume(folder, watcher=die_after(steps))
    found, expected = outcome(resume(folder)), outcome(whole[name])
    for a, b in zip(found[2], expected[2], strict=True):
        assert a == b
    assert found == expected


@pytest.mark.parametrize("name", METHODS)
def test_a_run_records_its_trust_and_its_model_can_judge(name: str, whole: dict[str, Run]) -> None:
    run = whole[name]
    for epoch in range(1, 4):
        _, values = read_cleanliness(run.cleanliness, epoch)
        assert len(values) == 40
        assert np.all((values >= 0) & (values <= 1))
    loaded = load_model(run.last).method
    assert loaded is not None
    divided = [value for key, value in loaded.state_dict().items() if key.endswith("divided")]
    assert divided
    assert all(divided)


def test_the_second_phase_of_tme_leaves_the_backbone_as_it_was(
    whole: dict[str, Run], run_small: Callable[..., Any]
) -> None:
    """One epoch of the first phase, and one of the second after it."""
    switches = {"name": "tme", **METHODS["tme"]}
    states = [
        load_model(run_small(method=switches, training={"epochs": epochs, "schedule": "constant"}).last)
        for epochs in (1, 2)
    ]
    before, after = (state.backbone.trained_state() for state in states)
    methods = [state.method for state in states]
    assert all(method is not None for method in methods)
    rates = [
        entry["learning_rate"]
        for entry in whole["tme"].metrics()
        if entry.get("epoch") == 1 and "step" in entry
    ]
    assert rates == [1e-3] * 5
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == set()
