"""Results of many runs as lines: over a setting (sensitivity), over noise (retention, ranks)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from triptych.errors import UsageError
from triptych.evaluation import Reference
from triptych.evaluation.comparison import Group, Result, check_same, group_results
from triptych.methods.registry import get
from triptych.studies.figures.canvas import COLOURS, MARKERS, caption, new_figure, style, wrapped
from triptych.studies.figures.line_panels import Line, draw_lines


@dataclass(frozen=True)
class NoiseTable:
    """A metric by method and rate of noise.

    Attributes:
        rates: share of the triplets that the noise was asked for, in [0, 1], rising; 0 = trained on clean triplets.
        kind: of the noise, such as ``mix``.
        values: method to the metric at each rate, the mean over its seeds, percent; None where no run is.
        spread: method to the standard deviation over seeds.
        runs: method to how many runs are behind each value.
    """

    rates: tuple[float, ...]
    kind: str
    values: dict[str, tuple[float | None, ...]]
    spread: dict[str, tuple[float, ...]]
    runs: dict[str, tuple[int, ...]]


def noise_table(results: Sequence[Result], metric: str, reference: Reference) -> NoiseTable:
    """Put results into a table of methods and rates of one kind of noise.

    Raises:
        UsageError: there is none, results cannot stand in one table, hold two kinds of noise, or lack the metric.
    """
    groups = _groups(results, metric, reference)
    kinds: dict[str, None] = {}
    cells: dict[str, dict[float, Group]] = {}
    for group in groups:
        noise = group.results[0].evaluation.noise
        if noise is not None and noise.dropped:
            continue  # trained without its wrong triplets: an upper bound, no rate of noise
        rate = _rate(group)
        if noise is not None and rate > 0:
            kinds[noise.kind or "noise"] = None
        other = cells.setdefault(group.method, {}).setdefault(rate, group)
        if other is not group:
            names = f"{other.results[0].name} and {group.results[0].name}"
            raise UsageError(
                f"{names} are both {group.method} at {100 * rate:g} % noise: give one of the two"
            )
    if len(kinds) > 1:
        raise UsageError(
            f"these runs hold {len(kinds)} kinds of noise ({', '.join(kinds)}): draw one at a time"
        )
    if not cells:
        raise UsageError("all of these runs left the wrong triplets out: there is no rate of noise to draw")
    rates = tuple(sorted({rate for own in cells.values() for rate in own}))
    figures = {
        method: [
            own[rate].figures(metric, reference=reference) if rate in own else np.empty(0) for rate in rates
        ]
        for method, own in cells.items()
    }
    return NoiseTable(
        rates,
        next(iter(kinds), "none"),
        {
            name: tuple(float(each.mean()) if len(each) else None for each in own)
            for name, own in figures.items()
        },
        {name: tuple(_deviation(each) for each in own) for name, own in figures.items()},
        {name: tuple(len(each) for each in own) for name, own in figures.items()},
    )


def retention(table: NoiseTable) -> dict[str, Line]:
    r"""Divide each value by that of clean training: :math:`100 \, v(\sigma) / v(0)`, percent.

    Methods without a run on clean triplets, or whose value there is 0, are left out.

    Raises:
        UsageError: none is left.
    """
    lines = {}
    for method, values in table.values.items():
        base = values[0] if table.rates[0] == 0 else None
        if not base:
            continue
        points = [
            (rate, 100 * value / base, 100 * spread / base, runs)
            for rate, value, spread, runs in zip(
                table.rates, values, table.spread[method], table.runs[method], strict=True
            )
            if value is not None
        ]
        at, mean, deviation, counts = zip(*points, strict=True)
        lines[method] = Line(tuple(100 * rate for rate in at), mean, deviation, counts)
    if not lines:
        raise UsageError(
            "no method has a run on clean triplets to compare with: train one without --noise and evaluate it"
        )
    return lines


def method_ranks(table: NoiseTable) -> dict[str, tuple[float | None, ...]]:
    """Rank the methods at each rate, 1 = best; equal values share the mean of their ranks, and no run is no rank."""
    ranks: dict[str, list[float | None]] = {method: [] for method in table.values}
    for at in range(len(table.rates)):
        column = {method: values[at] for method, values in table.values.items()}
        present = [value for value in column.values() if value is not None]
        for method, value in column.items():
            if value is None:
                ranks[method].append(None)
            else:
                better = sum(other > value for other in present)
                ranks[method].append(1 + better + (present.count(value) - 1) / 2)
    return {method: tuple(own) for method, own in ranks.items()}


def sensitivity(
    results: Sequence[Result], setting: str, metric: str, reference: Reference
) -> tuple[dict[str, Line], tuple[str, ...] | None]:
    """Read a metric over the values of one setting, a line for each method and noise.

    A run that does not name the setting has the method's default.

    Args:
        results: of runs that differ in the setting; may hold several seeds.
        setting: by its dotted name, such as ``method.omega`` or ``training.batch_size``.
        metric: such as ``R@10``.
        reference: kept or removed.

    Returns:
        The lines, and the values' names where they are no numbers (the lines then stand at 0, 1, ...).

    Raises:
        UsageError: the runs do not differ in it, or in something else too.
    """
    _groups(results, metric, reference)  # the checks
    values = {result.name: setting_value(result, setting) for result in results}
    distinct = list(dict.fromkeys(values.values()))
    if len(distinct) < 2:
        raise UsageError(
            f"all {len(results)} runs have {setting} = {distinct[0]}: give runs that differ in it\n"
            f"  Train some with --set {setting}=VALUE."
        )
    numeric = all(_number(value) is not None for value in distinct)
    order = sorted(distinct, key=lambda value: _number(value) or 0.0) if numeric else sorted(distinct)
    cells: dict[tuple[str, str], dict[str, list[float]]] = {}
    others: dict[tuple[str, str], tuple[str, dict[str, str]]] = {}
    for result in results:
        key = result.method, result.noise
        rest = {name: value for name, value in result.settings.items() if name != setting}
        first, known = others.setdefault(key, (result.name, rest))
        differing = sorted(name for name in {*rest, *known} if rest.get(name) != known.get(name))
        if differing:
            raise UsageError(
                f"{first} and {result.name} differ not only in {setting} but in {', '.join(differing[:3])} too"
            )
        own = Group(result.method, result.noise, (result,)).figures(metric, reference=reference)
        cells.setdefault(key, {}).setdefault(values[result.name], []).extend(map(float, own))
    lines = {}
    for (method, noise), found in cells.items():
        points = [(at, np.array(found[value])) for at, value in enumerate(order) if value in found]
        lines[f"{method}, noise {noise}"] = Line(
            tuple(float(_number(order[at]) or 0.0) if numeric else float(at) for at, _ in points),
            tuple(float(each.mean()) for _, each in points),
            tuple(_deviation(each) for _, each in points),
            tuple(len(each) for _, each in points),
        )
    return lines, None if numeric else tuple(order)


def setting_value(result: Result, setting: str) -> str:
    """Return a setting of a run as text; a switch of the method that is not said has its default.

    Raises:
        UsageError: the run has no such setting.
    """
    if setting in result.settings:
        return result.settings[setting]
    section, _, key = setting.partition(".")
    if section == "method" and key:
        fields = get(result.method).Config.model_fields
        if key in fields:
            return str(fields[key].default)
        known = ", ".join(f"method.{name}" for name in fields)
    else:
        known = ", ".join(result.settings)
    raise UsageError(f'{result.name} has no setting "{setting}"; it has: {known}')


def draw_retention(lines: Mapping[str, Line], table: NoiseTable, metric: str, reference: Reference) -> Any:
    """Draw what is left of each method's metric at each rate."""
    kind = "" if table.kind == "none" else f" ({table.kind})"
    return draw_lines(
        lines,
        xlabel=f"triplets drawn to be wrong{kind}, percent",
        ylabel=f"{metric} kept, percent of clean training",
        level=("clean training", 100.0),
        note=f"{metric} with the reference {reference}; mean over seeds, bars are one standard deviation.",
    )


