"""Lines with markers, and the spread over seeds where there is one: what several figures are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triptych.studies.figures.canvas import COLOURS, MARKERS, caption, new_figure, style, wrapped


@dataclass(frozen=True)
class Line:
    """Values over positions.

    Attributes:
        at: where each value stands, rising; numbers, or places of named values.
        mean: the value, the mean over seeds.
        spread: its standard deviation over seeds; 0 where there is one seed.
        runs: how many runs are behind it.
    """

    at: tuple[float, ...]
    mean: tuple[float, ...]
    spread: tuple[float, ...]
    runs: tuple[int, ...]


def draw_lines(
    lines: Mapping[str, Line],
    *,
    xlabel: str,
    ylabel: str,
    names: Sequence[str] | None = None,
    best: bool = False,
    level: tuple[str, float] | None = None,
    whole: bool = False,
    note: str = "",
) -> Any:
    """Draw lines in one panel, the legend beside it.

    Args:
        lines: label to line.
        xlabel: what the positions are, with their unit.
        ylabel: what the values are, with their unit.
        names: what the positions 0, 1, ... are called, where they are no numbers.
        best: ring the highest value of each line and write it.
        level: label and value of a level line.
        whole: the positions are whole numbers, such as epochs.
        note: what a reader must know, below.
    """
    with style():
        from matplotlib.ticker import MaxNLocator

        figure = new_figure(8, 4.2)
        axes = figure.add_subplot()
        for at, (label, line) in enumerate(lines.items()):
            colour, marker = COLOURS[at % len(COLOURS)], MARKERS[(at + at // 6) % 6]
            dash = "-" if at < len(COLOURS) else "--"
            axes.errorbar(
                line.at,
                line.mean,
                yerr=line.spread if any(line.spread) else None,
                color=colour,
                marker=marker,
                markersize=5,
                linewidth=1.8,
                linestyle=dash,
                capsize=3,
                label=wrapped(label, 30),
            )
            if best:
                top = max(range(len(line.mean)), key=line.mean.__getitem__)
                spot = line.at[top], line.mean[top]
                axes.plot(*spot, "o", markersize=11, markerfacecolor="none", markeredgecolor=colour)
                axes.annotate(
                    f"{spot[1]:.1f}",
                    spot,
                    xytext=(0, 9),
                    textcoords="offset points",
                    ha="center",
                    fontsize=9,
                    color=colour,
                )
        if level is not None:
            axes.axhline(level[1], color="black", linewidth=1, linestyle=":", label=level[0])
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        if names is not None:
            axes.set_xticks(range(len(names)), [wrapped(name, 16) for name in names])
        elif whole:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        else:
            axes.set_xticks(sorted({position for line in lines.values() for position in line.at}))
        axes.margins(y=0.14)
        axes.grid(axis="y", alpha=0.2)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9)
        if note:
            caption(figure, note, characters=118)
        return figure
