"""The tiny data set in memory, and a backbone so small that a step takes some milliseconds."""

import copy
from collections.abc import Callable, Iterator
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


@pytest.fixture(scope="session", autouse=True)
def shared_towers() -> Iterator[None]:
    """Load the frozen towers once instead of once a run, which takes a second each time."""
    from triptych.backbones import lite

    with pytest.MonkeyPatch.context() as patch:
        for name in ("load_efficientnet_lite0", "MiniLMStates"):
            patch.setattr(lite, name, cache(getattr(lite, name)))
        yield


@pytest.fixture(scope="session")
def sizes() -> dict[str, Any]:
    """Settings of the small backbone."""
    return dict(SIZES)


@pytest.fixture(scope="session")
def bench(tiny_benchmark: Path) -> Benchmark:
    return read_benchmark(tiny_benchmark)


@pytest.fixture(scope="session")
def pristine(lite_weights: None) -> Any:
    """The small backbone, untrained; nobody changes it."""
    from triptych.backbones.registry import create_backbone

    return create_backbone(SIZES, seed=0).eval()


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
    bench: Benchmark, lite_weights: None, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Any]:
    """Train on the tiny data with the small backbone; ``training`` and other settings may be given."""
    from triptych.training.train import train

    def run(folder: Path | None = None, *, data: Any = bench, training: Any = (), **settings: Any) -> Any:
        steps = {"epochs": 2, "batch_size": 8, **dict(training)}
        where = folder or tmp_path_factory.mktemp("small") / "run"
        return train(data, where, training=steps, **{"method": "infonce", "backbone": SIZES, **settings})

    return run


@pytest.fixture(scope="session")
def small_run(run_small: Callable[..., Any]) -> Any:
    """A finished run of three epochs with every diagnostic; a test that changes it copies it first."""
    return run_small(training={"epochs": 3, "term_gradients_every": 4, "checkpoint_every": 3})


@pytest.fixture(scope="session")
def aligned(bench: Benchmark, lite_weights: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small backbone aligned on what the train pictures of the tiny data show, such as "plain small red circle"."""
    from triptych.training.align import align

    pairs = [(image, image.replace("-", " ")) for image in bench.train.image_ids()]
    folder = tmp_path_factory.mktemp("aligned") / "model"
    settings = {"epochs": 40, "batch_size": len(pairs), "learning_rate": 3e-3}
    align(bench.images, pairs, folder, backbone=SIZES, settings=settings)
    return folder
