"""Picture bytes to RGB, correctly or not at all: never half grey, never inverted, never a bomb."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from triptych.errors import DataError

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
"""What may be opened. Each format is one more parser that reads bytes from strangers: the list is short."""

MAX_PIXELS = 64_000_000
"""Larger pictures are refused from their header, before memory is taken."""

_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""EXIF orientation to the turn that undoes it; 1 and unknown values need none."""

_ORIENTATION_TAG = 0x0112


class ImageError(DataError):
    """A picture that cannot be used: which, why, and the mend.

    Attributes:
        kind: ``missing``, ``unreadable``, ``empty``, ``not_an_image``, ``truncated``, ``too_large`` or
            ``unsupported``.
        image_id: the id that was asked for.
    """

    def __init__(
        self,
        problem: str,
        *,
        kind: str,
        image_id: str,
        file: str | Path | None = None,
        mend: str | None = None,
    ) -> None:
        super().__init__(problem, file=file, mend=mend)
        self.kind, self.image_id = kind, image_id

    def __reduce__(self) -> tuple[Any, ...]:
        """Survive the way back from a worker process, which knows an error's text only."""
        return partial(ImageError, kind=self.kind, image_id=self.image_id), self.args, self.__dict__


def decode_image(
    data: bytes, name: str, *, max_pixels: int = MAX_PIXELS, image_id: str | None = None
) -> Image.Image:
    """Decode a picture to RGB as a viewer would show it, on white where it is transparent.

    EXIF rotation is applied, CMYK and palettes become RGB, 16 bits are scaled to 8, one channel becomes
    three, and an animation gives its first frame.

    Args:
        data: the bytes of a JPEG, PNG, WebP, GIF, BMP or TIFF file.
        name: the file's name, for the error.
        max_pixels: the most pixels that a picture may have.
        image_id: the id that the error carries; ``name`` where it is not given.

    Raises:
        ImageError: the bytes are not such a picture, are cut off, damaged or too large.
    """

    def refuse(kind: str, problem: str, mend: str) -> ImageError:
        return ImageError(problem, kind=kind, image_id=image_id or name, file=name, mend=mend)

    if not data:
        raise refuse("empty", "the file has no bytes", "Fetch it again, or remove the triplets that use it.")
    try:
        picture = Image.open(io.BytesIO(data), formats=FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise refuse("too_large", f"the picture is too large: {error}", _shrink(max_pixels)) from error
    except Exception as error:  # a decoder may raise anything on bytes that it was not made for
        mend = f"Use one of {', '.join(FORMATS)}; a wrong file ending does not matter."
        raise refuse("not_an_image", "this is not a picture that can be read", mend) from error
    width, height = picture.size
    if width * height > max_pixels:
        raise refuse("too_large", f"{width} x {height} pixels are too many", _shrink(max_pixels))
    try:
        picture.load()
        rgb = _upright(_to_rgb(picture), picture)
    except _Unsupported as error:
        raise refuse("unsupported", str(error), "Save it as an 8-bit RGB picture.") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise refuse("too_large", f"the picture is too large: {error}", _shrink(max_pixels)) from error
    except Exception as error:
        raise refuse(
            "truncated", f"the picture is cut off or damaged ({error})", "Fetch it again."
        ) from error
    if min(rgb.size) < 1:
        raise refuse("not_an_image", f"the picture has no area: {width} x {height}", "Replace it.")
    return rgb


class _Unsupported(ValueError):
    """A pixel format whose white is not known."""


def _shrink(max_pixels: int) -> str:
    return f"Shrink it to at most {max_pixels:,} pixels, or remove it."


def _to_rgb(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith("I"):
        return _from_16_bit(picture)
    if picture.mode in ("F", "LAB"):
        raise _Unsupported(f"pixels of mode {picture.mode} have no stated white")
    if picture.has_transparency_data:
        layer = picture.convert("RGBA")
        page = Image.new("RGBA", layer.size, "white")
        page.alpha_composite(layer)
        return page.convert("RGB")
    return picture.convert("RGB")


def _from_16_bit(picture: Image.Image) -> Image.Image:
    levels = np.asarray(picture).astype(np.int64)
    if levels.size and (levels.min() < 0 or levels.max() > 0xFFFF):
        raise _Unsupported("32-bit pixels have no stated white")
    grey = np.rint(levels / 257.0).astype(np.uint8)
    transparent = picture.info.get("transparency")
    if isinstance(transparent, int):
        grey[levels == transparent] = 255
    return Image.fromarray(grey).convert("RGB")


def _upright(rgb: Image.Image, picture: Image.Image) -> Image.Image:
    try:
        turn = _UPRIGHT.get(picture.getexif().get(_ORIENTATION_TAG, 1))
    except Exception:  # broken EXIF data says nothing about the pixels, which are fine
        turn = None
    return rgb if turn is None else rgb.transpose(turn)
