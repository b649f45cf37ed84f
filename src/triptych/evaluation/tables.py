"""An evaluation as people read it: plain rows, Markdown, tables for the terminal; percent, one decimal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from triptych.evaluation.phrasings import phrasing_spread
from triptych.evaluation.report import Evaluation, NoiseInfo, Row
from triptych.triplets.text import PHRASINGS

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
        quoted: for each row, whether it is quoted from a paper; empty where none is.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int
    headline: tuple[bool, ...]
    notes: tuple[str, ...] = ()
    quoted: tuple[bool, ...] = ()

    def is_quoted(self, row: int) -> bool:
        """Say whether a row is quoted from a paper."""
        return bool(self.quoted) and self.quoted[row]


def percent(value: float) -> str:
    """Write a figure that is percent already, with one decimal.

    Example:
        >>> percent(48.16), percent(100.0)
        ('48.2', '100.0')
    """
    return f"{value:.1f}"


def to_tables(evaluation: Evaluation, *, by_category: bool = False) -> tuple[Table, ...]:
    """Lay an evaluation out: tables of recall, of subset recall and averages, and of mAP, where there are any.

    Args:
        evaluation: what to show.
        by_category: a line for every category in place of the means with their intervals, and mAP by what the
            text asks for, where that is annotated.
    """
    metrics = list(dict.fromkeys(metric for row in evaluation.rows for metric in row.mean))
    averages = [metric for metric in metrics if metric in evaluation.protocol.averages]
    single = [metric for metric in metrics if metric not in averages]
    kinds = [[metric for metric in single if metric.startswith(kind)] for kind in ("R@", "R_sub@", "mAP@")]
    if kinds[1]:
        kinds[1] += averages  # else a sentence says them, see provenance
    lay_out = _by_category if by_category else _means
    tables = [lay_out(evaluation, own) for own in kinds if own]
    if by_category and any(row.aspects for row in evaluation.rows):
        tables.append(_by_aspect(evaluation))
    return tuple(tables)


def to_markdown(evaluation: Evaluation) -> str:
    """Write an evaluation as Markdown: the means, the categories, and what they rest on."""
    tables = [table for part in (False, True) for table in to_tables(evaluation, by_category=part)]
    notes = "\n".join(f"- {note}" for note in provenance(evaluation))
    return "\n\n".join([*map(markdown_table, tables), notes]) + "\n"


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
    for number, cells in enumerate(table.rows):
        style = "italic dim" if table.is_quoted(number) else "bold" if table.headline[number] else None
        drawn.add_row(*map(escape, cells), style=style)
    return drawn


def provenance(evaluation: Evaluation) -> tuple[str, ...]:
    """Say what the figures rest on, a sentence each: model, noise, protocol, gallery, interval, oddities."""
    model, noise = evaluation.model, evaluation.noise
    epoch = "" if model.epoch is None else f", epoch {model.epoch}"
    epoch += "" if model.seed is None else f", seed {model.seed}"
    trained = "No noise manifest."
    if noise:
        trained = f"Trained with noise: {noise.name} ({noise.fingerprint[:12]}){effective_noise(noise)}."
    galleries = ", ".join(f"{category} {size}" for category, size in evaluation.gallery_sizes.items())
    joined = ""
    if evaluation.captions != "fixed":
        joined = f"; captions joined: {PHRASINGS.get(evaluation.captions, evaluation.captions)}"
    interval = (
        f"; in brackets the {100 * evaluation.level:g} % bootstrap interval "
        f"({evaluation.bootstrap_samples} draws, seed {evaluation.seed})"
    )
    return (
        f"Model: {model.name} (method {model.method}, backbone {model.backbone}{epoch}). {trained}",
        f"Protocol: {evaluation.protocol.name}; headline: reference {evaluation.protocol.headline}{joined}.",
        f"{evaluation.rows[0].num_queries} queries; gallery: {galleries} images "
        f"(hash {evaluation.gallery_hash[:12]}).",
        "Figures are percent, the mean over the categories"
        + (f"{interval}." if evaluation.bootstrap_samples else "."),
        *_averages(evaluation),
        *_phrasings(evaluation),
        *evaluation.notes,
    )


def _phrasings(evaluation: Evaluation) -> list[str]:
    """Say how far apart the joins of the captions are, where more than one was scored."""
    metric, reference = evaluation.protocol.selection[0], evaluation.protocol.headline
    spread = phrasing_spread(evaluation, metric, reference)
    if spread is None:
        return []
    low, high = map(percent, spread)
    return [
        f"Over the ways to word the text, {metric} (reference {reference}) lies between {low} and {high}."
    ]


def _averages(evaluation: Evaluation) -> list[str]:
    """Say the averages that have no table, of what composes."""
    if evaluation.protocol.subset_ks:
        return []
    composed = [row for row in evaluation.rows if row.name == evaluation.rows[0].name]
    return [
        f"{name} (the mean of {' and '.join(parts)}), {composed[0].name}: "
        + ", ".join(f"{_mean(row, name)} reference {row.reference}" for row in composed)
        + "."
        for name, parts in evaluation.protocol.averages.items()
        if all(name in row.mean for row in composed)
    ]


def effective_noise(noise: NoiseInfo) -> str:
    """Say how many of the triplets a manifest changed, which is below what was asked for."""
    if noise.ratio is None:
        return ""
    asked = "" if noise.asked is None else f" of {100 * noise.asked:g} % asked for"
    dropped = "; the wrong triplets were left out" if noise.dropped else ""
    return f", {percent(100 * noise.ratio)} % of the triplets changed{asked}{dropped}"


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


def _by_aspect(evaluation: Evaluation) -> Table:
    lines = [(row, aspect, own) for row in evaluation.rows for aspect, own in row.aspects.items()]
    metrics = list(dict.fromkeys(metric for _, _, own in lines for metric in own))
    return Table(
        title=f"{evaluation.model.name} on {evaluation.data}/{evaluation.split} by semantic aspect, percent",
        header=("query", "reference", "aspect", *metrics),
        rows=tuple(
            (row.name, row.reference, aspect, *(percent(own[metric]) for metric in metrics))
            for row, aspect, own in lines
        ),
        names=3,
        headline=tuple(row.reference == evaluation.protocol.headline for row, _, _ in lines),
    )


def markdown_table(table: Table) -> str:
    """Write one table as Markdown, its title above it; quoted rows are in italics."""

    def line(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rule = tuple("---" if position < table.names else "---:" for position in range(len(table.header)))
    rows = [
        tuple(f"*{cell}*" if cell else "" for cell in row) if table.is_quoted(number) else row
        for number, row in enumerate(table.rows)
    ]
    return "\n".join([f"**{table.title}**", "", *map(line, (table.header, rule, *rows))])
