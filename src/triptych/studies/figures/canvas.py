"""How every figure looks and how it is written: PNG, SVG and its numbers, the same bytes for the same input."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from triptych.errors import UsageError
from triptych.files import atomic_path, write_json

FORMAT = "triptych-figure-1"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's: apart for colour-blind eyes too."""
MARKERS = "osD^vP"
"""As many as colours, so that a seventh line takes the first colour with the second marker."""
BLUE, ORANGE, GREEN = COLOURS[:3]
GREY = "#6b7280"
HEAT = "cividis"
"""Colours of heat maps: even steps of brightness, the same for colour-blind eyes."""
PNG_DPI = 160

_SETTINGS = {
    "svg.hashsalt": "triptych",
    "svg.fonttype": "none",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": False,
    "image.composite_image": False,
    "legend.frameon": False,
    "text.parse_math": False,
}


def require_matplotlib() -> None:
    """Raise ``UsageError`` where matplotlib is not installed; say how to install it."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UsageError("figures need matplotlib: pip install 'triptych[figures]'") from error


@contextmanager
def style() -> Iterator[None]:
    """Draw in the style of these figures.

    Raises:
        UsageError: matplotlib is not installed.
    """
    require_matplotlib()
    import matplotlib

    with matplotlib.rc_context(_SETTINGS):
        yield


def new_figure(width: float, height: float, *, arranged: bool = True) -> Any:
    """Make an empty figure of a size in inches, without pyplot's global state; inside :func:`style`.

    ``arranged`` lets matplotlib make room for labels; a figure that is laid out by hand does without.
    """
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained" if arranged else None, facecolor="white")


def write_figure(figure: Any, stem: Path, name: str, numbers: Any, notes: Sequence[str] = ()) -> list[Path]:
    """Write ``stem``.png, ``stem``.svg and ``stem``.json; each whole or not at all.

    Args:
        figure: of matplotlib.
        stem: path without ending.
        name: of the figure, as the command line calls it.
        numbers: a dataclass of what was drawn; arrays become lists of 6 significant digits.
        notes: what a reader must know of them.

    Returns:
        The three paths.

    Raises:
        DataError: they cannot be written.
    """
    paths = []
    with style():
        for kind, options in (
            ("png", {"dpi": PNG_DPI}),
            ("svg", {"dpi": PNG_DPI, "metadata": {"Date": None, "Creator": None}}),
        ):
            path = stem.with_name(f"{stem.name}.{kind}")
            with atomic_path(path) as temporary:
                figure.savefig(temporary, format=kind, **options)
            paths.append(path)
    path = stem.with_name(f"{stem.name}.json")
    write_json(path, {"format": FORMAT, "figure": name, "notes": list(notes), "numbers": plain(numbers)})
    return [*paths, path]


def plain(value: Any) -> Any:
    """Turn dataclasses and arrays into what JSON holds; not a number becomes null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if np.isfinite(value) else None
    if isinstance(value, np.generic):
        return plain(value.item())
    return value


def read_numbers(path: Path) -> dict[str, Any]:
    """Read the numbers of a figure that :func:`write_figure` wrote, to check or redraw them."""
    numbers: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["numbers"]
    return numbers


def wrapped(text: str, width: int, lines: int | None = None) -> str:
    """Break a text into lines of at most ``width`` characters; what is beyond ``lines`` is cut, with an ellipsis."""
    found = textwrap.wrap(text, width, break_long_words=True) or [""]
    if lines is not None and len(found) > lines:
        found = [*found[: lines - 1], found[lines - 1][: width - 1].rstrip() + "…"]
    return "\n".join(found)


def caption(figure: Any, text: str, *, characters: int) -> None:
    """Write what a reader must know below a figure."""
    figure.supxlabel(wrapped(text, characters), fontsize=8.5, color=GREY, x=0.01, ha="left")
