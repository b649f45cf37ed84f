"""The small backbone, and runs and models of it."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triptych.triplets import Benchmark


@pytest.fixture(scope="session", autouse=True)
def towers(shared_towers: None) -> None:
    """Every run here has the same frozen towers."""


@pytest.fixture(scope="session")
def pristine(sizes: dict[str, Any], lite_weights: None) -> Any:
    """The small backbone, untrained; nobody changes it."""
    from triptych.backbones.registry import create_backbone

    return create_backbone(sizes, seed=0).eval()


@pytest.fixture
def small(pristine: Any) -> Any:
    """A small backbone of the test's own."""
    return own_copy(pristine)


@pytest.fixture(scope="session")
def fresh(pristine: Any) -> Callable[[], Any]:
    """Make small backbones, all with the same untrained weights."""
    return lambda: own_copy(pristine)


def own_copy(backbone: Any) -> Any:
    """Copy a backbone, but not its frozen towers."""
    towers = [getattr(backbone, name) for name in backbone.frozen]
    return copy.deepcopy(backbone, {id(tower): tower for tower in towers})


@pytest.fixture(scope="session")
def run_small(
    bench: Benchmark, sizes: dict[str, Any], lite_weights: None, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Any]:
    """Train on the tiny data with the small backbone; ``training`` and other settings may be given."""
    from triptych.training.train import train

    def run(folder: Path | None = None, *, data: Any = bench, training: Any = (), **settings: Any) -> Any:
        steps = {"epochs": 2, "batch_size": 8, **dict(training)}
        where = folder or tmp_path_factory.mktemp("small") / "run"
        return train(data, where, training=steps, **{"method": "infonce", "backbone": sizes, **settings})

    return run


@pytest.fixture(scope="session")
def small_run(run_small: Callable[..., Any]) -> Any:
    """A finished run of three epochs with every diagnostic; a test that changes it copies it first."""
    return run_small(training={"epochs": 3, "term_gradients_every": 4, "checkpoint_every": 3})


@pytest.fixture(scope="session")
def aligned(
    bench: Benchmark, sizes: dict[str, Any], lite_weights: None, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A small backbone aligned on what the train pictures of the tiny data show, such as "plain small red circle"."""
    from triptych.training.align import align

    pairs = [(image, image.replace("-", " ")) for image in bench.train.image_ids()]
    folder = tmp_path_factory.mktemp("aligned") / "model"
    settings = {"epochs": 40, "batch_size": len(pairs), "learning_rate": 3e-3}
    align(bench.images, pairs, folder, backbone=sizes, settings=settings)
    return folder
