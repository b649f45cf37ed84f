"""ConeSep through the whole training: where its negative queries start, and that a killed run ends the same."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from triptych.backbones.lite import LiteBackbone
from triptych.training.cleanliness import read_cleanliness
from triptych.training.loop import Watcher
from triptych.training.model import load_model, read_weights
from triptych.training.run import Run
from triptych.training.train import resume

METHOD = {"name": "conesep", "boundary_every": 3, "boundary_draws": 2}
TRAINING = {"epochs": 3, "checkpoint_every": 2, "schedule": "constant"}


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
def whole(run_small: Callable[..., Any], pristine: Any) -> Run:
    """A run without a break; the towers are loaded before, since loading them draws numbers."""
    run: Run = run_small(method=METHOD, training={**TRAINING, "term_gradients_every": 1})
    return run


def test_a_run(whole: Run) -> None:
    steps = [entry for entry in whole.metrics() if entry["kind"] == "step"]
    for entry in steps:
        other = "inter" if entry["epoch"] < 2 else "unlearn"
        assert set(entry["losses"]) == {"total", "robust", "intra", other}
        assert entry["term_gradients"][other] > 0
        assert 0 <= entry["diagnostics"]["noisy"] <= (entry["epoch"] > 0)
    floors = [entry["diagnostics"]["boundary"] for entry in steps]  # five steps an epoch; drawn at 0 and 3
    assert floors[5] == floors[6] == floors[7] != floors[8] == floors[9] != floors[10]
    for epoch in range(1, 4):
        _, values = read_cleanliness(whole.cleanliness, epoch)
        assert len(values) == 40
        assert np.all((values >= 0) & (values <= 1))
        assert bool(np.all(values == 1)) == (epoch == 1)
    method, (tensors, _) = load_model(whole.last).method, read_weights(whole.last)
    assert method is not None
    assert torch.equal(method.state_dict()["negative_tokens"], tensors["method.negative_tokens"])


def test_killed_and_resumed(whole: Run, run_small: Callable[..., Any], tmp_path: Path) -> None:
    """Saved after steps 2, 4 and 5 of an epoch; the deaths are in all three, between two draws of the floor."""
    folder = tmp_path / "run"
    training = {**TRAINING, "term_gradients_every": 1}
    with pytest.raises(Killed):
        run_small(folder, method=METHOD, training=training, watcher=die_after(3))
    for steps in (7, 4):
        with pytest.raises(Killed):
            resume(folder, watcher=die_after(steps))
    assert outcome(resume(folder)) == outcome(whole)


def test_negative_tokens_leave_the_aligned_backbones(run_small: Callable[..., Any], aligned: Path) -> None:
    """With a rate of next to nothing they stay the query tokens of the backbone that training began with."""
    run = run_small(
        method="conesep", init=aligned, training={"epochs": 1, "learning_rate": 1e-12, "schedule": "constant"}
    )
    tensors, _ = read_weights(run.last)
    aligned_tensors, _ = read_weights(aligned)
    start = aligned_tensors["backbone.query_tokens"][0]
    torch.testing.assert_close(tensors["method.negative_tokens"], start)


def test_no_text_is_encoded_in_a_step(
    run_small: Callable[..., Any], pristine: LiteBackbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Captions and their denials are prepared before the epoch; validation has texts of its own."""
    encoded: list[list[str]] = []
    encode = pristine.minilm._encode
    monkeypatch.setattr(pristine.minilm, "_recent", {})
    monkeypatch.setattr(pristine.minilm, "_encode", lambda texts: (encoded.append(texts), encode(texts))[1])
    texts: list[int] = []  # encoded so far, after each step
    watcher = Watcher(on_step=lambda step: texts.append(len([text for part in encoded for text in part])))
    run_small(method="conesep", training={"epochs": 1}, watcher=watcher)
    assert len(set(texts)) == 1
    run_small(method={"name": "conesep", "neg_phrase": "step"}, training={"epochs": 1}, watcher=watcher)
    assert len(set(texts)) > 1
