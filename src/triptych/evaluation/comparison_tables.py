"""A comparison as tables: figures under both conventions, differences, honesty rows, and what the papers print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from triptych.evaluation.comparison import Comparison, Group
from triptych.evaluation.metrics import FloatArray
from triptych.evaluation.phrasings import phrasing_spread
from triptych.evaluation.protocols import Reference
from triptych.evaluation.quoted import Quoted, as_printed, quoted_rows
from triptych.evaluation.tables import Table, percent

QuoteMode = Literal["same", "papers", "none"]
"""Which of the papers' rows are shown: of the same method, noise and galleries; all of these galleries; none."""

HALVES = ("image-only", "text-only")
NOTHING = "–"
MARK = "quoted"


def comparison_tables(
    comparison: Comparison, *, quote: QuoteMode = "same", by_category: bool = False
) -> tuple[Table, ...]:
    """Lay a comparison out.

    Args:
        comparison: what to show.
        quote: which of the papers' figures stand beside ours, marked as quoted.
        by_category: also a table for every category.
    """
    tables = [_figures(comparison, reference, quote) for reference in comparison.protocol.conventions]
    if by_category:
        categories = [name for name in comparison.gallery_sizes if len(comparison.gallery_sizes) > 1]
        tables += [_category(comparison, name, comparison.protocol.headline, quote) for name in categories]
    if comparison.differences:
        tables += [difference_table(comparison, reference) for reference in comparison.protocol.conventions]
    tables += honesty_tables(comparison)
    return tuple(tables)


def matching(comparison: Comparison, quote: QuoteMode) -> tuple[Quoted, ...]:
    """Return the papers' rows that were scored on the same split and galleries, of the noise that is in the table."""
    if quote == "none":
        return ()
    ours = {
        (group.method.partition(" (")[0], rate) for group in comparison.groups for rate in [_mix_rate(group)]
    }
    return tuple(
        row
        for row in quoted_rows()
        if (row.split, row.gallery_hash) == (comparison.split, comparison.gallery_hash)
        and (quote == "papers" or (row.method, row.noise) in ours)
    )


def comparison_notes(comparison: Comparison, quote: QuoteMode = "same") -> tuple[str, ...]:
    """Say what the tables rest on: protocol, gallery, seeds, what is unfinished, where quoted figures are from."""
    runs = sum(len(group.results) for group in comparison.groups)
    galleries = ", ".join(f"{name} {size}" for name, size in comparison.gallery_sizes.items())
    notes = [
        f"Protocol: {comparison.protocol.name}; headline: reference {comparison.protocol.headline}. "
        f"{comparison.data}/{comparison.split}; gallery: {galleries} images (hash {comparison.gallery_hash[:12]}).",
        f"{runs} finished runs. Figures are percent: the mean over seeds ± its standard deviation"
        " (of the sample; none for a single seed).",
    ]
    if comparison.unfinished:
        each = "; ".join(f"{one.name} ({one.reason})" for one in comparison.unfinished)
        notes.append(f"{len(comparison.unfinished)} runs are not finished and are in no mean: {each}.")
    notes += comparison.notes
    rows = matching(comparison, quote)
    for number, (source, backbone) in enumerate(_sources(rows), start=1):
        notes.append(
            f"[{number}] Quoted, not measured here: {source} ({backbone}); averages are recomputed from the cells."
        )
    for row in rows:
        for paper, averages in row.printed.items():
            wrong = [
                f"{metric} {as_printed(value)} in place of {as_printed(row.mean[metric])}"
                for metric, value in averages.items()
                if abs(value - row.mean[metric]) > 0.0151
            ]
            if wrong:
                notes.append(f"{paper} prints for {row.method} at {100 * row.noise:g} %: {', '.join(wrong)}.")
    if comparison.protocol.name == "cirr" and comparison.split != "test1" and quote != "none":
        notes.append(
            f"The papers' CIRR figures are of test1, from the server; they do not stand beside {comparison.split}."
        )
    return tuple(notes)


