"""The report of the demo: what was done, the table, the curves, and queries to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from triptych.evaluation import Evaluation, Reference
from triptych.evaluation.tables import percent
from triptych.studies.html.curves import learning_curves_svg
from triptych.studies.html.page import LEGEND, commands, escape, facts, hits, page
from triptych.studies.html.search import query_parts
from triptych.studies.html.views import Answers, Comparison, Figure, ResultRow

COLUMNS: tuple[tuple[str, Reference], ...] = (
    ("R@10", "removed"),
    ("R@50", "removed"),
    ("R@10", "kept"),
    ("R@50", "kept"),
)
"""The columns of the result table."""


def result_row(
    label: str, detail: str, evaluation: Evaluation, *, name: str = "composed", context: bool = False
) -> ResultRow:
    """Take a line of the result table from an evaluation.

    Args:
        label: the method, or the kind of query.
        detail: which epoch; may be empty.
        evaluation: where the figures are.
        name: which of its rows.
        context: whether the line stands for comparison only.

    Raises:
        UsageError: the evaluation has no such row.
    """
    figures = {}
    for metric, reference in COLUMNS:
        row = evaluation.row(name, reference)
        if metric in row.mean:
            figures[metric, reference] = Figure(row.mean[metric], row.intervals.get(metric))
    return ResultRow(label, detail, figures, context)


def demo_report(
    *,
    title: str,
    introduction: Sequence[str],
    settings: Sequence[tuple[str, str]],
    typed: Sequence[str],
    results: Sequence[ResultRow],
    curves: Mapping[str, Sequence[tuple[float, float]]],
    curves_of: str = "R@10, percent",
    baselines: Mapping[str, float] | None = None,
    comparisons: Sequence[Comparison] = (),
    remarks: Sequence[str] = (),
) -> str:
    """Make the report of the demo: a complete HTML document.

    Args:
        title: of the page.
        introduction: paragraphs that say what was done and what to look for.
        settings: names and values: data, noise, epochs, sizes, times.
        typed: the commands that repeat it.
        results: lines of the table, in order; lines of one label stand together.
        curves: label to (epoch, figure) points; none leaves the section out.
        curves_of: what the curves show, with its unit.
        baselines: label to a figure that does not change, drawn as a level line.
        comparisons: queries with what each model found.
        remarks: sentences below the table: how it was scored, what to beware of.
    """
    drawn = learning_curves_svg(curves, ylabel=curves_of, baselines=baselines or {}) if curves else ""
    return page(
        title,
        _section(
            "What was done",
            "".join(f"<p>{escape(paragraph)}</p>" for paragraph in introduction),
            facts(settings) if settings else "",
            commands(typed) if typed else "",
        ),
        _section(
            "The result",
            results_table(results),
            *(f'<p class="remark">{escape(text)}</p>' for text in remarks),
        ),
        _section("Learning curves", f'<figure class="curves">{drawn}</figure>') if drawn else "",
        _section(
            "Queries to look at",
            LEGEND,
            *(_comparison(one, at) for at, one in enumerate(comparisons, 1)),
        )
        if comparisons
        else "",
        subtitle="Composed image retrieval with wrong training triplets: what it costs, and what helps.",
    )


def results_table(results: Sequence[ResultRow]) -> str:
    """Show the lines with a bar behind each figure, as long as its share of the column's best."""
    tops = {
        column: max((row.figures[column].value for row in results if column in row.figures), default=0.0)
        for column in COLUMNS
    }
    groups = "".join(
        f'<th scope="colgroup" colspan="{len(list(columns))}">reference {reference}</th>'
        for reference, columns in groupby(COLUMNS, key=lambda column: column[1])
    )
    heads = "".join(f'<th scope="col">{escape(metric)}</th>' for metric, _ in COLUMNS)
    lines = []
    for row in results:
        cells = "".join(_cell(row.figures.get(column), tops[column]) for column in COLUMNS)
        name = f'<th scope="row">{escape(row.label)}</th><td>{escape(row.detail)}</td>'
        lines.append(f'<tr class="{"context" if row.context else "model"}">{name}{cells}</tr>')
    return (
        '<div class="scroll" tabindex="0"><table class="results"><thead>'
        f'<tr><th rowspan="2" scope="col">method</th><th rowspan="2" scope="col">epoch</th>{groups}</tr>'
        f"<tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _cell(figure: Figure | None, top: float) -> str:
    if figure is None:
        return '<td class="figure">–</td>'
    width = 100 * figure.value / top if top > 0 else 0
    low_high = "–".join(map(percent, figure.interval)) if figure.interval else ""
    interval = f'<span class="interval">{low_high}</span>' if low_high else ""
    bar = f'<span class="bar"><span style="width:{width:.0f}%"></span></span>'
    return f'<td class="figure"><b>{percent(figure.value)}</b>{interval}{bar}</td>'


def _comparison(comparison: Comparison, number: int) -> str:
    rows = "".join(f'<div class="answers">{_answers(answers)}</div>' for answers in comparison.answers)
    return (
        f'<article class="card comparison"><h3>Query {number}</h3>'
        f'<div class="query">{query_parts(comparison.query)}</div><div class="models">{rows}</div></article>'
    )


def _answers(answers: Answers) -> str:
    where = ""
    if answers.target_rank is not None:
        of = f" of {answers.gallery_size}" if answers.gallery_size is not None else ""
        where = f'<span class="where">target at place {answers.target_rank + 1}{of}</span>'
    return f"<h4>{escape(answers.label)} {where}</h4>{hits(answers.hits, 'row')}"


def _section(title: str, *parts: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>"
