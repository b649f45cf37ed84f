"""Learning curves as a drawing that sits inside a page; the same numbers give the same bytes."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

from triptych.errors import UsageError

_COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
)  # Okabe and Ito: safe for colour-blind eyes
_MARKERS = "osD^vP"
_DASHES = ("--", ":", "-.")
_INK = "#010203"  # stands for the page's own text colour, light or dark


def learning_curves_svg(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    *,
    ylabel: str = "R@10, percent",
    xlabel: str = "epoch",
    baselines: Mapping[str, float] | None = None,
) -> str:
    """Draw curves as an ``<svg>`` element for an HTML page.

    The best point of each curve is ringed; the curves differ by colour and by marker. The ink follows the
    page's text colour.

    Args:
        curves: label to (epoch, value) points, in order.
        ylabel: what the values are, with the unit.
        xlabel: what the positions are.
        baselines: label to a value that does not change, drawn as a level line.

    Raises:
        UsageError: matplotlib is not installed.
        ValueError: there is no curve, or one has no point.
    """
    if not curves or not all(curves.values()):
        raise ValueError("there is no curve to draw, or one has no point")
    try:
        import matplotlib
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        raise UsageError("curves need matplotlib: pip install 'triptych[figures]'") from error

    settings = {
        "svg.hashsalt": "triptych",
        "svg.fonttype": "none",
        "font.size": 10,
        "axes.unicode_minus": False,
    }
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(9.5, 4), layout="constrained")
        axes = figure.add_subplot()
        for at, (label, points) in enumerate(curves.items()):
            epochs, values = zip(*points, strict=True)
            colour, marker = _COLOURS[at % len(_COLOURS)], _MARKERS[at % len(_MARKERS)]
            axes.plot(
                epochs, values, color=colour, marker=marker, markersize=4, linewidth=1.8, label=_plain(label)
            )
            best = max(points, key=lambda point: point[1])
            axes.plot(
                *best, "o", markersize=11, markerfacecolor="none", markeredgecolor=colour, markeredgewidth=1.5
            )
            axes.annotate(
                f"{best[1]:.1f}",
                best,
                xytext=(0, 9),
                textcoords="offset points",
                ha="center",
                color=_INK,
                fontsize=9,
            )
        for at, (label, value) in enumerate((baselines or {}).items()):
            dash = _DASHES[at % len(_DASHES)]
            axes.axhline(value, color=_INK, alpha=0.6, linewidth=1.2, linestyle=dash, label=_plain(label))
        axes.set_xlabel(_plain(xlabel), color=_INK)
        axes.set_ylabel(_plain(ylabel), color=_INK)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.margins(y=0.12)
        axes.grid(axis="y", color=_INK, alpha=0.12)
        axes.tick_params(colors=_INK)
        for side, spine in axes.spines.items():
            spine.set_visible(side in ("left", "bottom"))
            spine.set_color(_INK)
        axes.legend(frameon=False, labelcolor=_INK, loc="center left", bbox_to_anchor=(1, 0.5))
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    drawing = buffer.getvalue()
    drawing = drawing[drawing.index("<svg") :].replace(_INK, "currentColor")
    return drawing.replace("<svg ", '<svg role="img" aria-label="Learning curves" ', 1).strip()


def _plain(label: str) -> str:
    """Keep matplotlib from reading ``$`` as mathematics."""
    return label.replace("$", r"\$")
