"""Evaluation: what a model scored, under which protocol, on which gallery, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from triptych.errors import DataError, UsageError
from triptych.evaluation.metrics import bootstrap_interval
from triptych.evaluation.protocols import Protocol, Reference
from triptych.evaluation.queries import NO_SUBSET, QueryRanks
from triptych.evaluation.stored_ranks import StoredRanks
from triptych.files import atomic_write


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelInfo(_Frozen):
    """Which model was scored: its name (a run folder's), method, backbone and, of a run, epoch and seed."""

    name: str
    method: str
    backbone: str
    epoch: int | None = None
    seed: int | None = None


class NoiseInfo(_Frozen):
    """Which noise manifest the model was trained with.

    ``asked`` is the rate that was asked for and ``ratio`` the share of the triplets that it changed, in [0, 1];
    ``dropped`` says that the wrong triplets were left out.
    """

    name: str
    fingerprint: str
    kind: str | None = None
    ratio: float | None = None
    asked: float | None = None
    dropped: bool = False


class Row(_Frozen):
    """The figures of one kind of query, the reference kept in the gallery or removed from it.

    All figures are percent, unrounded. A mean is taken within each category, then over the categories.

    Attributes:
        name: ``composed``, ``image-only``, ``text-only``, or another.
        reference: ``kept`` or ``removed``.
        num_queries: queries with a known target; the R@K are over them.
        num_with_answers: queries whose every right answer is known; the mAP@K are over them.
        categories: category to metric to figure.
        mean: metric to the mean over the categories that have it.
        intervals: metric to the bootstrap bounds of its mean; empty when none was drawn.
        aspects: what the text asks for to metric to figure, where that is annotated (CIRCO).
    """

    name: str
    reference: Reference
    num_queries: int
    num_with_answers: int
    categories: dict[str, dict[str, float]]
    mean: dict[str, float]
    intervals: dict[str, tuple[float, float]] = {}
    aspects: dict[str, dict[str, float]] = {}


class Evaluation(_Frozen):
    """The result of an evaluation; a JSON file holds it whole.

    Attributes:
        protocol: how it was scored; its headline says which rows are quoted.
        data: name of the data set.
        split: such as ``val``.
        gallery_sizes: category to number of ranked images, the reference among them.
        gallery_hash: SHA-256 over the galleries; results with the same hash ranked the same images.
        model: what was scored.
        noise: what it was trained on, where a manifest was used.
        seed: of the bootstrap.
        bootstrap_samples: draws behind an interval; 0 for none.
        level: share of the draws between the bounds.
        rows: two a kind of query, the headline first.
        notes: what was left out or is odd, with counts.
        captions: how the captions of a query were joined.
        ranks: where the answers of every composed query stand, a category each; empty in files of older versions.
    """

    format: Literal["triptych-evaluation-1"] = "triptych-evaluation-1"
    protocol: Protocol
    data: str
    split: str
    gallery_sizes: dict[str, int]
    gallery_hash: str
    model: ModelInfo
    noise: NoiseInfo | None = None
    seed: int
    bootstrap_samples: int
    level: float
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    captions: str = "fixed"
    ranks: tuple[StoredRanks, ...] = ()

    def row(self, name: str = "composed", reference: Reference | None = None) -> Row:
        """Return a row; the protocol's headline unless told otherwise.

        Raises:
            UsageError: there is none of that name.
        """
        wanted = reference or self.protocol.headline
        for row in self.rows:
            if (row.name, row.reference) == (name, wanted):
                return row
        names = ", ".join(dict.fromkeys(row.name for row in self.rows))
        raise UsageError(f'this evaluation has no row "{name}"; it has: {names}')

    def score(self, name: str = "composed") -> float:
        """Return the percentage that selects an epoch: the mean of the protocol's selection metrics."""
        return selection_score(self.row(name), self.protocol)

    def write(self, path: Path) -> None:
        """Write it as JSON, whole or not at all."""
        with atomic_write(path) as file:
            file.write(self.model_dump_json(indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> Evaluation:
        """Read what :meth:`write` wrote.

        Raises:
            DataError: the file is missing or is no evaluation; names the first field at fault.
        """
        mend = "Write it again with `triptych evaluate`."
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise DataError("cannot be read", file=path, mend=mend) from error
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(map(str, first["loc"])) or None
            raise DataError(
                f"is not an evaluation: {first['msg']}", file=path, field=field, mend=mend
            ) from error


def summarise(
    ranks: Sequence[QueryRanks],
    protocol: Protocol,
    *,
    name: str = "composed",
    seed: int = 0,
    samples: int = 1000,
    level: float = 0.95,
) -> tuple[Row, Row]:
    """Turn ranks into the two rows of one kind of query, the headline first.

    Args:
        ranks: one for each category.
        protocol: what to compute.
        name: of the rows.
        seed: of the bootstrap.
        samples: bootstrap draws; 0 leaves the intervals out, which is fast (a validation every epoch).
        level: share of the draws between the bounds.

    Raises:
        UsageError: there is no category, or one comes twice.
    """
    if not ranks or len({part.category for part in ranks}) != len(ranks):
        raise UsageError("an evaluation needs at least one category, each once")
    first, second = protocol.conventions
    rows = [_row(ranks, protocol, reference, name, seed, samples, level) for reference in (first, second)]
    return rows[0], rows[1]


def assemble(
    results: Mapping[str, Sequence[QueryRanks]],
    protocol: Protocol,
    *,
    data: str,
    gallery_hash: str,
    model: ModelInfo,
    noise: NoiseInfo | None = None,
    seed: int = 0,
    samples: int = 1000,
    level: float = 0.95,
    notes: Sequence[str] = (),
    captions: str = "fixed",
) -> Evaluation:
    """Put the results of several kinds of query (``composed``, ``image-only``, ...) into one report.

    Args:
        results: name to the ranks of every category; all of the same split and galleries.
        protocol: what to compute.
        data: name of the data set.
        gallery_hash: of the split, see ``Benchmark.gallery_hash``.
        model: what was scored.
        noise: what it was trained on.
        seed: of the bootstrap.
        samples: bootstrap draws; 0 leaves the intervals out.
        level: share of the draws between the bounds.
        notes: what else a report must say.
        captions: how the captions of a query were joined.

    Raises:
        UsageError: there are no results, or they are of different galleries.
    """
    galleries = {
        name: [(part.split, part.category, part.gallery_size) for part in parts]
        for name, parts in results.items()
    }
    if not galleries or len(set(map(tuple, galleries.values()))) != 1:
        raise UsageError("the rows of an evaluation must rank the same galleries")
    rows = [
        row
        for name, parts in results.items()
        for row in summarise(parts, protocol, name=name, seed=seed, samples=samples, level=level)
    ]
    parts = next(iter(results.values()))
    return Evaluation(
        protocol=protocol,
        data=data,
        split=parts[0].split,
        gallery_sizes={part.category: part.gallery_size for part in parts},
        gallery_hash=gallery_hash,
        model=model,
        noise=noise,
        seed=seed,
        bootstrap_samples=samples,
        level=level,
        rows=tuple(rows),
        notes=(*notes, *_notes(parts, protocol)),
        captions=captions,
        ranks=tuple(map(StoredRanks.pack, results.get("composed", ()))),
    )


def selection_score(row: Row, protocol: Protocol) -> float:
    """Return the mean of the protocol's selection metrics, in percent.

    Raises:
        UsageError: the row lacks one of them.
    """
    missing = [metric for metric in protocol.selection if metric not in row.mean]
    if missing:
        raise UsageError(
            f'protocol "{protocol.name}" selects by {", ".join(missing)}, which it does not compute'
        )
    return float(np.mean([row.mean[metric] for metric in protocol.selection]))


def _row(
    ranks: Sequence[QueryRanks],
    protocol: Protocol,
    reference: Reference,
    name: str,
    seed: int,
    samples: int,
    level: float,
) -> Row:
    categories: dict[str, dict[str, float]] = {part.category: {} for part in ranks}
    mean: dict[str, float] = {}
    intervals: dict[str, tuple[float, float]] = {}
    figures = {part.category: part.figures(protocol, reference) for part in ranks}
    for metrics in dict.fromkeys(tuple(group) for groups in figures.values() for group in groups):
        tables = {
            category: 100 * np.stack([group[m] for m in metrics], axis=1)
            for category, groups in figures.items()
            for group in groups
            if tuple(group) == metrics
        }
        for category, table in tables.items():
            categories[category].update(zip(metrics, table.mean(axis=0).tolist(), strict=True))
        macro = np.mean([table.mean(axis=0) for table in tables.values()], axis=0)
        mean.update(zip(metrics, macro.tolist(), strict=True))
        if samples:
            groups = [category for category, table in tables.items() for _ in range(len(table))]
            low, high = bootstrap_interval(
                np.concatenate(list(tables.values())), groups, seed=seed, samples=samples, level=level
            )
            intervals.update(zip(metrics, zip(low.tolist(), high.tolist(), strict=True), strict=True))
    return Row(
        name=name,
        reference=reference,
        num_queries=sum(map(len, ranks)),
        num_with_answers=sum(len(own) > 0 for part in ranks for own in part.answers),
        categories=categories,
        mean=mean,
        intervals=intervals,
        aspects=_by_aspect(ranks, protocol, reference),
    )


def _by_aspect(
    ranks: Sequence[QueryRanks], protocol: Protocol, reference: Reference
) -> dict[str, dict[str, float]]:
    """Average the mAP over the queries of each semantic aspect; a query counts in each of its aspects."""
    found: dict[str, dict[str, list[float]]] = {}
    for part in ranks:
        known = [own for own, answers in zip(part.aspects, part.answers, strict=False) if len(answers)]
        for metric, values in part.precisions(protocol, reference).items():
            for aspects, value in zip(known, values.tolist(), strict=False):
                for aspect in aspects:
                    found.setdefault(aspect, {}).setdefault(metric, []).append(100 * value)
    return {
        aspect: {metric: float(np.mean(values)) for metric, values in found[aspect].items()}
        for aspect in sorted(found)
    }


def _notes(parts: Sequence[QueryRanks], protocol: Protocol) -> list[str]:
    """Say what was left out, and which figures are over fewer queries than others."""
    total = sum(map(len, parts))
    answered = sum(len(ranks) > 0 for part in parts for ranks in part.answers)
    absent = [part.category for part in parts if not any(map(len, part.answers))]
    same = sum(int((part.target == part.reference).sum()) for part in parts)
    hidden = sum(part.without_target for part in parts)
    outside = sum(part.answers_outside for part in parts)
    notes = []
    if hidden:
        notes.append(f"{hidden} queries without a known target were left out.")
    if 0 < answered < total:
        notes.append(f"mAP is over the {answered} of {total} queries whose right answers are known.")
    if answered and absent:
        notes.append(f"mAP is absent where no right answers are known: {', '.join(absent)}.")
    if outside:
        notes.append(f"{outside} right answers outside the gallery were left out.")
    if protocol.subset_ks:
        without = sum(
            len(part) if part.subset is None else int((part.subset == NO_SUBSET).sum()) for part in parts
        )
        if without:
            notes.append(f"R_sub leaves out {without} of {total} queries, which have no subset.")
    if same:
        notes.append(
            f"The target of {same} queries is their reference: where that is removed, they are misses."
        )
    return notes
