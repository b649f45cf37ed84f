"""``triptych figure``: draw what the papers draw, from finished runs and data."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import typer

from triptych.cli import figure_charts as charts
from triptych.cli import figure_pictures as pictures
from triptych.studies.figures.catalogue import FIGURES

app = typer.Typer(
    rich_markup_mode="markdown",
    add_completion=False,
    no_args_is_help=True,
)

COMMANDS: dict[str, Callable[..., None]] = {
    "learning": charts.learning,
    "sensitivity": charts.sensitivity,
    "retention": charts.retention,
    "noise-ranks": charts.noise_ranks,
    "trusted": charts.trusted,
    "triplets": pictures.triplets,
    "negative-cosine": charts.negative_cosine,
    "negative-results": pictures.negative_results,
    "loyalty-ranks": charts.loyalty_ranks,
    "similarity": charts.similarity,
    "interventions": pictures.interventions,
    "counterfactuals": pictures.counterfactuals,
    "attention": pictures.attention,
    "results": pictures.results,
}
"""Each figure's command by its name."""


@app.callback()
def figure() -> None:
    """Draw a figure of the papers from finished runs: PNG, SVG, and its numbers as JSON.

    The same runs and options give the same bytes. docs/figures.md says what to read from each.
    """


def _drawing(command: Callable[..., None]) -> Callable[..., None]:
    """Look for matplotlib before anything slow is done."""

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        from triptych.studies.figures.canvas import require_matplotlib

        require_matplotlib()
        command(*arguments, **options)

    return run


for name, summary in FIGURES.items():
    app.command(name, help=summary)(_drawing(COMMANDS[name]))