def records(comparison: Comparison, quote: QuoteMode = "same") -> list[dict[str, Any]]:
    """Return every figure as a flat record, unrounded: for CSV, JSON and spreadsheets."""
    found: list[dict[str, Any]] = []
    names = dict.fromkeys(
        row.name for group in comparison.groups for result in group.results for row in result.evaluation.rows
    )
    for group in comparison.groups:
        effective = group.effective_noise()
        head = {
            "kind": "measured",
            "method": group.method,
            "noise": group.noise,
            "effective_noise": None if effective is None else float(np.mean(effective)),
            "seeds": " ".join(map(str, group.seeds)),
        }
        for name in names:
            for reference in comparison.protocol.conventions:
                for metric in comparison.metrics:
                    values = group.figures(metric, name, reference)
                    if len(values):
                        found.append({**head, **_record(name, reference, "mean", metric, values)})
        for category in comparison.gallery_sizes:
            for reference in comparison.protocol.conventions:
                for metric in comparison.metrics:
                    values = group.by_category(category, metric, reference)
                    if len(values):
                        found.append({**head, **_record("composed", reference, category, metric, values)})
    for each in comparison.differences:
        found.append(
            {
                "kind": "difference",
                "method": each.group.method,
                "noise": each.group.noise,
                "baseline": each.baseline.name,
                "query": "composed",
                "reference": each.reference,
                "category": "mean",
                "metric": each.metric,
                "value": each.value,
                "low": each.low,
                "high": each.high,
                "runs": len(each.group.results),
            }
        )
    for row in matching(comparison, quote):
        for category, metrics in {"mean": row.mean, **row.categories}.items():
            for metric, value in metrics.items():
                found.append(
                    {
                        "kind": MARK,
                        "method": row.method,
                        "noise": f"mix {100 * row.noise:g} %",
                        "query": "composed",
                        "reference": row.reference or "not stated",
                        "category": category,
                        "metric": metric,
                        "value": value,
                        "source": row.source,
                    }
                )
    return found


def _record(
    name: str, reference: Reference, category: str, metric: str, values: FloatArray
) -> dict[str, Any]:
    return {
        "query": name,
        "reference": reference,
        "category": category,
        "metric": metric,
        "value": float(values.mean()),
        "sd": float(values.std(ddof=1)) if len(values) > 1 else None,
        "runs": len(values),
    }


def _figures(comparison: Comparison, reference: Reference, quote: QuoteMode) -> Table:
    metrics = comparison.metrics
    lines = [
        (
            (group.method, group.noise, _seeds(group)),
            tuple(spread(group.figures(metric, reference=reference)) for metric in metrics),
            False,
        )
        for group in comparison.groups
    ]
    rows = matching(comparison, quote)
    lines += [
        (
            (f"{row.method} ({MARK}{_of(row, rows)})", f"mix {100 * row.noise:g} %", _stated(row)),
            tuple(as_printed(row.mean[m]) if m in row.mean else NOTHING for m in metrics),
            True,
        )
        for row in rows
        if row.reference in (None, reference)
    ]
    return _table(
        f"{comparison.data}/{comparison.split}, reference {reference}"
        + (" (headline)" if reference == comparison.protocol.headline else ""),
        ("method", "noise", "seeds", *metrics),
        lines,
    )


def _category(comparison: Comparison, category: str, reference: Reference, quote: QuoteMode) -> Table:
    metrics = [metric for metric in comparison.metrics if metric not in comparison.protocol.averages]
    lines = [
        (
            (group.method, group.noise, _seeds(group)),
            tuple(spread(group.by_category(category, metric, reference)) for metric in metrics),
            False,
        )
        for group in comparison.groups
    ]
    rows = matching(comparison, quote)
    lines += [
        (
            (f"{row.method} ({MARK}{_of(row, rows)})", f"mix {100 * row.noise:g} %", _stated(row)),
            tuple(
                as_printed(row.categories[category][m]) if m in row.categories[category] else NOTHING
                for m in metrics
            ),
            True,
        )
        for row in rows
        if row.reference in (None, reference) and category in row.categories
    ]
    title = f"{comparison.data}/{comparison.split}, {category}, reference {reference}"
    return _table(title, ("method", "noise", "seeds", *metrics), lines)


