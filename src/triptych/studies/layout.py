"""How a study's cells are put into tables: lines and columns, figures under both conventions, what is unfinished."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from triptych.evaluation import Evaluation
from triptych.evaluation.comparison import Comparison, Group, Result, Unfinished, compare
from triptych.evaluation.comparison_tables import (
    MARK,
    NOTHING,
    QuoteMode,
    comparison_notes,
    difference_table,
    honesty_tables,
    matching,
    records,
    spread,
)
from triptych.evaluation.protocols import Reference
from triptych.evaluation.quoted import Quoted, as_printed, quoted_rows
from triptych.evaluation.tables import Table
from triptych.studies.cells import Cell, NoiseLevel, Study

BEST = (
    "Each run counts by its best epoch, which was chosen on the queries that are reported, as in the papers."
)
ANY = "*:"
"""Before a metric: one column for each category."""


@dataclass(frozen=True)
class Line:
    """A line of a table: what it is called, and its cells, which differ in their seed only."""

    label: str
    cells: tuple[Cell, ...]

    @property
    def noise(self) -> NoiseLevel:
        """The noise of its cells."""
        return self.cells[0].noise


@dataclass(frozen=True)
class Printed:
    """Figures that a paper prints for lines of a table on FashionIQ with mix noise, the reference removed.

    Attributes:
        source: paper and table.
        ratio: the rate of the noise.
        figures: label of the line to figures, in the order of ``columns``.
        columns: what they are of.
    """

    source: str
    ratio: float
    figures: Mapping[str, tuple[float, ...]]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """A table to be made.

    Attributes:
        name: of its files.
        title: what it shows.
        lines: from top to bottom, on one data set.
        columns: metrics; ``*:METRIC`` stands for one column a category; empty = all that there are.
        baseline: the label that others are compared with.
        printed: what the paper prints beside it.
        quote: whether figures of the papers' main tables stand beside ours.
        notes: what a reader must know.
    """

    name: str
    title: str
    lines: tuple[Line, ...]
    columns: tuple[str, ...] = ()
    baseline: str | None = None
    printed: Printed | None = None
    quote: bool = True
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """Tables with what they rest on.

    Attributes:
        tables: the table itself under both conventions, then what each figure alone would hide.
        notes: a sentence each.
        records: every figure, flat.
        unfinished: cells without a result, and why.
    """

    tables: tuple[Table, ...]
    notes: tuple[str, ...]
    records: tuple[Mapping[str, Any], ...]
    unfinished: tuple[Unfinished, ...] = field(default=())


def lay_out(study: Study, layout: Layout, *, samples: int = 1000) -> Report:
    """Put what is finished into tables; a cell that is not finished is named, counted and in no mean.

    Args:
        study: whose folder is read.
        layout: what is wanted.
        samples: draws of the paired bootstrap behind differences to the baseline.
    """
    results, unfinished = read_cells(study, layout.lines)
    if not results:
        return Report((_empty(layout),), _nothing(unfinished), (), tuple(unfinished))
    baseline = layout.baseline
    groups_of_baseline = {result.noise for result in results if result.label == baseline}
    has_pairs = any(r.label != baseline and r.noise in groups_of_baseline for r in results)
    comparison = compare(results, unfinished, baseline=baseline if has_pairs else None, samples=samples)
    mode: QuoteMode = "same" if layout.quote else "none"
    tables = [_figures(comparison, layout, reference) for reference in comparison.protocol.conventions]
    if comparison.differences:
        tables += [difference_table(comparison, each) for each in comparison.protocol.conventions]
    tables += honesty_tables(comparison)
    notes = [*layout.notes, *comparison_notes(comparison, mode), BEST]
    if layout.printed and _is_printed_setting(comparison):
        notes.append(f"{layout.printed.source}: quoted, not measured here (BLIP-2 ViT-g, reference removed).")
    kept = [{"table": layout.name, **record} for record in records(comparison, mode)]
    return Report(tuple(tables), tuple(notes), tuple(kept), tuple(unfinished))


def read_cells(study: Study, lines: Sequence[Line]) -> tuple[list[Result], list[Unfinished]]:
    """Read the evaluation of each cell's best model, under its line's label."""
    results: list[Result] = []
    unfinished: list[Unfinished] = []
    for line in lines:
        for cell in line.cells:
            folder = study.folder / cell.name
            if study.is_done(cell):
                evaluation = Evaluation.read(folder / "evaluation-best.json")
                results.append(Result(cell.name, evaluation, cell.seed, {}, line.label))
            else:
                begun = (folder / "config.json").is_file()
                unfinished.append(Unfinished(cell.name, "begun, not finished" if begun else "not run"))
    return results, unfinished


def recall_columns(study: Study, layouts: Sequence[Layout]) -> dict[str, dict[str, str]]:
    """Return each method's and ablation row's average recall, the reference removed: a column a data set and noise."""
    found: dict[str, dict[str, str]] = {}
    for layout in layouts:
        for line in layout.lines:
            results, _ = read_cells(study, [line])
            variant = line.cells[0].row or line.cells[0].method
            if not results:
                continue
            evaluation = results[0].evaluation
            metric = next(iter(evaluation.protocol.averages), evaluation.protocol.selection[0])
            values = Group(line.label, "", tuple(results)).figures(metric, reference="removed")
            suffix = f" ({len(results)} of {len(line.cells)} seeds)" if len(results) < len(line.cells) else ""
            column = f"{evaluation.data} {metric}, {line.noise.name}"
            found.setdefault(variant, {})[column] = spread(values) + suffix
    return found


def _figures(comparison: Comparison, layout: Layout, reference: Reference) -> Table:
    columns = _columns(comparison, layout.columns)
    rows: list[tuple[str, ...]] = []
    quoted: list[bool] = []
    printed = matching(comparison, "same" if layout.quote else "none")
    groups = {(group.method, group.results[0].name): group for group in comparison.groups}
    for line in layout.lines:
        group = next(
            (groups[line.label, cell.name] for cell in line.cells if (line.label, cell.name) in groups), None
        )
        rows.append(
            (line.label, _noise(line, group), _seeds(line, group), *_cells(group, columns, reference))
        )
        quoted.append(False)
        extra = [row for row in printed if (row.method, row.noise) == _setting(line)]
        rows += [_quoted(row, columns) for row in extra if row.reference in (None, reference)]
        if reference == "removed" and (own := _printed(comparison, layout, line, columns)):
            rows.append(own)
        quoted += [True] * (len(rows) - len(quoted))
    headline = reference == comparison.protocol.headline
    return Table(
        title=f"{layout.title}: {comparison.data}/{comparison.split}, reference {reference}"
        + (" (headline)" if headline else ""),
        header=("method", "noise", "seeds", *(c.replace(ANY, "") for c in columns)),
        rows=tuple(rows),
        names=3,
        headline=(False,) * len(rows),
        quoted=tuple(quoted),
    )


def _columns(comparison: Comparison, wanted: Sequence[str]) -> list[str]:
    """Name the columns that there are figures for; those of a category as ``CATEGORY:METRIC``."""
    rows = [row for group in comparison.groups for result in group.results for row in result.evaluation.rows]
    there = {metric for row in rows for metric in row.mean} | set(comparison.metrics)
    several = list(comparison.gallery_sizes) if len(comparison.gallery_sizes) > 1 else []
    found: list[str] = []
    by_category = [each.removeprefix(ANY) for each in wanted if each.startswith(ANY)]
    for each in wanted or comparison.metrics:
        if each.startswith(ANY):
            own = [
                f"{category}:{metric}" for category in several for metric in by_category if metric in there
            ]
            found += [name for name in own if name not in found]
        elif each in there:
            found.append(each)
    return found or list(comparison.metrics)


def _cells(group: Group | None, columns: Sequence[str], reference: Reference) -> list[str]:
    if group is None:
        return [NOTHING] * len(columns)
    return [_figure(group, column, reference) for column in columns]


def _figure(group: Group, column: str, reference: Reference) -> str:
    category, colon, metric = column.rpartition(":")
    if colon:
        return spread(group.by_category(category, metric, reference))
    return spread(group.figures(metric, reference=reference))


def _seeds(line: Line, group: Group | None) -> str:
    """Say which seeds a figure is of, and how many are not finished."""
    finished = {} if group is None else {result.name: result.seed for result in group.results}
    missing = [cell for cell in line.cells if cell.name not in finished]
    seeds = ", ".join(str(cell.seed) for cell in line.cells if cell.name in finished)
    if not missing:
        return seeds
    return f"{seeds + '; ' if seeds else ''}{len(missing)} of {len(line.cells)} not finished"


def _noise(line: Line, group: Group | None) -> str:
    return line.noise.name if group is None else group.noise


def _setting(line: Line) -> tuple[str, float] | None:
    noise = line.noise
    return (line.label, noise.ratio) if noise.kind == "mix" and not noise.oracle else None


def _quoted(row: Quoted, columns: Sequence[str]) -> tuple[str, ...]:
    def figure(column: str) -> str:
        category, colon, metric = column.rpartition(":")
        own = row.categories.get(category, {}) if colon else row.mean
        return as_printed(own[metric]) if metric in own else NOTHING

    stated = "" if row.reference else "reference not stated"
    return (f"{row.method} ({MARK})", f"mix {100 * row.noise:g} %", stated, *map(figure, columns))


def _printed(
    comparison: Comparison, layout: Layout, line: Line, columns: Sequence[str]
) -> tuple[str, ...] | None:
    """Return what the paper prints for an ablation's line, where the setting is the same."""
    printed, noise = layout.printed, line.noise
    if printed is None or not _is_printed_setting(comparison) or line.label not in printed.figures:
        return None
    if (noise.kind, noise.ratio, noise.oracle) != ("mix", printed.ratio, False):
        return None
    figures = dict(zip(printed.columns, printed.figures[line.label], strict=False))
    cells = [as_printed(figures[column]) if column in figures else NOTHING for column in columns]
    return (f"{line.label} ({MARK})", f"mix {100 * noise.ratio:g} %", "", *cells)


def _is_printed_setting(comparison: Comparison) -> bool:
    """Say whether the galleries are FashionIQ's official ones, which printed figures are of."""
    official = {row.gallery_hash for row in quoted_rows() if row.data == "fashioniq"}
    return comparison.gallery_hash in official


def _empty(layout: Layout) -> Table:
    return Table(
        title=f"{layout.title}: nothing is finished",
        header=("method", "noise", "seeds"),
        rows=tuple((line.label, line.noise.name, _seeds(line, None)) for line in layout.lines),
        names=3,
        headline=(False,) * len(layout.lines),
    )


def _nothing(unfinished: Sequence[Unfinished]) -> tuple[str, ...]:
    each = "; ".join(f"{one.name} ({one.reason})" for one in unfinished)
    return (f"{len(unfinished)} runs are not finished and are in no mean: {each}.",)
