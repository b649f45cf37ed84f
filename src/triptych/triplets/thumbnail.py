"""A small copy of a picture that a page can hold."""

from __future__ import annotations

import base64
import io

from PIL import Image


def thumbnail_data_uri(image: Image.Image, side: int = 160, *, quality: int = 85) -> str:
    """Shrink a picture into a ``side`` x ``side`` box and write it as a base64 JPEG data URI.

    Proportions stay, and a smaller picture is not enlarged. Transparent parts become white.

    Args:
        image: a picture of any mode.
        side: longest side in pixels, at least 1.
        quality: of the JPEG, 1 to 95.
    """
    if side < 1:
        raise ValueError(f"side must be at least 1 pixel, got {side}")
    if "A" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    small = image.convert("RGB")
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=quality, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
