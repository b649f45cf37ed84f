"""Pictures that are not there, and what that does to each split: fewer queries, and a smaller gallery."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from triptych.triplets.benchmark import Benchmark, QuerySet
from triptych.triplets.images import ImageStore
from triptych.triplets.table import TripletTable

TRAIN = "train"


@dataclass(frozen=True)
class MissingPictures:
    """What a split lacks.

    Attributes:
        split: such as ``val``, or ``train``.
        pictures: how many pictures its triplets and galleries name.
        missing: how many of them are not there.
        first: the first of these.
        queries: how many triplets it has.
        queries_hit: how many of them lack their reference or target.
    """

    split: str
    pictures: int
    missing: int
    first: str
    queries: int
    queries_hit: int

    @property
    def sentence(self) -> str:
        """All of it in a sentence."""
        word = "triplets" if self.split == TRAIN else "queries"
        return (
            f"{self.missing:,} of {self.pictures:,} pictures of {self.split} are missing, which leaves "
            f"{self.queries - self.queries_hit:,} of {self.queries:,} {word}"
        )


def missing_pictures(benchmark: Benchmark) -> tuple[MissingPictures, ...]:
    """Count the missing pictures of each split and the queries that need them; splits that lack none are left out."""
    found = []
    for split, tables, galleries in _splits(benchmark):
        named = {image for table in tables for image in table.image_ids()}
        named.update(*galleries)
        missing = set(benchmark.images.missing(sorted(named)))
        if missing:
            hit = sum(len(_rows_hit(table, missing)) for table in tables)
            queries = sum(map(len, tables))
            found.append(MissingPictures(split, len(named), len(missing), min(missing), queries, hit))
    return tuple(found)


def without_missing(benchmark: Benchmark) -> Benchmark:
    """Leave out every triplet whose reference or target is missing, and every missing picture of a gallery.

    A right answer or a member of a subset that is missing only makes the list shorter. What was left out stands
    in the benchmark's ``notes``, a sentence a split.
    """
    lacking = missing_pictures(benchmark)
    if not lacking:
        return benchmark
    store = benchmark.images

    def narrowed(part: QuerySet) -> QuerySet:
        queries = _without(part.queries, set(store.missing(part.queries.image_ids())))
        answers = {
            triplet_id: tuple(image for image in found if image in store)
            for triplet_id, found in part.answers.items()
            if triplet_id in queries
        }
        gallery = tuple(image for image in part.gallery if image in store)
        return replace(part, queries=queries, gallery=gallery, answers=answers)

    return replace(
        benchmark,
        train=_without(benchmark.train, set(store.missing(benchmark.train.image_ids()))),
        splits={split: tuple(map(narrowed, parts)) for split, parts in benchmark.splits.items()},
        notes=(*benchmark.notes, *(f"{line.sentence}." for line in lacking)),
    )


def table_without_missing(table: TripletTable, images: ImageStore) -> TripletTable:
    """Leave out every triplet of a table whose reference or target is missing, such as after noise was put in."""
    return _without(table, set(images.missing(table.image_ids())))


def _splits(
    benchmark: Benchmark,
) -> Iterator[tuple[str, list[TripletTable], list[tuple[str, ...]]]]:
    yield TRAIN, [benchmark.train], []
    for split, parts in benchmark.splits.items():
        yield split, [part.queries for part in parts], [part.gallery for part in parts]


def _rows_hit(table: TripletTable, missing: set[str]) -> list[str]:
    columns = (table.triplet_ids, table.column("reference"), table.column("target"))
    return [
        triplet_id
        for triplet_id, reference, target in zip(*columns, strict=True)
        if reference in missing or target in missing
    ]


def _without(table: TripletTable, missing: set[str]) -> TripletTable:
    hit = _rows_hit(table, missing) if missing else []
    return table.without(hit) if hit else table
