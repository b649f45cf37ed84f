"""A split of a benchmark, and what makes scoring it impossible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from triptych.errors import DataError, UsageError
from triptych.triplets import Benchmark, QuerySet
from triptych.triplets.missing import missing_pictures


def find_split(benchmark: Benchmark, split: str) -> tuple[QuerySet, ...]:
    """Return the query sets of a split; ``UsageError`` lists the splits where it is unknown."""
    if split not in benchmark.splits:
        known = ", ".join(benchmark.splits) or "none"
        raise UsageError(f'{benchmark.name} has no split "{split}"; it has: {known}')
    return benchmark.splits[split]


def only_categories(benchmark: Benchmark, split: str, names: Sequence[str]) -> Benchmark:
    """Return a benchmark whose split has these categories only.

    Raises:
        UsageError: there is no such split, or one of the categories is unknown; lists the known ones.
    """
    parts = find_split(benchmark, split)
    known = [part.category for part in parts]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(
            f'split {split} of {benchmark.name} has no category "{unknown[0]}"; it has: {", ".join(known)}'
        )
    kept = tuple(part for part in parts if part.category in names)
    note = f"Only {len(kept)} of {len(parts)} categories: {', '.join(part.category for part in kept)}."
    notes = (*benchmark.notes, note) if len(kept) < len(parts) else benchmark.notes
    return replace(benchmark, splits={**benchmark.splits, split: kept}, notes=notes)


def check_split(benchmark: Benchmark, split: str) -> None:
    """Find what makes scoring a split impossible, before anything slow is done.

    Raises:
        UsageError: there is no such split.
        DataError: the split has no labels, or pictures are missing; says how many queries that costs.
    """
    parts = find_split(benchmark, split)
    known = sum(target is not None for part in parts for target in part.queries.column("target"))
    queries = sum(len(part.queries) for part in parts)
    if queries and not known:
        server = benchmark.protocol in ("cirr", "circo")
        raise DataError(
            f'none of the {queries:,} queries of split "{split}" has a known target: '
            + (
                "the labels are on the server: use --submission"
                if server
                else "its labels were not published"
            ),
            file=benchmark.path,
            mend=f"Write the server's files with --submission FOLDER, or evaluate split val of {benchmark.name}."
            if server
            else "Evaluate another split, such as val.",
        )
    check_pictures(benchmark, split)


def check_pictures(benchmark: Benchmark, split: str) -> None:
    """Raise ``DataError`` where pictures of a split are missing; says which, and what that costs."""
    for line in missing_pictures(benchmark):
        if line.split == split and len(benchmark.images):
            raise DataError(
                f'there is no picture "{line.first}"; {line.sentence}',
                file=benchmark.images.path,
                mend="Add them, or leave out what needs them: `triptych evaluate --leave-out-missing`.",
            )
