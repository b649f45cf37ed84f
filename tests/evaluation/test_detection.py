"""Finding wrong triplets by a score, counted by hand."""

import pytest

from triptych.evaluation.detection import detection

IDS = ["a", "b", "c", "d"]


def test_by_hand() -> None:
    """Wrong: b and c. Pairs (wrong, right): b < a, b < d, c < a, c > d: three of four. Precision at b 1, at c 2/3."""
    found = detection(IDS, [0.9, 0.1, 0.5, 0.3], {"b", "c"})
    assert found.auroc == pytest.approx(3 / 4)
    assert found.average_precision == pytest.approx((1 + 2 / 3) / 2)
    assert (found.wrong, found.scored) == (2, 4)


def test_equal_scores_are_a_guess() -> None:
    found = detection(IDS, [0.5] * 4, {"a"})
    assert found.auroc == pytest.approx(0.5)
    assert found.average_precision == pytest.approx(1 / 4)


def test_with_one_kind_only_there_is_no_figure() -> None:
    assert detection(IDS, [1, 2, 3, 4], set()).auroc is None
    assert detection(IDS, [1, 2, 3, 4], set(IDS)).average_precision is None


def test_scores_must_be_finite_and_as_many() -> None:
    with pytest.raises(ValueError, match="finite"):
        detection(IDS, [1, 2, 3, float("nan")], {"a"})
    with pytest.raises(ValueError, match="4 finite"):
        detection(IDS, [1, 2], {"a"})