def difference_table(comparison: Comparison, reference: Reference) -> Table:
    """Show the differences to the baseline, those clear of zero with a star."""
    own = [each for each in comparison.differences if each.reference == reference]
    metrics = list(dict.fromkeys(each.metric for each in own))
    groups = list(dict.fromkeys(each.group.name for each in own))
    by_place = {(each.group.name, each.metric): each for each in own}
    lines = []
    for name in groups:
        cells = []
        for metric in metrics:
            each = by_place.get((name, metric))
            cells.append(
                f"{each.value:+.1f} [{each.low:+.1f}, {each.high:+.1f}]{'*' if each.is_clear else ''}"
                if each
                else NOTHING
            )
        lines.append(((name,), tuple(cells), False))
    title = f"Points above {comparison.baseline}, reference {reference}; * = interval leaves out 0"
    return _table(title, ("method", *metrics), lines)


def honesty_tables(comparison: Comparison) -> list[Table]:
    """Show what each figure alone would hide."""
    metric = comparison.protocol.selection[0]
    precision = next(
        (
            f"mAP@{k}"
            for k in comparison.protocol.map_ks
            if any(len(group.figures(f"mAP@{k}")) for group in comparison.groups)
        ),
        None,
    )
    headline = comparison.protocol.headline
    heads = [(group.method, group.noise, _seeds(group)) for group in comparison.groups]
    halves, rest = [], []
    for head, group in zip(heads, comparison.groups, strict=True):
        both = [spread(group.figures(metric, reference=each)) for each in ("kept", "removed")]
        alone = [spread(group.figures(metric, half, headline)) for half in HALVES]
        halves.append((head, (*both, *alone), False))
        several = [] if precision is None else [spread(group.figures(precision, reference=headline))]
        rest.append((head, (*several, _wording(group, metric, headline), _effective(group)), False))
    several_head = () if precision is None else (f"{precision}*",)
    return [
        _table(
            f"{metric}: reference kept, removed; and image, text alone (reference {headline})",
            ("method", "noise", "seeds", "kept", "removed", *HALVES),
            halves,
        ),
        _table(
            ("* over several right answers; " if precision else "")
            + f"{metric} over wordings (reference {headline}); noise that was there",
            ("method", "noise", "seeds", *several_head, "over wordings", "effective noise"),
            rest,
        ),
    ]


def _wording(group: Group, metric: str, reference: Reference) -> str:
    spreads = [phrasing_spread(result.evaluation, metric, reference) for result in group.results]
    known = [spread for spread in spreads if spread is not None]
    if not known:
        return NOTHING
    low, high = np.mean(known, axis=0).tolist()
    return f"{percent(low)} to {percent(high)}"


def _effective(group: Group) -> str:
    found = group.effective_noise()
    if found is None:
        return "0 %" if group.noise == "none" else "unknown"
    low, high = (f"{100 * each:.1f}" for each in found)
    return f"{low} %" if low == high else f"{low} to {high} %"


def _table(
    title: str, header: tuple[str, ...], lines: Sequence[tuple[tuple[str, ...], tuple[str, ...], bool]]
) -> Table:
    names = len(lines[0][0]) if lines else 0
    return Table(
        title=title,
        header=header,
        rows=tuple((*head, *cells) for head, cells, _ in lines),
        names=names,
        headline=(False,) * len(lines),
        quoted=tuple(quoted for _, _, quoted in lines),
    )


def spread(values: FloatArray) -> str:
    """Write the mean over seeds and, of several, their standard deviation."""
    if not len(values):
        return NOTHING
    mean = percent(float(values.mean()))
    return mean if len(values) == 1 else f"{mean} ± {values.std(ddof=1):.1f}"


def _seeds(group: Group) -> str:
    known = ", ".join(map(str, group.seeds))
    unknown = len(group.results) - len(group.seeds)
    return known + (f"{' and ' if known else ''}{unknown} unknown" if unknown else "")


def _stated(row: Quoted) -> str:
    return "" if row.reference else "reference not stated"


def _sources(rows: Sequence[Quoted]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((row.source, row.backbone) for row in rows))


def _of(row: Quoted, rows: Sequence[Quoted]) -> str:
    return f" [{_sources(rows).index((row.source, row.backbone)) + 1}]"


def _mix_rate(group: Group) -> float | None:
    """Return the rate of a group's mix noise as asked for; None where its noise is another kind."""
    if group.noise == "none":
        return 0.0
    noise = group.results[0].evaluation.noise
    return noise.asked if noise is not None and noise.kind == "mix" and not noise.dropped else None
