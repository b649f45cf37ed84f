"""Queries of a split as a plain list, and draws of them that are the same every time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from triptych.errors import DataError
from triptych.randomness import generator
from triptych.training.splits import check_split, find_split
from triptych.triplets import Benchmark
from triptych.triplets.text import join_captions

Item = TypeVar("Item")


@dataclass(frozen=True)
class KnownQuery:
    """A query whose target is known.

    Attributes:
        triplet_id: its id.
        category: such as ``dress``.
        reference: id of the reference picture.
        text: the modification text, captions joined and cleaned.
        target: id of the annotated target.
        answers: every right picture, the target among them.
    """

    triplet_id: str
    category: str
    reference: str
    text: str
    target: str
    answers: tuple[str, ...]


def known_queries(benchmark: Benchmark, split: str) -> list[KnownQuery]:
    """Return the queries of a split whose target is in the gallery.

    Raises:
        UsageError: there is no such split.
        DataError: none of its targets is known, or pictures are missing.
    """
    check_split(benchmark, split)
    found = []
    for part in find_split(benchmark, split):
        gallery = set(part.gallery)
        table = part.queries
        columns = (table.triplet_ids, *(table.column(name) for name in ("reference", "captions", "target")))
        for name, reference, captions, target in zip(*columns, strict=True):
            if target in gallery:
                answers = tuple(dict.fromkeys((target, *part.answers.get(name, ()))))
                text = join_captions(captions, "fixed")
                found.append(KnownQuery(name, part.category, reference, text, target, answers))
    if not found:
        raise DataError(f"split {split} has no query whose target is in the gallery", file=benchmark.path)
    return found


def drawn(items: Sequence[Item], count: int, seed: int, name: str) -> list[Item]:
    """Draw at most ``count`` items evenly, in their own order; the same seed and name draw the same places."""
    if count >= len(items):
        return list(items)
    places = generator(seed, "figure", name).permutation(len(items))[:count]
    return [items[place] for place in sorted(places)]


def one_batch(queries: Sequence[KnownQuery], size: int, seed: int) -> list[KnownQuery]:
    """Draw queries of which none is answered by another's target, as the diagonal of a batch needs.

    Returns:
        At most ``size`` queries, in the data's order.

    Raises:
        DataError: fewer than two can be put together.
    """
    order = generator(seed, "figure", "batch").permutation(len(queries))
    batch: list[tuple[int, KnownQuery]] = []
    targets: set[str] = set()
    answered: set[str] = set()
    for place in order:
        query = queries[place]
        if len(batch) < size and query.target not in answered and not targets.intersection(query.answers):
            batch.append((int(place), replace(query)))
            targets.add(query.target)
            answered.update(query.answers)
    if len(batch) < 2:
        raise DataError("fewer than two queries have targets of their own: there is no batch to draw")
    return [query for _, query in sorted(batch, key=lambda each: each[0])]
