"""Many results side by side: means over seeds, paired differences, and nothing mixed that does not belong together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from triptych.errors import UsageError
from triptych.evaluation.metrics import FloatArray, bootstrap_interval
from triptych.evaluation.protocols import Protocol, Reference
from triptych.evaluation.report import Evaluation, Row


@dataclass(frozen=True)
class Result:
    """One finished run.

    Attributes:
        name: what it is called: a run's folder.
        evaluation: what it scored.
        seed: of its training; None where that is not known.
        settings: its settings beside method, noise and seed, by dotted name; runs that differ in them are not seeds
            of one thing.
        label: what tables call it in place of the method, such as an ablation row's name.
    """

    name: str
    evaluation: Evaluation
    seed: int | None
    settings: Mapping[str, str]
    label: str = ""

    @property
    def method(self) -> str:
        """The method's name, or the label in its place."""
        return self.label or self.evaluation.model.method

    @property
    def noise(self) -> str:
        """What was wrong with the training triplets, as asked for: ``none``, ``mix 50 %``."""
        noise = self.evaluation.noise
        if noise is None:
            return "none"
        level = noise.name if noise.asked is None else f"{noise.kind or 'noise'} {100 * noise.asked:g} %"
        return f"{level}, wrong left out" if noise.dropped else level


@dataclass(frozen=True)
class Unfinished:
    """A run that has no result: its name, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed only.

    Attributes:
        method: the method, with what sets it apart from other groups of the same method.
        noise: as :attr:`Result.noise`.
        results: one a seed.
    """

    method: str
    noise: str
    results: tuple[Result, ...]

    @property
    def name(self) -> str:
        """Method and noise."""
        return f"{self.method}, {self.noise}"

    @property
    def seeds(self) -> tuple[int, ...]:
        """The known seeds, in order."""
        return tuple(sorted(result.seed for result in self.results if result.seed is not None))

    def figures(self, metric: str, name: str = "composed", reference: Reference = "kept") -> FloatArray:
        """Return a metric of every result that has it: ``[runs]``, percent."""
        rows = [_row(result.evaluation, name, reference) for result in self.results]
        protocol = self.results[0].evaluation.protocol
        values = [None if row is None else _mean(row, metric, protocol) for row in rows]
        return np.array([value for value in values if value is not None], dtype=np.float64)

    def by_category(self, category: str, metric: str, reference: Reference) -> FloatArray:
        """Return a metric of one category, of every result that has it: ``[runs]``, percent."""
        rows = [_row(result.evaluation, "composed", reference) for result in self.results]
        own = [row.categories.get(category, {}) for row in rows if row is not None]
        return np.array([values[metric] for values in own if metric in values], dtype=np.float64)

    def effective_noise(self) -> tuple[float, float] | None:
        """Return the lowest and highest share of triplets that the manifests changed, in [0, 1]."""
        noises = [result.evaluation.noise for result in self.results]
        ratios = [noise.ratio for noise in noises if noise is not None and noise.ratio is not None]
        return (min(ratios), max(ratios)) if ratios else None

    @cached_property
    def manifests(self) -> frozenset[str]:
        """The fingerprints of the noise manifests."""
        noises = [result.evaluation.noise for result in self.results]
        return frozenset(noise.fingerprint for noise in noises if noise is not None)


@dataclass(frozen=True)
class Difference:
    """How much better a group is than the baseline: percentage points, with the bounds of a paired bootstrap."""

    group: Group
    baseline: Group
    metric: str
    reference: Reference
    value: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Comparison:
    """Results that may stand in one table.

    Attributes:
        groups: by noise, then by method, as first given.
        unfinished: what has no result.
        protocol: what all were scored by.
        data: name of the data set.
        split: such as ``val``.
        gallery_sizes: category to number of images.
        gallery_hash: of the galleries.
        baseline: what was chosen to compare with.
        differences: of every group and metric to the baseline.
        notes: what a reader must know.
    """

    groups: tuple[Group, ...]
    unfinished: tuple[Unfinished, ...]
    protocol: Protocol
    data: str
    split: str
    gallery_sizes: Mapping[str, int]
    gallery_hash: str
    baseline: str | None
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The protocol's metrics that any group has."""
        rows = [row for group in self.groups for result in group.results for row in result.evaluation.rows]
        have = list(dict.fromkeys(metric for row in rows for metric in row.mean))
        have += [name for name in self.protocol.averages if name not in have]
        wanted = self.protocol.shown or tuple(have)
        return tuple(metric for metric in wanted if any(len(g.figures(metric)) for g in self.groups))