def draw_sensitivity(
    lines: Mapping[str, Line],
    names: Sequence[str] | None,
    setting: str,
    metric: str,
    reference: Reference,
) -> Any:
    """Draw a metric over a setting; the best value of each line is ringed."""
    return draw_lines(
        lines,
        names=names,
        xlabel=setting,
        ylabel=f"{metric}, percent (reference {reference})",
        best=True,
        note="Mean over seeds; bars are one standard deviation. The ring marks the best value.",
    )


def noise_tables(
    results: Sequence[Result], metric: str, reference: Reference | None
) -> dict[str, NoiseTable]:
    """Make a table for each data set that the results are of, by its name and split.

    Args:
        results: of one or more data sets.
        metric: such as ``R@10``; all of them must have it.
        reference: kept or removed; each protocol's own headline where not given.
    """
    by_data: dict[str, list[Result]] = {}
    for result in results:
        by_data.setdefault(f"{result.evaluation.data}/{result.evaluation.split}", []).append(result)
    return {
        name: noise_table(own, metric, reference or own[0].evaluation.protocol.headline)
        for name, own in by_data.items()
    }


def draw_method_ranks(tables: Mapping[str, NoiseTable], metric: str, *, note: str = "") -> Any:
    """Draw the rank of each method at each rate, first place on top, its figure at its mark; a panel a data set."""
    methods = list(dict.fromkeys(method for table in tables.values() for method in table.values))
    with style():
        wide = sum(1.2 + 1.3 * max(2, len(table.rates)) for table in tables.values()) + 1.2
        figure = new_figure(wide, 1.7 + 0.6 * max(3, len(methods)))
        panels = figure.subplots(1, len(tables), squeeze=False, sharey=True)[0]
        for axes, (name, table) in zip(panels, tables.items(), strict=True):
            ends: dict[tuple[int, float], int] = {}
            for method, own in method_ranks(table).items():
                number = methods.index(method)
                colour, marker = COLOURS[number % len(COLOURS)], MARKERS[(number + number // 6) % 6]
                points = [(at, rank) for at, rank in enumerate(own) if rank is not None]
                axes.plot(
                    *zip(*points, strict=True),
                    linestyle="-" if number < len(COLOURS) else "--",
                    color=colour,
                    marker=marker,
                    linewidth=2.5,
                    markersize=9,
                )
                for at, rank in points:
                    value = f"{table.values[method][at]:.1f}"
                    place = {"xytext": (0, 8), "textcoords": "offset points", "ha": "center", "fontsize": 8}
                    axes.annotate(value, (at, rank), **place)
                tied = ends[points[-1]] = ends.get(points[-1], -1) + 1
                axes.annotate(
                    wrapped(method, 24),
                    points[-1],
                    xytext=(14, -13 * tied),
                    textcoords="offset points",
                    va="center",
                    color=colour,
                    fontweight="bold",
                    annotation_clip=False,
                )
            axes.set_title(name, loc="left")
            axes.set_xticks(range(len(table.rates)), [f"{100 * rate:g} %" for rate in table.rates])
            axes.set_xlim(-0.3, len(table.rates) - 0.7)
            kind = "" if table.kind == "none" else f" ({table.kind})"
            axes.set_xlabel(f"triplets drawn to be wrong{kind}")
            axes.grid(axis="y", alpha=0.2)
        panels[0].set_ylim(len(methods) + 0.6, 0.4)
        panels[0].set_yticks(range(1, len(methods) + 1))
        panels[0].set_ylabel("rank, 1 = best")
        said = f"Rank by {metric}; the number at a mark is {metric} in percent, the mean over seeds. {note}"
        caption(figure, said.strip(), characters=int(14 * wide))
        return figure


def _groups(results: Sequence[Result], metric: str, reference: Reference) -> tuple[Group, ...]:
    if not results:
        raise UsageError("there is no finished result: evaluate the runs with `triptych evaluate RUN`")
    check_same(results)
    groups = group_results(results)
    for group in groups:
        if not len(group.figures(metric, reference=reference)):
            row = group.results[0].evaluation.row("composed", reference)
            raise UsageError(
                f'{group.results[0].name} has no metric "{metric}"; it has: {", ".join(row.mean)}'
            )
    return groups


def _rate(group: Group) -> float:
    """Return the rate that the noise was asked for, or where that is not known the real one; 0 without noise."""
    noise = group.results[0].evaluation.noise
    if noise is None:
        return 0.0
    rate = noise.ratio if noise.asked is None else noise.asked
    if rate is None:
        name = group.results[0].name
        raise UsageError(f"{name}: the rate of its noise is not known; run `triptych evaluate` on it again")
    return rate


def _deviation(values: Any) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
