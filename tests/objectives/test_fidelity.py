"""Fidelity and the noisy set: by hand, what must always hold, and the extremes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from triptych.objectives import clean_level, empirical_boundary, fidelity, low_fidelity

FORMS = ("smoothstep", "released", "eq3", "x2_1mx_nomax")


def vector(seed: int, size: int) -> Tensor:
    return 2 * torch.rand(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 1


vectors = st.builds(vector, st.integers(0, 10_000), st.integers(1, 9))


def test_each_form_by_hand() -> None:
    """Boundary 0.2; the 95 % quantile of four values lies 0.85 of the way from the third to the fourth."""
    matched = torch.tensor([0.1, 0.2, 0.4, 0.6], dtype=torch.float64)
    level = 0.6 - 0.15 * 0.2  # rank 0.95 * 3 = 2.85, between 0.4 and 0.6
    assert clean_level(matched).item() == pytest.approx(level)
    x = [0.0, 0.0, 0.2 / (level - 0.2), 1.0]
    assert fidelity(matched, 0.2).tolist() == pytest.approx([v * v * (3 - 2 * v) for v in x])
    assert fidelity(matched, 0.2, form="released").tolist() == pytest.approx([0, 0, 0.25 * 0.75, 0])
    assert fidelity(matched, 0.2, form="eq3").tolist() == pytest.approx([0, 0, 0.04 * -0.8, 0.16 * -0.6])
    assert fidelity(matched, 0.2, form="x2_1mx_nomax").tolist() == pytest.approx(
        [0, 0, 0.04 * 0.8, 0.16 * 0.6]
    )


@given(vectors, st.floats(-0.9, 0.9))
def test_smoothstep_grows_with_the_similarity(matched: Tensor, boundary: float) -> None:
    matched = matched.sort().values
    grades = fidelity(matched, boundary)
    assert (grades.diff() >= -1e-15).all()
    assert (grades[matched <= boundary] == 0).all()
    assert grades.max() <= 1
    nearer = matched - boundary > (clean_level(matched) - boundary).clamp(min=1e-6) / 2
    assert torch.equal(grades > 0.5, nearer)


@given(vectors)
def test_the_released_form_grades_the_best_match_as_noise(matched: Tensor) -> None:
    grades = fidelity(matched, -1.0, form="released")
    assert grades[matched.argmax()] == 0
    assert grades.max() <= 0.25


def test_eq3_is_never_positive_for_a_cosine_above_a_floor_of_zero() -> None:
    """Hence a threshold makes everything noisy; only the quantile rule divides."""
    grades = fidelity(vector(0, 8), 0.0, form="eq3")
    assert (grades <= 0).all()
    assert low_fidelity(grades).all()
    assert low_fidelity(grades, rule="quantile").sum() == 4


def test_rules_by_hand() -> None:
    grades = torch.tensor([0.5, 0.49, 0.0, 0.9, 0.0])
    assert low_fidelity(grades).tolist() == [False, True, True, False, True]
    assert low_fidelity(grades, rule="quantile").tolist() == [False, False, True, False, True]
    assert low_fidelity(grades, omega=0.2, rule="quantile").tolist() == [False, False, True, False, False]
    assert not low_fidelity(grades, omega=0.0, rule="quantile").any()
    assert low_fidelity(grades, omega=1.0, rule="quantile").all()
    assert not low_fidelity(grades, omega=0.0).any()


@given(vectors, st.floats(0, 1), st.integers(0, 10_000))
def test_order_of_the_batch_does_not_matter(matched: Tensor, omega: float, seed: int) -> None:
    order = torch.randperm(len(matched), generator=torch.Generator().manual_seed(seed))
    for form in FORMS:
        assert_close(fidelity(matched[order], 0.1, form=form), fidelity(matched, 0.1, form=form)[order])
    for rule in ("threshold", "quantile"):  # without equals
        noisy = low_fidelity(matched, omega=omega, rule=rule)
        assert torch.equal(low_fidelity(matched[order], omega=omega, rule=rule), noisy[order])


def test_empirical_boundary_by_hand() -> None:
    s = torch.tensor([[9.0, 0.1, 0.2], [0.3, 9.0, 0.4], [0.5, 0.6, 9.0]], requires_grad=True)
    boundary = empirical_boundary(s)
    assert boundary.item() == pytest.approx(0.35)
    assert not boundary.requires_grad
    assert empirical_boundary(torch.tensor([[0.9]])).item() == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "matched", [[0.4], [0.4, 0.1], [0.3, 0.3, 0.3], [0.0, 0.0], [-1.0, -0.5], [100.0, 0.0]], ids=str
)
def test_finite_at_the_extremes(matched: list[float], form: str, dtype: torch.dtype) -> None:
    values = torch.tensor(matched, dtype=dtype, requires_grad=True)
    for boundary in (0.0, 0.3, torch.tensor(0.3, dtype=torch.float64), 1.0):
        grades = fidelity(values, boundary, form=form)
        assert grades.isfinite().all()
        assert not grades.requires_grad
        assert grades.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert (grades[torch.tensor(matched) < float(boundary)] == 0).all()


def test_wrong_calls_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\[B\] similarities.*\[2, 2\]"):
        fidelity(torch.zeros(2, 2), 0.0)
    with pytest.raises(ValueError, match='got "linear"'):
        fidelity(torch.zeros(2), 0.0, form="linear")
    with pytest.raises(ValueError, match="omega must be in"):
        low_fidelity(torch.zeros(2), omega=1.5)
    with pytest.raises(ValueError, match='got "mean"'):
        low_fidelity(torch.zeros(2), rule="mean")
    with pytest.raises(ValueError, match="square"):
        empirical_boundary(torch.zeros(2, 3))
