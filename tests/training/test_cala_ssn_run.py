"""CALA and SSN, whose targets are one vector of their own: trained, judged and searched from end to end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triptych.search import SearchEngine
from triptych.search.engine import gallery_of
from triptych.training.evaluate import CONTEXT_ROWS, evaluate
from triptych.training.loop import Watcher
from triptych.training.model import load_model
from triptych.training.train import resume
from triptych.triplets import Benchmark

TERMS = {"cala": {"total", "contrastive", "reasoning"}, "ssn": {"total", "matching", "shift"}}


@pytest.mark.parametrize("name", TERMS)
def test_a_run(name: str, run_small: Callable[..., Any], bench: Benchmark) -> None:
    run = run_small(method=name, training={"term_gradients_every": 2})
    steps, validations = (
        [entry for entry in run.metrics() if entry["kind"] == kind] for kind in ("step", "validation")
    )
    assert {frozenset(entry["losses"]) for entry in steps} == {frozenset(TERMS[name])}
    gradients = steps[0]["term_gradients"]
    assert set(gradients) == TERMS[name] - {"total"}
    assert all(norm > 0 for norm in gradients.values())
    assert [entry["within_image_cosine"] for entry in validations] == [
        None,
        None,
    ]  # of one vector there is none

    model = load_model(run.last)
    result = evaluate(model, bench, context=True, samples=0)
    assert result.row("composed", "kept").mean == pytest.approx(validations[-1]["metrics"]["kept"])
    for row in CONTEXT_ROWS:
        assert all(0 <= recall <= 100 for recall in result.row(row, "kept").mean.values())

    engine = SearchEngine(model, bench, gallery_of(bench, split="val"))
    reference = engine.gallery[0]
    for question in (
        {"text": "is red"},
        {"reference": reference},
        {"reference": reference, "text": "is red"},
    ):
        hits = engine.search(**question, top=3)
        assert len(hits) == 3
        assert all(-1 <= hit.score <= 1 + 1e-5 for hit in hits)


@pytest.mark.parametrize("name", TERMS)
def test_a_run_that_goes_on_ends_in_the_same_bytes(
    name: str, run_small: Callable[..., Any], tmp_path: Path
) -> None:
    """Dropout of the method's own layers included: it is drawn anew from the step."""
    whole = run_small(tmp_path / "whole", method=name, training={"checkpoint_every": 3})

    def stop(step: Any) -> None:
        if (step.epoch, step.step) == (1, 4):
            raise KeyError("a crash after a step that no checkpoint holds")

    with pytest.raises(KeyError, match="a crash"):
        run_small(
            tmp_path / "stopped",
            method=name,
            training={"checkpoint_every": 3},
            watcher=Watcher(on_step=stop),
        )
    again = resume(tmp_path / "stopped")
    for folder in ("last", "best"):
        first, second = (getattr(run, folder) / "model.safetensors" for run in (whole, again))
        assert first.read_bytes() == second.read_bytes()
