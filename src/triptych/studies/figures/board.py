"""A board on which pictures and texts are placed by inches, for figures that are made of pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from triptych.studies.figures.canvas import GREEN, GREY, new_figure, wrapped

RIGHT = GREEN
"""Frame of a right answer."""
_PIXELS = 220
"""Of a picture, for each inch: twice what the PNG shows of it, so that the SVG may be enlarged."""
_CHARACTERS = 14.4
"""Of 9 point text, an inch."""

Loader = Callable[[str], Image.Image]
"""Image id to RGB picture; the data set's own decoder, which bounds what it reads."""


class Board:
    """An empty board; inside :func:`~triptych.studies.figures.canvas.style`.

    Positions are inches from the top left corner.

    Args:
        width: in inches.
        height: in inches.
    """

    def __init__(self, width: float, height: float) -> None:
        self.figure = new_figure(width, height, arranged=False)
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_axis_off()
        self.axes.set_xlim(0, width)
        self.axes.set_ylim(height, 0)
        self.width, self.height = width, height

    def picture(
        self,
        image: Image.Image,
        x: float,
        y: float,
        side: float,
        *,
        frame: str | None = None,
        dashed: bool = False,
    ) -> None:
        """Put a picture, whole, in the middle of a square; ``frame`` is the colour of a frame around the square."""
        from matplotlib.patches import Rectangle

        shown = image.convert("RGB")
        pixels = round(side * _PIXELS)
        shown.thumbnail((pixels, pixels), Image.Resampling.LANCZOS)
        width, height = (side * each / max(shown.size) for each in shown.size)
        left, top = x + (side - width) / 2, y + (side - height) / 2
        self.axes.imshow(
            np.asarray(shown),
            extent=(left, left + width, top + height, top),
            interpolation="antialiased",
            aspect="auto",
            zorder=1,
        )
        line = 2.6 if frame else 0.6
        self.axes.add_patch(
            Rectangle(
                (x, y),
                side,
                side,
                fill=False,
                edgecolor=frame or "#c4c8ce",
                linewidth=line,
                linestyle="--" if dashed else "-",
                zorder=2,
            )
        )
        self._whole()

    def pixels(self, values: np.ndarray, x: float, y: float, side: float, **settings: Any) -> None:
        """Put ``[3, H, W]`` pixels in [0, 1] as a picture."""
        shown = np.round(np.clip(values, 0, 1).transpose(1, 2, 0) * 255).astype(np.uint8)
        self.picture(Image.fromarray(shown), x, y, side, **settings)

    def heat(self, picture: Image.Image, values: np.ndarray, x: float, y: float, side: float) -> None:
        """Lay ``[h, w]`` values over a square picture: it is clear at the largest value and dark at the smallest."""
        self.picture(picture, x, y, side)
        low, high = float(values.min()), float(values.max())
        strength = (values - low) / max(high - low, 1e-12)
        self.axes.imshow(
            np.dstack([np.full(values.shape, each) for each in (0.0, 0.0, 0.0)] + [0.72 * (1 - strength)]),
            extent=(x, x + side, y + side, y),
            interpolation="nearest",
            aspect="auto",
            zorder=1.5,
        )
        self._whole()

    def text(
        self,
        words: str,
        x: float,
        y: float,
        width: float,
        *,
        size: float = 9,
        lines: int | None = None,
        **settings: Any,
    ) -> None:
        """Write a text from its top left corner on, broken at a width in inches."""
        characters = max(4, int(width * _CHARACTERS * 9 / size))
        settings = {"va": "top", "ha": "left", "fontsize": size, "linespacing": 1.25, **settings}
        self.axes.text(x, y, wrapped(words, characters, lines), **settings)

    def line(self, x0: float, y0: float, x1: float, y1: float) -> None:
        """Draw a thin line."""
        self.axes.plot([x0, x1], [y0, y1], color="#d7dade", linewidth=0.8)

    def note(self, words: str, y: float) -> None:
        """Write what a reader must know, in grey."""
        self.text(words, 0.2, y, self.width - 0.4, size=8.5, color=GREY)

    def _whole(self) -> None:
        self.axes.set_xlim(0, self.width)
        self.axes.set_ylim(self.height, 0)
