"""An evaluation as people read it: plain rows, Markdown, a table for the terminal; percent, one decimal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from triptych.evaluation.report import Evaluation, Row

if TYPE_CHECKING:
    import rich.table


@dataclass(frozen=True)
class Table:
    """A title, column heads, and rows of as many cells; ``notes`` stand below."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def percent(value: float) -> str:
    """Write a figure that is percent already, with one decimal.

    Example:
        >>> percent(48.16), percent(100.0)
        ('48.2', '100.0')
    """
    return f"{value:.1f}"


def to_table(evaluation: Evaluation, *, by_category: bool = False) -> Table:
    """Lay an evaluation out: the means with their intervals, or every category on a line of its own."""
    return _categories(evaluation) if by_category else _means(evaluation)


def to_markdown(evaluation: Evaluation) -> str:
    """Write an evaluation as Markdown: the means, the categories, and what they rest on."""
    return "\n\n".join(_markdown(to_table(evaluation, by_category=part)) for part in (False, True)) + "\n"


def rich_table(evaluation: Evaluation, *, by_category: bool = False) -> rich.table.Table:
    """Make a table for the terminal; the headline rows are bold."""
    from rich.markup import escape
    from rich.table import Table as RichTable

    table = to_table(evaluation, by_category=by_category)
    drawn = RichTable(
        title=escape(table.title), caption=escape("\n".join(table.notes)), caption_justify="left"
    )
    for position, head in enumerate(table.header):
        drawn.add_column(escape(head), justify="left" if position < 2 else "right")
    for cells in table.rows:
        drawn.add_row(*map(escape, cells), style="bold" if cells[1] == evaluation.protocol.headline else None)
    return drawn


def _means(evaluation: Evaluation) -> Table:
    metrics = _metrics(evaluation)
    return Table(
        title=f"{evaluation.model.name} on {evaluation.data}/{evaluation.split}, percent",
        header=("query", "reference", *metrics),
        rows=tuple(
            (row.name, row.reference, *(_cell(row, metric) for metric in metrics)) for row in evaluation.rows
        ),
        notes=tuple(_provenance(evaluation)),
    )


def _cell(row: Row, metric: str) -> str:
    if metric not in row.mean:
        return "–"
    if metric not in row.intervals:
        return percent(row.mean[metric])
    low, high = row.intervals[metric]
    return f"{percent(row.mean[metric])} [{percent(low)}, {percent(high)}]"


def _categories(evaluation: Evaluation) -> Table:
    metrics = _metrics(evaluation)
    return Table(
        title=f"{evaluation.model.name} on {evaluation.data}/{evaluation.split}, by category, percent",
        header=("query", "reference", "category", "gallery", *metrics),
        rows=tuple(
            (
                row.name,
                row.reference,
                category,
                str(evaluation.gallery_sizes[category]),
                *(percent(figures[metric]) if metric in figures else "–" for metric in metrics),
            )
            for row in evaluation.rows
            for category, figures in row.categories.items()
        ),
    )


def _metrics(evaluation: Evaluation) -> list[str]:
    return list(dict.fromkeys(metric for row in evaluation.rows for metric in row.mean))


def _provenance(evaluation: Evaluation) -> list[str]:
    model, noise = evaluation.model, evaluation.noise
    epoch = f", epoch {model.epoch}" if model.epoch is not None else ""
    lines = [
        f"Model: {model.name} (method {model.method}, backbone {model.backbone}{epoch}). "
        + (
            f"Trained with noise: {noise.name} ({noise.fingerprint[:12]})." if noise else "No noise manifest."
        ),
        f"Protocol: {evaluation.protocol.name}; headline: reference {evaluation.protocol.headline}. "
        f"{evaluation.rows[0].num_queries} queries; "
        f"gallery: {', '.join(f'{category} {size}' for category, size in evaluation.gallery_sizes.items())} "
        f"images (hash {evaluation.gallery_hash[:12]}).",
        "Figures are percent, the mean over the categories"
        + (
            f"; in brackets the {100 * evaluation.level:g} % bootstrap interval "
            f"({evaluation.bootstrap_samples} draws, seed {evaluation.seed})."
            if evaluation.bootstrap_samples
            else "."
        ),
    ]
    return [*lines, *evaluation.notes]


def _markdown(table: Table) -> str:
    def line(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rule = tuple("---" if position < 2 else "---:" for position in range(len(table.header)))
    lines = [f"**{table.title}**", "", *map(line, (table.header, rule, *table.rows))]
    return "\n".join(lines + (["", *(f"- {note}" for note in table.notes)] if table.notes else []))
