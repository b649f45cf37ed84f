"""A batch's scores: ranks and gaps by hand, loyalty against its equation, and the order of the batch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.studies.figures.batch_scores import (
    answer_ranks,
    batch_loyalty,
    batch_similarity,
    diagonal_ranks,
    draw_answer_ranks,
    draw_score_matrices,
    loyalty_temperature,
    score_matrix,
)
from triptych.studies.figures.query_batch import known_queries, one_batch


def test_three_queries_by_hand() -> None:
    scores = [[0.9, 0.1, 0.2], [0.5, 0.5, 0.1], [0.4, 0.3, 0.2]]
    assert diagonal_ranks(scores).tolist() == [1, 2, 3]
    found = score_matrix(scores)
    assert found.diagonal == pytest.approx((0.9 + 0.5 + 0.2) / 3)
    assert found.off_diagonal == pytest.approx(1.6 / 6)
    lead = (0.9 - 0.15 + 0.5 - 0.3 + 0.2 - 0.35) / 3
    assert found.gap == pytest.approx(lead / np.sqrt((2 * 0.05**2 + 2 * 0.2**2 + 2 * 0.05**2) / 6))
    assert found.first == pytest.approx(100 / 3)
    ranks = answer_ranks(scores, "similarity")
    assert (ranks.first, ranks.mean) == (pytest.approx(100 / 3), 2.0)


def test_loyalty_by_hand() -> None:
    """Two queries, temperature 1, scores [[1, 0], [0, 1]]: p = e / (1 + e); the own pair has (p + 1 - (1 - p)) / 2."""
    p = np.e / (1 + np.e)
    found = batch_loyalty(np.eye(2), temperature=1.0)
    np.testing.assert_allclose(found.diagonal(), [p, p], rtol=1e-6)
    np.testing.assert_allclose(found[0, 1], 1 - p, rtol=1e-6)


@given(st.integers(0, 2**32 - 1))
def test_the_order_of_the_batch_only_moves_the_ranks(seed: int) -> None:
    draws = np.random.default_rng(seed)
    scores, order = draws.normal(size=(5, 5)), draws.permutation(5)
    moved = scores[np.ix_(order, order)]
    assert diagonal_ranks(moved).tolist() == diagonal_ranks(scores)[order].tolist()
    assert score_matrix(moved).gap == pytest.approx(score_matrix(scores).gap)
    level = draws.normal(size=(5, 1))
    assert score_matrix(scores + level).gap == pytest.approx(score_matrix(scores).gap)


def test_flat_scores_have_no_gap_and_no_first() -> None:
    found = score_matrix(np.ones((3, 3)))
    assert np.isnan(found.gap)
    assert found.first == 0.0
    with pytest.raises(ValueError, match=r"\[B, B\]"):
        score_matrix(np.ones((2, 3)))


def test_a_run_gives_cosines(opened, bench) -> None:
    batch = one_batch(known_queries(bench, "val"), 6, 0)
    scores = batch_similarity(opened, batch)
    assert scores.shape == (len(batch), len(batch))
    assert np.abs(scores).max() <= 1 + 1e-6
    assert loyalty_temperature(opened) == 0.07


def test_drawings() -> None:
    matrices = {"one": score_matrix(np.eye(3)), "two": score_matrix(np.ones((3, 3)))}
    figure = draw_score_matrices(matrices)
    maps = [axes for axes in figure.axes if axes.images]
    assert {axes.images[0].get_clim() for axes in maps[:2]} == {(0.0, 1.0)}
    ranks = answer_ranks(np.eye(3), "loyalty")
    figure = draw_answer_ranks(("a", ranks), ("b", ranks))
    assert figure.axes[1].get_title(loc="left").endswith("by loyalty: first 100 %, mean rank 1.0")
