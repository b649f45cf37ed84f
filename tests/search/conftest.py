"""Engines on the tiny gallery."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def model(tiny_model: Any) -> Any:
    """The model of the tiny gallery."""
    return tiny_model


@pytest.fixture(scope="session")
def engine(gallery_folder: Path, model: Any) -> Any:
    from triptych.search import GalleryEngine

    return GalleryEngine(gallery_folder, model=model)


@pytest.fixture(scope="session")
def engine_of(model: Any) -> Callable[..., Any]:
    """Make engines without loading the model again."""
    from triptych.search import GalleryEngine

    return lambda folder, **settings: GalleryEngine(folder, model=model, **settings)
