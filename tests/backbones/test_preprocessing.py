"""Pictures to square pixel arrays."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from triptych.backbones.preprocessing import resize_and_crop, seen_part, target_pad, to_pixels, to_square
from triptych.triplets import ImageStore


@pytest.mark.parametrize(
    ("size", "padded"),
    [
        ((100, 100), (100, 100)),
        ((100, 125), (100, 125)),  # exactly 1.25
        ((100, 200), (160, 200)),  # 200 / 1.25 = 160: 30 on each side
        ((200, 100), (200, 160)),
        ((101, 200), (159, 200)),  # (160 - 101) / 2 = 29.5, cut to 29
        ((1, 2000), (1599, 2000)),
        ((2000, 1), (2000, 1599)),
        ((1, 1), (1, 1)),
    ],
)
def test_target_pad_by_hand(size: tuple[int, int], padded: tuple[int, int]) -> None:
    result = target_pad(Image.new("RGB", size, "white"))
    assert result.size == padded
    left = (padded[0] - size[0]) // 2
    columns = np.asarray(result)[padded[1] // 2, :, 0] > 0
    assert columns.sum() == size[0]
    assert columns[left]


def test_an_extreme_strip_takes_little_memory() -> None:
    """1 x 60000 padded as it is would be 48000 x 60000, or 8.6 GB."""
    result = target_pad(Image.new("RGB", (1, 60_000)))
    assert result.width * result.height <= 65_000_000
    assert result.height / result.width == pytest.approx(1.25, rel=0.01)


@given(width=st.integers(1, 300), height=st.integers(1, 300), size=st.sampled_from([32, 160]))
def test_any_picture_becomes_a_square_in_range(width: int, height: int, size: int) -> None:
    picture = Image.new("RGB", (width, height), (255, 128, 0))
    pixels = to_pixels(resize_and_crop(target_pad(picture), size))
    assert pixels.shape == (3, size, size)
    assert pixels.dtype == np.float32
    assert pixels.flags["C_CONTIGUOUS"]
    assert pixels.min() >= 0
    assert pixels.max() <= 1
    assert pixels[0].max() > 0  # however thin, it is still seen
    assert pixels[2].max() == 0


def test_the_centre_is_cropped() -> None:
    """60 x 30 to 10: resized to 20 x 10, then columns 5 to 15: half of the red and half of the blue."""
    picture = Image.new("RGB", (60, 30), "red")
    picture.paste("blue", (30, 0, 60, 30))
    pixels = to_pixels(resize_and_crop(picture, 10))
    assert pixels[0, 5, :3] == pytest.approx(1, abs=0.02)
    assert pixels[2, 5, -3:] == pytest.approx(1, abs=0.02)
    np.testing.assert_allclose(pixels[0, 5] + pixels[2, 5], 1, atol=0.02)


def test_the_shorter_side_is_resized_and_the_longer_truncated() -> None:
    """35 x 50 to 10: 10 x 14 (14.28 cut), rows 2 to 12; a ramp keeps its middle."""
    ramp = Image.fromarray(np.repeat(np.arange(50, dtype=np.uint8)[:, None] * 5, 35, axis=1)).convert("RGB")
    pixels = to_pixels(resize_and_crop(ramp, 10)) * 255
    expected = (np.arange(2, 12) + 0.5) * 50 / 14 * 5 - 2.5
    np.testing.assert_allclose(pixels[0, :, 5], expected, atol=2)


def test_awkward_files(shared: Path) -> None:
    store = ImageStore.open(shared / "data" / "bad-inputs" / "images")
    for name in ("one_pixel", "tall_1x2000", "wide_2000x1"):
        pixels = to_pixels(resize_and_crop(target_pad(store.load(name)), 160))
        assert pixels.shape == (3, 160, 160)


@pytest.mark.parametrize("how", ["target_pad", "square_pad", "centre_crop", "squash"])
@pytest.mark.parametrize("size", [(200, 200), (240, 200), (400, 100), (90, 300)])
def test_the_part_that_is_seen_is_where_the_square_comes_from(how: Any, size: tuple[int, int]) -> None:
    """A gradient says of each pixel which column and row of the picture it was."""
    width, height = size
    across, down = np.meshgrid(np.linspace(1, 255, width), np.linspace(1, 255, height))
    picture = Image.fromarray(np.stack([across, down, np.full_like(across, 255)], axis=2).astype(np.uint8))
    square = np.asarray(to_square(picture, 100, how)).astype(float)
    left, top, right, bottom = seen_part(width, height, how)
    for row, column in ((50, 50), (40, 60), (50, 30), (70, 50)):
        if square[row, column, 2] < 250:  # padding
            continue
        x, y = left + (column + 0.5) / 100 * (right - left), top + (row + 0.5) / 100 * (bottom - top)
        assert square[row, column, 0] == pytest.approx(1 + 254 * x, abs=5)
        assert square[row, column, 1] == pytest.approx(1 + 254 * y, abs=5)
