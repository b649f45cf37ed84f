"""Figures against plain loops and values by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.evaluation.diagnostics import within_image_cosine
from triptych.evaluation.metrics import (
    average_precision_at_k,
    bootstrap_interval,
    macro_mean,
    recall_at_k,
    subset_ranks,
    without_reference,
)
from triptych.evaluation.ranking import UNRANKED


def plain_average_precision(ranks: list[int], k: int) -> float:
    """Walk down the list as the formula does."""
    hits, total = 0, 0.0
    for place in range(k):
        if place in ranks:
            hits += 1
            total += hits / (place + 1)
    return total / min(k, len(ranks))


answers = st.lists(st.integers(0, 30), min_size=1, max_size=12, unique=True)


@given(st.lists(answers, min_size=1, max_size=6), st.sampled_from([1, 5, 10, 50]))
def test_average_precision_equals_the_plain_loop(ranks: list[list[int]], k: int) -> None:
    values = average_precision_at_k([np.array(own) for own in ranks], k)
    np.testing.assert_allclose(values, [plain_average_precision(own, k) for own in ranks], rtol=1e-12)


def test_average_precision_by_hand() -> None:
    """Three right answers, found at places 1, 3 and not: (1/1 + 2/3) / min(5, 3)."""
    assert average_precision_at_k([np.array([2, UNRANKED, 0])], 5) == pytest.approx([5 / 9])
    assert average_precision_at_k([np.array([0, 1, 2])], 2) == pytest.approx([1.0])
    assert average_precision_at_k([], 5).tolist() == []


def test_average_precision_needs_a_right_answer() -> None:
    with pytest.raises(ValueError, match="query 1 has no right answer"):
        average_precision_at_k([np.array([0]), np.array([], dtype=np.int64)], 5)


@given(st.lists(st.integers(0, 60), min_size=1), st.sampled_from([1, 10, 50]))
def test_recall_equals_the_plain_loop(ranks: list[int], k: int) -> None:
    assert recall_at_k(np.array(ranks), k).tolist() == [1.0 if rank in range(k) else 0.0 for rank in ranks]


def test_k_must_be_positive() -> None:
    with pytest.raises(ValueError, match="k must be at least 1"):
        recall_at_k(np.array([0]), 0)
    with pytest.raises(ValueError, match="k must be at least 1"):
        average_precision_at_k([np.array([0])], -1)


def test_taking_the_reference_out_moves_up_only_what_stood_below_it() -> None:
    ranks = np.array([3, 0, 2, UNRANKED, 4])
    reference = np.array([1, 5, 2, 0, UNRANKED])
    assert without_reference(ranks, reference).tolist() == [2, 0, UNRANKED, UNRANKED, 4]
    table = without_reference(np.array([[0, 2], [1, 3]]), np.array([1, 1]))
    assert table.tolist() == [[0, 1], [UNRANKED, 2]]


def test_subset_rank_counts_members_ahead_only() -> None:
    ranks = subset_ranks(np.array([7, UNRANKED]), [np.array([3, 7, 9, 5]), np.array([1, 2])])
    assert ranks.tolist() == [2, UNRANKED]


def test_macro_mean_weighs_groups_alike() -> None:
    values = np.array([1.0, 1.0, 1.0, 0.0])
    assert macro_mean(values, ["a", "a", "a", "b"]) == pytest.approx(0.5)
    table = np.column_stack([values, 2 * values])
    np.testing.assert_allclose(macro_mean(table, ["a", "a", "a", "b"]), [0.5, 1.0])


def test_bootstrap_has_the_width_that_theory_gives() -> None:
    """400 queries a group, half of them right: the standard error of the mean is 0.5 / sqrt(800)."""
    values = np.tile([0.0, 1.0], 400)
    groups = ["a"] * 400 + ["b"] * 400
    low, high = bootstrap_interval(values, groups, seed=0, samples=4000)
    assert (low + high) / 2 == pytest.approx(0.5, abs=0.005)
    assert high - low == pytest.approx(2 * 1.96 * 0.5 / np.sqrt(800), rel=0.06)


def test_bootstrap_draws_within_groups() -> None:
    """Groups without spread have an interval without width, however far apart they are."""
    low, high = bootstrap_interval(np.array([0.0, 0.0, 1.0]), ["a", "a", "b"], seed=0)
    assert low == high == 0.5


def test_bootstrap_equals_a_plain_loop() -> None:
    from triptych.randomness import generator

    values = np.random.default_rng(1).random(7)
    random = generator(3, "bootstrap", "x")
    drawn = random.integers(7, size=(200, 7))
    means = sorted(sum(values[i] for i in row) / 7 for row in drawn.tolist())
    low, high = bootstrap_interval(values, ["x"] * 7, seed=3, samples=200, level=0.9)
    np.testing.assert_allclose([low, high], np.percentile(means, [5, 95]), rtol=1e-12)


def test_bootstrap_is_the_same_in_pieces_and_in_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).random((9, 3))
    groups = list("aaabbbbbb")
    whole = bootstrap_interval(values, groups, seed=5, samples=50)
    column = bootstrap_interval(values[:, 1], groups, seed=5, samples=50)
    np.testing.assert_allclose([bound[1] for bound in whole], column)
    monkeypatch.setattr("triptych.evaluation.metrics._BOOTSTRAP_CELLS", 20)
    np.testing.assert_allclose(bootstrap_interval(values, groups, seed=5, samples=50), whole)


def test_bootstrap_repeats_with_its_seed_only() -> None:
    values, groups = np.random.default_rng(0).random(30), ["a"] * 30
    first, again, other = (bootstrap_interval(values, groups, seed=seed, samples=50) for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    "options", [{"samples": 0}, {"level": 1.0}, {"groups": ["a"]}, {"values": np.array([])}]
)
def test_bootstrap_wrong_calls(options: dict[str, object]) -> None:
    call = {"values": np.zeros(2), "groups": ["a", "a"], "samples": 10, "level": 0.95, **options}
    values, groups = call.pop("values"), call.pop("groups")
    with pytest.raises(ValueError, match=r"must be positive|expected one group"):
        bootstrap_interval(values, groups, seed=0, **call)


def test_within_image_cosine_by_hand() -> None:
    """Pairs at 0, 90 and 90 degrees: (1 + 0 + 0) / 3; the vectors' lengths do not matter."""
    image = np.array([[[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]]])
    assert within_image_cosine(image) == pytest.approx(1 / 3)
    assert within_image_cosine(np.ones((2, 4, 5), dtype=np.float16)) == pytest.approx(1.0)
    assert within_image_cosine(np.eye(4)[None]) == pytest.approx(0.0)


def test_within_image_cosine_equals_a_plain_loop_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    targets = np.random.default_rng(0).standard_normal((7, 3, 5))
    unit = targets / np.linalg.norm(targets, axis=2, keepdims=True)
    plain = np.mean([own[q] @ own[r] for own in unit for q in range(3) for r in range(3) if q != r])
    monkeypatch.setattr("triptych.evaluation.diagnostics._CHUNK_VALUES", 30)
    assert within_image_cosine(targets) == pytest.approx(plain)


@pytest.mark.parametrize("shape", [(3, 4), (0, 2, 4), (3, 1, 4)])
def test_within_image_cosine_wrong_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="expected"):
        within_image_cosine(np.ones(shape))


def test_within_image_cosine_of_a_zero_vector() -> None:
    with pytest.raises(ValueError, match="zero or not finite"):
        within_image_cosine(np.zeros((1, 2, 3)))
