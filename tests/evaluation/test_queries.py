"""Queries of a category: which ranks are taken, what is left out and counted, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from triptych.errors import DataError
from triptych.evaluation.protocols import FASHIONIQ
from triptych.evaluation.queries import evaluate_queries
from triptych.evaluation.ranking import UNRANKED, ScoreBlock
from triptych.triplets.benchmark import QuerySet
from triptych.triplets.table import Triplet, TripletTable


def query_set(
    *queries: tuple[str, str | None],
    gallery: str = "abcde",
    answers: dict[str, tuple[str, ...]] | None = None,
) -> QuerySet:
    rows = [Triplet(f"t{n}", ref, ("redder",), target, "dress") for n, (ref, target) in enumerate(queries)]
    return QuerySet("val", "dress", TripletTable.from_triplets(rows), tuple(gallery), answers or {})


def block(scores: list[list[float]]) -> ScoreBlock:
    table = np.array(scores, dtype=np.float32)
    return lambda queries, gallery: table[queries, gallery]


def test_ranks_by_hand() -> None:
    """Order of the first query: a c b d e; of the second: e d c b a."""
    ranks = evaluate_queries(
        query_set(("a", "b"), ("x", "d"), answers={"t0": ("b", "c")}),
        block([[5, 3, 4, 2, 1], [1, 2, 3, 4, 5]]),
    )
    assert ranks.triplet_ids == ("t0", "t1")
    assert ranks.target.tolist() == [2, 1]
    assert ranks.reference.tolist() == [0, UNRANKED]
    assert [own.tolist() for own in ranks.answers] == [[2, 1], []]
    assert ranks.target_ranks("removed").tolist() == [1, 1]
    assert [own.tolist() for own in ranks.answer_ranks("removed")] == [[1, 0]]
    assert ranks.recalls(FASHIONIQ, "removed")["R@1"].tolist() == [0.0, 0.0]
    assert ranks.precisions(FASHIONIQ, "kept")["mAP@5"].tolist() == pytest.approx([(1 / 2 + 2 / 3) / 2])
    assert (ranks.split, ranks.category, ranks.gallery_size, len(ranks)) == ("val", "dress", 5, 2)


def test_no_known_answers_give_no_precision() -> None:
    ranks = evaluate_queries(query_set(("a", "b")), block([[5, 4, 3, 2, 1]]))
    assert ranks.precisions(FASHIONIQ, "kept") == {}


def test_what_is_left_out_is_counted() -> None:
    ranks = evaluate_queries(
        query_set(("a", None), ("a", "e"), answers={"t0": ("q",), "t1": ("e", "z", "d")}),
        block([[1, 1, 1, 1, 1], [1, 2, 3, 4, 5]]),
    )
    assert ranks.triplet_ids == ("t1",)
    assert ranks.target.tolist() == [0]
    assert [own.tolist() for own in ranks.answers] == [[0, 1]]
    assert (ranks.without_target, ranks.answers_outside) == (1, 1)


def test_a_target_that_is_the_reference_is_never_found_once_removed() -> None:
    ranks = evaluate_queries(query_set(("a", "a")), block([[5, 4, 3, 2, 1]]))
    assert ranks.target_ranks("kept").tolist() == [0]
    assert ranks.target_ranks("removed").tolist() == [UNRANKED]


ONES = block([[1.0] * 5] * 3)


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        (query_set(), r'category "dress" of split "val" has no queries'),
        (query_set(("a", "b"), gallery=""), r'category "dress".*empty gallery \(1 queries\)'),
        (query_set(("a", None), ("b", None)), r'category "dress".*none of its 2 queries'),
        (
            query_set(("a", "b"), ("a", "y"), ("a", "z")),
            r'category "dress".*targets of 2 of 3 queries.*first is "y" of query t1',
        ),
        (
            query_set(("a", "b"), gallery="abcba"),
            r'category "dress".*2 images stand in the gallery more than once',
        ),
    ],
)
def test_data_that_cannot_be_evaluated(queries: QuerySet, message: str) -> None:
    with pytest.raises(DataError, match=message):
        evaluate_queries(queries, ONES)


def test_a_score_that_is_no_number_names_the_triplet() -> None:
    with pytest.raises(DataError, match="query t1: 1 of 5"):
        evaluate_queries(query_set(("a", "b"), ("a", "c")), block([[1] * 5, [1, 1, float("nan"), 1, 1]]))