def compare(
    results: Sequence[Result],
    unfinished: Sequence[Unfinished] = (),
    *,
    baseline: str | None = None,
    samples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Put results into one table.

    Args:
        results: the finished runs, at least one.
        unfinished: what has no result; it is named and counted, and no mean holds it.
        baseline: a method, which others are compared with at their own noise, or the name of a run.
        samples: draws of the paired bootstrap behind a difference.
        level: share of the draws between the bounds.
        seed: of the bootstrap.
        progress: called with (groups done, groups) while differences are drawn.

    Raises:
        UsageError: there is no result; results differ in protocol, split, gallery or wording of the text, and so
            cannot stand in one table; or the baseline is unknown. Says which differ in what.
    """
    if not results:
        names = "; ".join(f"{each.name}: {each.reason}" for each in unfinished)
        raise UsageError("no finished result" + (f" ({names})" if names else ""))
    check_same(results)
    groups = group_results(results)
    first = results[0].evaluation
    comparison = Comparison(
        groups=groups,
        unfinished=tuple(unfinished),
        protocol=first.protocol,
        data=first.data,
        split=first.split,
        gallery_sizes=first.gallery_sizes,
        gallery_hash=first.gallery_hash,
        baseline=baseline,
        differences=(),
        notes=tuple(_notes(groups)),
    )
    if baseline is None:
        return comparison
    pairs = _pairs(groups, baseline)
    differences: list[Difference] = []
    lacking: list[str] = []
    for done, (group, base) in enumerate(pairs, start=1):
        without = [r.name for g in (group, base) for r in g.results if not r.evaluation.ranks]
        lacking += without
        if not without:
            differences += _differences(group, base, comparison, samples, level, seed)
        if progress is not None:
            progress(done, len(pairs))
    notes = list(comparison.notes)
    if lacking:
        names = ", ".join(dict.fromkeys(lacking))
        notes.append(f"No difference where a result has no ranks by query; evaluate these again: {names}.")
    if differences:
        notes.append(
            f"Differences are paired by query, averaged over seeds first; {100 * level:g} % bootstrap intervals over"
            f" queries ({samples} draws, seed {seed}) do not hold the spread over seeds."
        )
    return Comparison(**{**vars(comparison), "differences": tuple(differences), "notes": tuple(notes)})


def check_same(results: Sequence[Result]) -> None:
    """Raise ``UsageError`` where results are of different protocols, splits, galleries, queries or wordings."""
    kinds: dict[str, Callable[[Evaluation], str]] = {
        "protocol": lambda e: f"{e.protocol.name} (headline: reference {e.protocol.headline})",
        "split": lambda e: e.split,
        "gallery": lambda e: (
            f"{', '.join(f'{name} {size}' for name, size in e.gallery_sizes.items())} images of {e.data}"
            f" (hash {e.gallery_hash[:12]})"
        ),
        "way to join captions": lambda e: e.captions,
    }
    problems = []
    for kind, describe in kinds.items():
        found: dict[str, list[str]] = {}
        for result in results:
            found.setdefault(describe(result.evaluation), []).append(result.name)
        if len(found) > 1:
            each = "; ".join(f"{value}: {_few(names)}" for value, names in found.items())
            problems.append(f"they differ in {kind}: {each}")
    with_ranks = [result for result in results if result.evaluation.ranks]
    queries: dict[tuple[str, ...], list[str]] = {}
    for result in with_ranks:
        queries.setdefault(tuple(part.queries for part in result.evaluation.ranks), []).append(result.name)
    if not problems and len(queries) > 1:
        each = "; ".join(_few(names) for names in queries.values())
        problems.append(f"they were scored on different queries of the same galleries: {each}")
    if problems:
        raise UsageError(
            "these results cannot stand in one table:\n  "
            + "\n  ".join(problems)
            + "\n  Evaluate them alike, or compare them apart."
        )


def group_results(results: Sequence[Result]) -> tuple[Group, ...]:
    """Put runs that differ in their seed only together, by noise and then method, as first given."""
    keys: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[Result]] = {}
    for result in results:
        keys.setdefault((result.noise, result.method, tuple(sorted(result.settings.items()))), []).append(
            result
        )
    levels = sorted(dict.fromkeys(noise for noise, _, _ in keys), key=lambda noise: _order(keys, noise))
    methods = list(dict.fromkeys(method for _, method, _ in keys))
    found = []
    for noise in levels:
        for method in methods:
            same = [(key, own) for key, own in keys.items() if key[:2] == (noise, method)]
            apart = _what_differs([dict(key[2]) for key in keys if key[1] == method])
            for key, own in same:
                settings = dict(key[2])
                said = ", ".join(f"{name}={settings[name]}" for name in apart[:3] if name in settings)
                said += ", ..." if len(apart) > 3 else ""
                found.append(Group(f"{method} ({said})" if said else method, noise, tuple(own)))
    return tuple(found)


def query_values(
    evaluation: Evaluation, reference: Reference
) -> dict[str, tuple[FloatArray, tuple[str, ...]]]:
    """Return every metric of every composed query: name to values ``[N]``, percent, and their categories."""
    values: dict[str, list[FloatArray]] = {}
    groups: dict[str, list[str]] = {}
    for part in evaluation.ranks:
        for figures in part.unpack().figures(evaluation.protocol, reference):
            for metric, own in figures.items():
                values.setdefault(metric, []).append(100 * own)
                groups.setdefault(metric, []).extend([part.category] * len(own))
    return {metric: (np.concatenate(own), tuple(groups[metric])) for metric, own in values.items()}


def _differences(
    group: Group, base: Group, comparison: Comparison, samples: int, level: float, seed: int
) -> list[Difference]:
    found = []
    for reference in comparison.protocol.conventions:
        sides = []
        for side in (group, base):
            each = [query_values(result.evaluation, reference) for result in side.results]
            sides.append(
                {
                    metric: (np.mean([own[metric][0] for own in each], axis=0), groups)
                    for metric, (_, groups) in each[0].items()
                }
            )
        mine, theirs = sides
        for metric in comparison.metrics:
            if metric not in mine or metric not in theirs:
                continue
            values, groups = mine[metric][0] - theirs[metric][0], mine[metric][1]
            low, high = bootstrap_interval(values, groups, seed=seed, samples=samples, level=level)
            middle = float(
                np.mean([values[np.array(groups) == name].mean() for name in dict.fromkeys(groups)])
            )
            found.append(Difference(group, base, metric, reference, middle, float(low), float(high)))
    return found


def _pairs(groups: Sequence[Group], baseline: str) -> list[tuple[Group, Group]]:
    """Find what each group is compared with."""
    by_run = [group for group in groups for result in group.results if result.name == baseline]
    by_method = [group for group in groups if baseline in (group.method, group.method.partition(" (")[0])]
    if by_run:
        return [(group, by_run[0]) for group in groups if group is not by_run[0]]
    if not by_method:
        methods = ", ".join(dict.fromkeys(group.method for group in groups))
        raise UsageError(f"--baseline {baseline}: no run and no method is called so; methods: {methods}")
    pairs = []
    for group in groups:
        same = [base for base in by_method if base.noise == group.noise]
        if same and group not in same[:1]:
            pairs.append((group, same[0]))
    if not pairs:
        raise UsageError(f"--baseline {baseline}: no other method was trained with the same noise")
    return pairs


def _notes(groups: Sequence[Group]) -> list[str]:
    notes = []
    seeds = {group.name: group.seeds for group in groups}
    if len(set(seeds.values())) > 1:
        each = "; ".join(f"{name}: {', '.join(map(str, own)) or 'unknown'}" for name, own in seeds.items())
        notes.append(f"The seeds are not the same everywhere: {each}.")
    for group in groups:
        if len(set(group.seeds)) < len(group.seeds):
            notes.append(f"{group.name} holds a seed more than once: {', '.join(map(str, group.seeds))}.")
        if len(group.manifests) > 1:
            notes.append(f"{group.name} holds {len(group.manifests)} noise manifests.")
    said = [note for group in groups for result in group.results for note in result.evaluation.notes]
    return notes + list(dict.fromkeys(said))


def _row(evaluation: Evaluation, name: str, reference: Reference) -> Row | None:
    return next((row for row in evaluation.rows if (row.name, row.reference) == (name, reference)), None)


def _mean(row: Row, metric: str, protocol: Protocol) -> float | None:
    if metric in row.mean:
        return row.mean[metric]
    parts = protocol.averages.get(metric, ())  # a result of an older version has none
    if not parts or any(part not in row.mean for part in parts):
        return None
    return float(np.mean([row.mean[part] for part in parts]))


def _what_differs(settings: Sequence[Mapping[str, str]]) -> list[str]:
    names = dict.fromkeys(name for own in settings for name in own)
    return [name for name in names if len({own.get(name) for own in settings}) > 1]


def _order(
    keys: Mapping[tuple[str, str, tuple[tuple[str, str], ...]], list[Result]], noise: str
) -> tuple[bool, str, float, str]:
    noises = [own[0].evaluation.noise for key, own in keys.items() if key[0] == noise]
    first = noises[0]
    if first is None:
        return (False, "", 0.0, "")
    return (first.dropped, first.kind or "", first.asked or first.ratio or 0.0, first.name)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
