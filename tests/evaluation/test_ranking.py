"""Ranking against a plain sort, and what must not change it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from triptych.errors import DataError
from triptych.evaluation.ranking import UNRANKED, ScoreBlock, rank


def block(scores: np.ndarray) -> ScoreBlock:
    return lambda queries, gallery: scores[queries, gallery]


def plain_order(row: np.ndarray, excluded: int | None) -> list[int]:
    """Best first; Python's sort is stable, so ties stay in gallery order."""
    images = [image for image in range(len(row)) if image != excluded]
    return sorted(images, key=lambda image: -row[image])


@st.composite
def problems(draw: Callable[..., object]) -> tuple[np.ndarray, list[int | None]]:
    """Scores of few distinct values, so most rows have ties, and an excluded image or none for each query."""
    shape = draw(st.tuples(st.integers(1, 6), st.integers(1, 9)))
    scores = draw(hnp.arrays(np.float32, shape, elements=st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0])))
    excluded = draw(st.lists(st.none() | st.integers(0, shape[1] - 1), min_size=shape[0], max_size=shape[0]))
    return scores, excluded


@given(problems(), st.integers(0, 12), st.sampled_from([1, 200, 700, 2**20]), st.integers(1, 64))
def test_equals_a_plain_sort_whatever_the_chunks(
    problem: tuple[np.ndarray, list[int | None]], top_k: int, budget: int, bytes_per_score: int
) -> None:
    scores, excluded = problem
    size = scores.shape[1]
    result = rank(
        block(scores),
        *scores.shape,
        top_k=top_k,
        ranks_of=[range(size)] * len(scores),
        exclude=excluded,
        memory_budget_bytes=budget,
        bytes_per_score=bytes_per_score,
    )
    k = min(top_k, size)
    assert result.indices.shape == result.scores.shape == (len(scores), k)
    for query, row in enumerate(scores):
        order = plain_order(row, excluded[query])
        padded = (order + [-1] * size)[:k]
        assert result.indices[query].tolist() == padded
        assert result.scores[query].tolist() == [row[i] if i >= 0 else -np.inf for i in padded]
        expected = [UNRANKED if image == excluded[query] else order.index(image) for image in range(size)]
        assert result.ranks[query].tolist() == expected


@given(problems(), st.randoms(use_true_random=False))
def test_the_order_of_the_queries_does_not_matter(
    problem: tuple[np.ndarray, list[int | None]], random: object
) -> None:
    scores, excluded = problem
    order = list(range(len(scores)))
    random.shuffle(order)
    straight = rank(block(scores), *scores.shape, top_k=3, exclude=excluded)
    shuffled = rank(block(scores[order]), *scores.shape, top_k=3, exclude=[excluded[i] for i in order])
    np.testing.assert_array_equal(shuffled.indices, straight.indices[order])


@given(problems(), st.sampled_from([-4.0, 0.5, 8.0]))
def test_adding_a_constant_to_the_scores_does_not_matter(
    problem: tuple[np.ndarray, list[int | None]], constant: float
) -> None:
    scores, excluded = problem
    straight, moved = (
        rank(block(s), *scores.shape, top_k=4, exclude=excluded)
        for s in (scores, scores + np.float32(constant))
    )
    np.testing.assert_array_equal(straight.indices, moved.indices)


def test_a_hand_made_row_with_ties() -> None:
    scores = np.array([[0.5, 0.9, 0.5, 0.9, 0.1]])
    result = rank(block(scores), 1, 5, top_k=3, ranks_of=[[0, 2, 3]], exclude=[1])
    assert result.indices.tolist() == [[3, 0, 2]]
    assert result.scores.tolist() == [[0.9, 0.5, 0.5]]
    assert result.ranks[0].tolist() == [1, 2, 0]


def test_every_score_is_asked_for_once_and_within_the_budget() -> None:
    asked = np.zeros((40, 300), dtype=int)
    largest = 0

    def score(queries: slice, gallery: slice) -> np.ndarray:
        nonlocal largest
        asked[queries, gallery] += 1
        largest = max(largest, (queries.stop - queries.start) * (gallery.stop - gallery.start))
        return np.zeros((queries.stop - queries.start, gallery.stop - gallery.start), dtype=np.float32)

    rank(score, 40, 300, memory_budget_bytes=100_000, bytes_per_score=128)
    assert (asked == 1).all()
    assert largest * 128 <= 50_000


def test_a_gallery_of_a_hundred_thousand_is_read_in_pieces() -> None:
    random = np.random.default_rng(0)
    gallery = random.standard_normal((100_000, 8), dtype=np.float32)
    queries = gallery[[70_000, 3]]
    widths = []

    def score(rows: slice, columns: slice) -> np.ndarray:
        widths.append(columns.stop - columns.start)
        return -((queries[rows, None] - gallery[None, columns]) ** 2).sum(axis=-1)

    result = rank(score, 2, 100_000, top_k=5, memory_budget_bytes=8 * 2**20, bytes_per_score=1000)
    assert result.indices[:, 0].tolist() == [70_000, 3]
    assert max(widths) < 5000


def test_float64_scores_are_not_rounded() -> None:
    scores = np.array([[0.5, 0.5 + 1e-12]])
    assert rank(block(scores), 1, 2, top_k=1).indices.tolist() == [[1]]


def test_half_precision_scores_are_ranked_as_float32() -> None:
    result = rank(block(np.array([[0.25, 0.5]], dtype=np.float16)), 1, 2, top_k=2)
    assert result.scores.dtype == np.float32
    assert result.indices.tolist() == [[1, 0]]


def test_progress_ends_at_the_number_of_queries() -> None:
    seen: list[tuple[int, int]] = []
    rank(
        block(np.zeros((5, 4))),
        5,
        4,
        memory_budget_bytes=1,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_no_number_names_the_query(bad: float) -> None:
    scores = np.zeros((3, 4))
    scores[1, 2] = bad
    with pytest.raises(DataError, match=r"query b: 1 of 4 scores are not finite"):
        rank(block(scores), 3, 4, names=["a", "b", "c"])
    with pytest.raises(DataError, match="query 1"):
        rank(block(scores), 3, 4)


def test_large_finite_scores_are_not_taken_for_infinite() -> None:
    scores = np.full((1, 4), 3e38, dtype=np.float32)
    assert rank(block(scores), 1, 4, top_k=1).indices.tolist() == [[0]]


def test_an_empty_gallery_and_no_queries() -> None:
    with pytest.raises(DataError, match="gallery is empty"):
        rank(block(np.zeros((2, 0))), 2, 0)
    result = rank(block(np.zeros((0, 3))), 0, 3, top_k=2, ranks_of=[])
    assert result.indices.shape == (0, 2)
    assert result.ranks == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks_of": [[0]]}, "ranks_of names 1 queries"),
        ({"ranks_of": [[0], [4]]}, "query 1 points outside"),
        ({"exclude": [0]}, "exclude names 1"),
        ({"exclude": [None, -1]}, "query 1 points outside"),
        ({"memory_budget_bytes": 0}, "must be positive"),
    ],
)
def test_wrong_calls(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rank(block(np.zeros((2, 4))), 2, 4, **options)


def test_a_block_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(4,\), expected \(1, 4\)"):
        rank(lambda queries, gallery: np.zeros(4), 1, 4)
