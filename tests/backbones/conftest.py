"""One lite backbone of the default size and one small enough to encode a picture in a millisecond."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from triptych.triplets import ImageStore


@pytest.fixture(scope="session")
def lite(lite_weights: None) -> Any:
    """Lite as a user gets it, untrained, in eval mode."""
    from triptych.backbones.registry import create_backbone

    return create_backbone({"name": "lite"}, seed=0).eval()


@pytest.fixture(scope="session")
def small(lite_weights: None) -> Any:
    """Lite at 32 px: one token of 16 values a picture."""
    from triptych.backbones.registry import create_backbone

    sizes = {"image_size": 32, "image_width": 16, "hidden": 24, "heads": 2, "queries": 3, "dim": 12}
    return create_backbone({"name": "lite", **sizes}, seed=0).eval()


@pytest.fixture
def photos(tmp_path: Path) -> Callable[..., ImageStore]:
    """Make a folder of ``count`` different pictures, ``p0`` first; ``colour`` shifts all of them."""

    def make(count: int, colour: int = 0, name: str = "photos") -> ImageStore:
        folder = tmp_path / name
        folder.mkdir()
        for number in range(count):
            pixels = np.zeros((8, 8, 3), dtype=np.uint8)
            pixels[:, : number % 8 + 1] = (10 * number % 256, colour, 255 - number)
            Image.fromarray(pixels).save(folder / f"p{number}.png")
        return ImageStore.open(folder)

    return make
