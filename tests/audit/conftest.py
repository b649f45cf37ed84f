"""A small audit of the tiny data, half of its triplets made wrong, and the small backbone's sizes."""

from typing import Any

import pytest

from triptych.triplets import Benchmark


@pytest.fixture(scope="session", autouse=True)
def towers(shared_towers: None) -> None:
    """Every run here has the same frozen towers."""


@pytest.fixture(scope="session")
def settings(sizes: dict[str, Any]) -> dict[str, Any]:
    return {"folds": 2, "rounds": 2, "epochs": 1, "batch_size": 8, "backbone": sizes, "swaps": 2}


@pytest.fixture(scope="session")
def small_audit(
    bench: Benchmark, settings: dict[str, Any], lite_weights: None, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """A finished audit of the tiny data with noise; a test that changes it copies it first."""
    from triptych.audit import audit
    from triptych.noise import inject

    folder = tmp_path_factory.mktemp("audits")
    noise = inject(bench.train, kind="mix", ratio=0.5, seed=42)
    noise.write(folder / "noise.json")
    return audit(bench, folder=folder / "audit", noise=noise, settings=settings)
