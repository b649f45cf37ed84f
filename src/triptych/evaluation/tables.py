"""An evaluation as people read it: plain rows, Markdown, tables for the terminal; percent, one decimal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from triptych.evaluation.report import Evaluation, Row

if TYPE_CHECKING:
    import rich.table


@dataclass(frozen=True)
class Table:
    """Plain cells under heads, of one kind of metric.

    Attributes:
        title: what was scored, on what, and the unit.
        header: column heads; the first ``names`` of them head words, the others numbers.
        rows: as many cells each.
        names: how many columns hold words.
        headline: for each row, whether it is of the protocol's headline convention.
        notes: what the figures rest on; to stand below the table.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int
    headline: tuple[bool, ...]
    notes: tuple[str, ...] = ()


def percent(value: float) -> str:
    """Write a figure that is percent already, with one decimal.

    Example:
        >>> percent(48.16), percent(100.0)
        ('48.2', '100.0')
    """
    return f"{value:.1f}"


def to_tables(evaluation: Evaluation, *, by_category: bool = False) -> tuple[Table, ...]:
    """Lay an evaluation out: a table of recall and, where right answers are known, one of mAP.

    Args:
        evaluation: what to show.
        by_category: a line for every category in place of the means with their intervals.
    """
    metrics = list(dict.fromkeys(metric for row in evaluation.rows for metric in row.mean))
    kinds = {kind: [metric for metric in metrics if metric.startswith(kind)] for kind in ("R@", "mAP@")}
    lay_out = _by_category if by_category else _means
    return tuple(lay_out(evaluation, own) for own in kinds.values() if own)


def to_markdown(evaluation: Evaluation) -> str:
    """Write an evaluation as Markdown: the means, the categories, and what they rest on."""
    tables = [table for part in (False, True) for table in to_tables(evaluation, by_category=part)]
    notes = "\n".join(f"- {note}" for note in provenance(evaluation))
    return "\n\n".join([*map(_markdown, tables), notes]) + "\n"


def rich_table(table: Table) -> rich.table.Table:
    """Make a table for the terminal, its headline rows bold; it fits 80 columns."""
    from rich.box import SIMPLE
    from rich.markup import escape
    from rich.table import Table as RichTable

    drawn = RichTable(
        title=escape(table.title),
        caption=escape("\n".join(table.notes)),
        caption_justify="left",
        box=SIMPLE,
        pad_edge=False,
        collapse_padding=True,
    )
    for position, head in enumerate(table.header):
        drawn.add_column(escape(head), justify="left" if position < table.names else "right")
    for cells, headline in zip(table.rows, table.headline, strict=True):
        drawn.add_row(*map(escape, cells), style="bold" if headline else None)
    return drawn


def provenance(evaluation: Evaluation) -> tuple[str, ...]:
    """Say what the figures rest on, a sentence each: model, noise, protocol, gallery, interval, oddities."""
    model, noise = evaluation.model, evaluation.noise
    epoch = "" if model.epoch is None else f", epoch {model.epoch}"
    trained = (
        f"Trained with noise: {noise.name} ({noise.fingerprint[:12]})." if noise else "No noise manifest."
    )
    galleries = ", ".join(f"{category} {size}" for category, size in evaluation.gallery_sizes.items())
    interval = (
        f"; in brackets the {100 * evaluation.level:g} % bootstrap interval "
        f"({evaluation.bootstrap_samples} draws, seed {evaluation.seed})"
    )
    return (
        f"Model: {model.name} (method {model.method}, backbone {model.backbone}{epoch}). {trained}",
        f"Protocol: {evaluation.protocol.name}; headline: reference {evaluation.protocol.headline}.",
        f"{evaluation.rows[0].num_queries} queries; gallery: {galleries} images "
        f"(hash {evaluation.gallery_hash[:12]}).",
        "Figures are percent, the mean over the categories"
        + (f"{interval}." if evaluation.bootstrap_samples else "."),
        *evaluation.notes,
    )


def _means(evaluation: Evaluation, metrics: list[str]) -> Table:
    rows = evaluation.rows
    return Table(
        title=f"{evaluation.model.name} on {evaluation.data}/{evaluation.split}, percent",
        header=("query", "reference", *metrics),
        rows=tuple((row.name, row.reference, *(_mean(row, metric) for metric in metrics)) for row in rows),
        names=2,
        headline=tuple(row.reference == evaluation.protocol.headline for row in rows),
        notes=provenance(evaluation) if metrics[0].startswith("R@") else (),
    )


def _mean(row: Row, metric: str) -> str:
    if metric not in row.mean:
        return "–"
    if metric not in row.intervals:
        return percent(row.mean[metric])
    low, high = row.intervals[metric]
    return f"{percent(row.mean[metric])} [{percent(low)}–{percent(high)}]"


def _by_category(evaluation: Evaluation, metrics: list[str]) -> Table:
    lines = [(row, category, own) for row in evaluation.rows for category, own in row.categories.items()]
    return Table(
        title=f"{evaluation.model.name} on {evaluation.data}/{evaluation.split} by category, percent",
        header=("query", "reference", "category", *metrics),
        rows=tuple(
            (
                row.name,
                row.reference,
                category,
                *(percent(own[metric]) if metric in own else "–" for metric in metrics),
            )
            for row, category, own in lines
        ),
        names=3,
        headline=tuple(row.reference == evaluation.protocol.headline for row, _, _ in lines),
    )


def _markdown(table: Table) -> str:
    def line(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rule = tuple("---" if position < table.names else "---:" for position in range(len(table.header)))
    return "\n".join([f"**{table.title}**", "", *map(line, (table.header, rule, *table.rows))])
