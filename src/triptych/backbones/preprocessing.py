"""Pictures to square pixel arrays with Pillow and NumPy alone (specification 1.2)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from PIL import Image

MAX_PADDED_PIXELS = 64_000_000
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)

Preprocessing = Literal["target_pad", "square_pad", "centre_crop", "squash"]
"""How a picture becomes a square: padded to 1.25 and cropped (specification 1.2, TargetPad), padded to a square,
cropped as it is (CLIP's own processor in transformers), or squeezed (SigLIP's own)."""


def to_square(image: Image.Image, size: int, how: Preprocessing = "target_pad") -> Image.Image:
    """Make an RGB picture a square of ``size`` pixels a side; bicubic."""
    if how == "squash":
        return image.resize((size, size), Image.Resampling.BICUBIC)
    if how == "square_pad":
        image = target_pad(image, 1.0)
    elif how == "target_pad":
        image = target_pad(image)
    return resize_and_crop(image, size, floor=how == "centre_crop")


def seen_part(
    width: int, height: int, how: Preprocessing = "target_pad"
) -> tuple[float, float, float, float]:
    """Say which part of a picture becomes the square: left, top, right, bottom in shares of its width and height.

    Less than 0 or more than 1 is padding.

    Example:
        >>> seen_part(100, 100), seen_part(100, 80, "centre_crop")
        ((0.0, 0.0, 1.0, 1.0), (0.1, 0.0, 0.9, 1.0))
        >>> seen_part(100, 50)  # padded to 100 x 80
        (0.1, -0.3, 0.9, 1.3)
    """
    if how == "squash":
        return 0.0, 0.0, 1.0, 1.0
    long_side, short_side = max(width, height), min(width, height)
    side = {
        "centre_crop": float(short_side),
        "square_pad": float(long_side),
        "target_pad": max(float(short_side), long_side / 1.25),
    }[how]
    across, down = side / width / 2, side / height / 2
    left, top, right, bottom = (
        round(edge, 6) for edge in (0.5 - across, 0.5 - down, 0.5 + across, 0.5 + down)
    )
    return left, top, right, bottom


def target_pad(image: Image.Image, ratio: float = 1.25) -> Image.Image:
    """Pad the short sides with black until the picture is at most ``ratio`` times as long as it is wide.

    A strip so extreme that its padded picture would pass 64 megapixels is reduced first.
    """
    width, height = image.size
    long_side = max(width, height)
    if long_side < ratio * min(width, height):
        return image
    if long_side * long_side / ratio > MAX_PADDED_PIXELS:
        scale = (MAX_PADDED_PIXELS * ratio) ** 0.5 / long_side
        width, height = max(1, int(width * scale)), max(1, int(height * scale))
        image = image.resize((width, height), Image.Resampling.BICUBIC)
        long_side = max(width, height)
    goal = long_side / ratio
    horizontal = max(int((goal - width) / 2), 0)
    vertical = max(int((goal - height) / 2), 0)
    padded = Image.new("RGB", (width + 2 * horizontal, height + 2 * vertical))
    padded.paste(image, (horizontal, vertical))
    return padded


def resize_and_crop(image: Image.Image, size: int, *, floor: bool = False) -> Image.Image:
    """Resize the shorter side to ``size`` (bicubic, the longer side truncated), then crop the centre square.

    The crop's corner is rounded, half to even, as torchvision does; ``floor`` cuts it, as transformers does.
    """
    width, height = image.size
    if width <= height:
        scaled = (size, max(size, int(size * height / width)))
    else:
        scaled = (max(size, int(size * width / height)), size)
    image = image.resize(scaled, Image.Resampling.BICUBIC)
    left, top = ((side - size) // 2 if floor else round((side - size) / 2) for side in scaled)
    return image.crop((left, top, left + size, top + size))


def to_pixels(image: Image.Image) -> np.ndarray:
    """Turn an RGB picture into ``[3, H, W]`` float32 in [0, 1]."""
    channels_last = np.asarray(image, dtype=np.float32)
    pixels: np.ndarray = np.ascontiguousarray(channels_last.transpose(2, 0, 1)) / np.float32(255.0)
    return pixels
