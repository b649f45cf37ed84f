"""SPRC through the whole training: it runs, it records, its best model can be loaded."""

from collections.abc import Callable
from typing import Any

import numpy as np

from triptych.training.cleanliness import read_cleanliness
from triptych.training.model import load_model


def test_a_run(run_small: Callable[..., Any]) -> None:
    run = run_small(method="sprc", training={"horizon_epochs": 3, "schedule": "onecycle"})
    steps = [entry for entry in run.metrics() if entry["kind"] == "step"]
    assert set(steps[0]["losses"]) == {"total", "infonce", "prompt", "align"}
    ids, values = read_cleanliness(run.cleanliness)
    assert len(ids) == len(steps) // 2 * 8
    assert np.all((values >= 0) & (values <= 1))
    assert load_model(run.folder).method is not None
