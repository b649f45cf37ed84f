"""Results of made-up runs, and the tiny run opened on its data."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triptych.evaluation import FASHIONIQ, Evaluation, ModelInfo, NoiseInfo
from triptych.evaluation.comparison import Result
from triptych.evaluation.report import Row


@pytest.fixture(scope="session")
def result() -> Callable[..., Result]:
    """Make a result: ``result("intent", 0.5, 20.0)`` scored R@10 = 20 with half of the triplets drawn to be wrong."""

    def make(
        method: str,
        rate: float | None,
        value: float,
        *,
        seed: int = 0,
        kind: str = "mix",
        data: str = "toy",
        dropped: bool = False,
        **settings: str,
    ) -> Result:
        rows = tuple(
            Row(
                name="composed",
                reference=side,
                num_queries=4,
                num_with_answers=0,
                categories={"all": {"R@10": value + more}},
                mean={"R@10": value + more},
            )
            for side, more in (("kept", 0.0), ("removed", 1.0))
        )
        noise = None
        if rate is not None:
            noise = NoiseInfo(name="n", fingerprint="f", kind=kind, ratio=rate, asked=rate, dropped=dropped)
        name = f"{method}-{rate}-{seed}-{'-'.join(settings.values())}"
        evaluation = Evaluation(
            protocol=FASHIONIQ,
            data=data,
            split="val",
            gallery_sizes={"all": 9},
            gallery_hash=data * 4,
            model=ModelInfo(name=name, method=method, backbone="lite", seed=seed),
            noise=noise,
            seed=0,
            bootstrap_samples=0,
            level=0.95,
            rows=rows,
        )
        return Result(
            name, evaluation, seed, {key.replace("__", "."): each for key, each in settings.items()}
        )

    return make


@pytest.fixture(scope="session")
def opened(tiny_run: Path, bench: Any) -> Any:
    """The tiny run (InfoNCE) on the tiny data."""
    from triptych.studies.figures.opened_run import OpenedRun

    return OpenedRun.open(tiny_run, bench)
