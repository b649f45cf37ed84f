"""The queries of a category, ranked: where the target, the reference and every right answer stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from triptych.errors import DataError
from triptych.evaluation.metrics import FloatArray, average_precision_at_k, recall_at_k, without_reference
from triptych.evaluation.protocols import Protocol, Reference
from triptych.evaluation.ranking import MEMORY_BUDGET_BYTES, UNRANKED, IntArray, Progress, ScoreBlock, rank

if TYPE_CHECKING:
    from triptych.triplets.benchmark import QuerySet
    from triptych.triplets.table import Triplet

NO_SUBSET = -1
"""In place of a rank: the query has no subset."""


@dataclass(frozen=True)
class QueryRanks:
    """Ranks of one category's queries, zero-based, from one ranking with the reference in the gallery.

    Attributes:
        split: such as ``val``.
        category: such as ``dress``.
        gallery_size: how many images were ranked, the reference among them.
        triplet_ids: the N queries with a known target.
        target: ``[N]`` rank of the target.
        reference: ``[N]`` rank of the reference; :data:`~triptych.evaluation.ranking.UNRANKED` where the
            gallery lacks it.
        answers: per query the ranks of all its right answers; empty where only the target is known.
        subset: ``[N]`` rank of the target among the other images of the query's own subset, the reference taken
            out (CIRR); :data:`NO_SUBSET` where it has none, None where no query has one.
        aspects: per query what its text asks for, where that is annotated (CIRCO); else empty.
        without_target: queries left out because their target is not known.
        answers_outside: right answers left out because the gallery lacks them.
    """

    split: str
    category: str
    gallery_size: int
    triplet_ids: tuple[str, ...]
    target: IntArray
    reference: IntArray
    answers: tuple[IntArray, ...]
    subset: IntArray | None = None
    aspects: tuple[tuple[str, ...], ...] = ()
    without_target: int = 0
    answers_outside: int = 0

    def __len__(self) -> int:
        return len(self.triplet_ids)

    def target_ranks(self, reference: Reference) -> IntArray:
        """Return ``[N]`` ranks of the targets with the reference kept or removed."""
        return self.target if reference == "kept" else without_reference(self.target, self.reference)

    def subset_ranks(self, reference: Reference) -> IntArray:
        """Return the targets' ranks in their subsets, of the queries that have one: ``[N']``."""
        if self.subset is None:
            return np.empty(0, dtype=np.int64)
        has = self.subset != NO_SUBSET
        own, target, at = self.subset[has], self.target[has], self.reference[has]
        ranks = own + (at < target) if reference == "kept" else np.where(target == at, UNRANKED, own)
        return np.asarray(ranks, dtype=np.int64)

    def answer_ranks(self, reference: Reference) -> tuple[IntArray, ...]:
        """Return, for the queries whose right answers are known, the ranks of all of them."""
        known = [(ranks, at) for ranks, at in zip(self.answers, self.reference, strict=True) if len(ranks)]
        if reference == "kept":
            return tuple(ranks for ranks, _ in known)
        return tuple(without_reference(ranks[None], np.array([at]))[0] for ranks, at in known)

    def recalls(self, protocol: Protocol, reference: Reference) -> dict[str, FloatArray]:
        """Return ``R@K`` of every query: name to ``[N]`` of 0 or 1."""
        ranks = self.target_ranks(reference)
        return {f"R@{k}": recall_at_k(ranks, k) for k in protocol.ks}

    def subset_recalls(self, protocol: Protocol, reference: Reference) -> dict[str, FloatArray]:
        """Return ``R_sub@K`` of every query that has a subset: name to ``[N']`` of 0 or 1."""
        ranks = self.subset_ranks(reference)
        return {f"R_sub@{k}": recall_at_k(ranks, k) for k in protocol.subset_ks} if len(ranks) else {}

    def precisions(self, protocol: Protocol, reference: Reference) -> dict[str, FloatArray]:
        """Return the AP@K (named ``mAP@K``, as its mean is) of the queries whose right answers are known."""
        ranks = self.answer_ranks(reference)
        return {f"mAP@{k}": average_precision_at_k(ranks, k) for k in protocol.map_ks} if ranks else {}

    def figures(self, protocol: Protocol, reference: Reference) -> list[dict[str, FloatArray]]:
        """Return every metric of every query: groups of name to ``[N']``; the metrics of a group share their queries.

        An average of the protocol is there where its parts are in the same group.
        """
        first = self.recalls(protocol, reference)
        subset = self.subset_recalls(protocol, reference)
        rest = [subset, self.precisions(protocol, reference)]
        if subset and self.subset is not None and (self.subset != NO_SUBSET).all():
            first |= rest.pop(0)
        groups = [first, *(group for group in rest if group)]
        for group in groups:
            for name, parts in protocol.averages.items():
                if parts and all(part in group for part in parts):
                    group[name] = np.mean([group[part] for part in parts], axis=0)
        return groups


def evaluate_queries(
    query_set: QuerySet,
    score: ScoreBlock,
    *,
    memory_budget_bytes: int = MEMORY_BUDGET_BYTES,
    bytes_per_score: int = 4,
    progress: Progress | None = None,
) -> QueryRanks:
    """Rank the gallery of a category for each of its queries.

    Args:
        query_set: the queries and the gallery.
        score: scores of ``query_set.queries[rows]`` against ``query_set.gallery[columns]``; higher is better.
        memory_budget_bytes: see :func:`~triptych.evaluation.ranking.rank`, as for the arguments that follow.
        bytes_per_score: what ``score`` needs for one score.
        progress: called with (queries done, queries).

    Raises:
        DataError: there is no query, no known target or no gallery image, a target is not in the gallery, the
            gallery repeats an image, or a score is not a finite number. Names the category and how many.
    """
    where = f'category "{query_set.category}" of split "{query_set.split}"'
    place = _places(query_set, where)
    triplets = list(query_set.queries)
    known = [row for row, triplet in enumerate(triplets) if triplet.target is not None]
    if not triplets:
        raise DataError(f"{where} has no queries", mend="Leave the category out, or add its captions file.")
    if not known:
        raise DataError(
            f"{where}: the target of none of its {len(triplets)} queries is known",
            mend="Evaluate a split with targets; of this one only a submission can be written: the labels are on"
            " the server: use --submission FOLDER.",
        )
    lost = [triplets[row] for row in known if triplets[row].target not in place]
    if lost:
        raise DataError(
            f"{where}: the targets of {len(lost)} of {len(triplets)} queries are not in its gallery; "
            f'the first is "{lost[0].target}" of query {lost[0].triplet_id}',
            field="target",
            mend="Add them to the category's image split. Run `triptych data check DATA` to list them all.",
        )

    answers = [
        query_set.answers.get(triplet.triplet_id, ()) if triplet.target is not None else ()
        for triplet in triplets
    ]
    ranks = rank(
        score,
        len(triplets),
        len(query_set.gallery),
        ranks_of=[
            [
                place[image]
                for image in (triplet.target, triplet.reference, *right, *others(triplet))
                if image in place
            ]
            for triplet, right in zip(triplets, answers, strict=True)
        ],
        names=query_set.queries.triplet_ids,
        memory_budget_bytes=memory_budget_bytes,
        bytes_per_score=bytes_per_score,
        progress=progress,
    ).ranks
    has_reference = [triplets[row].reference in place for row in known]
    subset = np.full(len(known), NO_SUBSET, dtype=np.int64)
    found: list[IntArray] = []
    for at, (row, has) in enumerate(zip(known, has_reference, strict=True)):
        members = sum(image in place for image in others(triplets[row]))
        end = len(ranks[row]) - members
        found.append(ranks[row][1 + has : end])
        if triplets[row].group is not None:
            subset[at] = (ranks[row][end:] < ranks[row][0]).sum()
    return QueryRanks(
        split=query_set.split,
        category=query_set.category,
        gallery_size=len(query_set.gallery),
        triplet_ids=tuple(triplets[row].triplet_id for row in known),
        target=np.array([ranks[row][0] for row in known], dtype=np.int64),
        reference=np.array(
            [ranks[row][1] if has else UNRANKED for row, has in zip(known, has_reference, strict=True)],
            dtype=np.int64,
        ),
        answers=tuple(found),
        subset=subset if (subset != NO_SUBSET).any() else None,
        aspects=tuple(query_set.aspects.get(triplets[row].triplet_id, ()) for row in known)
        if query_set.aspects
        else (),
        without_target=len(triplets) - len(known),
        answers_outside=sum(image not in place for right in answers for image in right),
    )


def others(triplet: Triplet) -> tuple[str, ...]:
    """Return the members of a query's subset that compete with its target: all but the reference and itself."""
    return tuple(name for name in triplet.group or () if name not in (triplet.reference, triplet.target))


def _places(query_set: QuerySet, where: str) -> dict[str, int]:
    """Give each gallery image its index."""
    if not query_set.gallery:
        raise DataError(
            f"{where} has an empty gallery ({len(query_set.queries)} queries)",
            mend="Check the image split file of this category.",
        )
    place = {image: index for index, image in enumerate(query_set.gallery)}
    if len(place) != len(query_set.gallery):
        raise DataError(
            f"{where}: {len(query_set.gallery) - len(place)} images stand in the gallery more than once",
            mend="List each image once in the image split of this category.",
        )
    return place
