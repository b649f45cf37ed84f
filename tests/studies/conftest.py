"""Stand-ins for the processes of a study's cells: verbs that do little, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from triptych.studies import run_cells as module


@pytest.fixture
def tiny_runs(
    monkeypatch: pytest.MonkeyPatch, run_small: Any, small_evaluation: Any
) -> list[tuple[str, ...]]:
    """List what was called; training and evaluation are done in this process, on the tiny data."""
    calls: list[tuple[str, ...]] = []

    def verb(environment: Any, *arguments: Any) -> None:
        words = tuple(map(str, arguments))
        calls.append(words)
        (run_small if words[0] == "train" else small_evaluation)(words)

    monkeypatch.setattr(module, "_triptych", verb)
    return calls


@pytest.fixture
def run_small(tiny_benchmark: Path, sizes: dict[str, Any]) -> Any:
    from triptych.methods.ablations import apply_ablations
    from triptych.noise import NoiseManifest
    from triptych.training.train import train

    def run(words: tuple[str, ...]) -> None:
        given = dict(zip(words[1::2], words[2::2], strict=False))
        rows = [given["--ablate"]] if "--ablate" in given else []
        train(
            tiny_benchmark,
            given["-o"],
            method=apply_ablations(rows, {"name": given["--method"]}),
            backbone=sizes,
            noise=NoiseManifest.read(given["--noise"]) if "--noise" in given else None,
            training={"epochs": 1, "batch_size": 8, "seed": int(given["--seed"])},
        )

    return run


@pytest.fixture
def small_evaluation(tiny_benchmark: Path) -> Any:
    from triptych.evaluation import REFERENCE_REMOVED
    from triptych.training.evaluate import evaluate

    def score(words: tuple[str, ...]) -> None:
        which, target = words[words.index("--checkpoint") + 1], Path(words[words.index("--json") + 1])
        context = "--no-context" not in words
        result = evaluate(
            words[1], tiny_benchmark, checkpoint=which, protocol=REFERENCE_REMOVED, context=context
        )
        result.write(target)

    return score
