"""A small audit of the tiny data, half of its triplets made wrong, and the small backbone's sizes."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from triptych.triplets import Benchmark, read_benchmark

SIZES = {
    "name": "lite",
    "image_size": 64,
    "image_width": 32,
    "hidden": 32,
    "heads": 2,
    "queries": 4,
    "dim": 16,
}
SETTINGS = {
    "folds": 2,
    "rounds": 2,
    "epochs": 1,
    "batch_size": 8,
    "backbone": SIZES,
    "swaps": 2,
}


@pytest.fixture(scope="session", autouse=True)
def shared_towers() -> Iterator[None]:
    """Load the frozen towers once instead of once a run."""
    from triptych.backbones import lite

    with pytest.MonkeyPatch.context() as patch:
        for name in ("load_efficientnet_lite0", "MiniLMStates"):
            patch.setattr(lite, name, cache(getattr(lite, name)))
        yield


@pytest.fixture(scope="session")
def settings() -> dict[str, Any]:
    return dict(SETTINGS)


@pytest.fixture(scope="session")
def bench(tiny_benchmark: Path) -> Benchmark:
    return read_benchmark(tiny_benchmark)


@pytest.fixture(scope="session")
def small_audit(bench: Benchmark, lite_weights: None, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A finished audit of the tiny data with noise; a test that changes it copies it first."""
    from triptych.audit import audit
    from triptych.noise import inject

    folder = tmp_path_factory.mktemp("audits")
    noise = inject(bench.train, kind="mix", ratio=0.5, seed=42)
    noise.write(folder / "noise.json")
    return audit(bench, folder=folder / "audit", noise=noise, settings=SETTINGS)
