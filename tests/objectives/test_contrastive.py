"""Robust contrastive and InfoNCE: by hand, what must always hold, and the extremes."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from triptych.objectives import info_nce, match_probabilities, mean, positive_and_negative, robust_contrastive
from triptych.objectives.probability import complement, log_complement

Objective = Callable[..., Tensor]
OBJECTIVES = [
    pytest.param(robust_contrastive, id="robust"),
    pytest.param(lambda s, **options: robust_contrastive(s, include_diagonal=True, **options), id="no mask"),
    pytest.param(info_nce, id="infonce"),
]


def matrix(seed: int, size: int) -> Tensor:
    return 2 * torch.rand(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 1


matrices = st.builds(matrix, st.integers(0, 10_000), st.integers(1, 9))


def test_two_triplets_by_hand() -> None:
    """With s = I and tau = 1 each row has p_right = e / (1 + e) and p_wrong = 1 / (1 + e)."""
    right, wrong = math.e / (1 + math.e), 1 / (1 + math.e)
    s = torch.eye(2)
    assert_close(robust_contrastive(s, temperature=1.0), torch.full((2,), -math.log(1 - wrong)))
    assert_close(info_nce(s, temperature=1.0), torch.full((2,), -math.log(right)))
    repelled = -math.log(1 - wrong) - math.log(1 - right)
    assert_close(robust_contrastive(s, temperature=1.0, include_diagonal=True), torch.full((2,), repelled))


def test_three_targets_are_summed_not_averaged() -> None:
    """Equal similarities: p = 1/3 everywhere, so two wrong targets cost 2 log 3/2 and the right one log 3."""
    s = torch.zeros(3, 3)
    assert_close(robust_contrastive(s), torch.full((3,), 2 * math.log(3 / 2)))
    assert_close(info_nce(s), torch.full((3,), math.log(3)))


@given(matrices, st.integers(0, 10_000))
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_order_of_the_batch_does_not_matter(objective: Objective, s: Tensor, seed: int) -> None:
    order = torch.randperm(len(s), generator=torch.Generator().manual_seed(seed))
    assert_close(objective(s[order][:, order]), objective(s)[order])


@given(matrices, st.floats(-3, 3), st.floats(0.3, 3))
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_shift_of_a_row_and_a_common_scale_do_not_matter(
    objective: Objective, s: Tensor, shift: float, scale: float
) -> None:
    plain = objective(s, temperature=0.5)
    assert_close(objective(s + shift, temperature=0.5), plain)
    assert_close(objective(s * scale, temperature=0.5 * scale), plain)


@given(matrices)
def test_gradients_push_wrong_targets_away(s: Tensor) -> None:
    s.requires_grad_()
    (gradient,) = torch.autograd.grad(mean(info_nce(s, temperature=1.0)), s)
    own = torch.eye(len(s), dtype=torch.bool)
    assert (gradient[own] <= 0).all()
    assert (gradient[~own] > 0).all()

    (gradient,) = torch.autograd.grad(mean(robust_contrastive(s, temperature=1.0)), s)
    assert (gradient[own] <= 0).all()  # it too raises the annotated pair, through the denominator alone
    assert_close(gradient.sum(dim=1), torch.zeros(len(s), dtype=s.dtype))


@given(st.integers(0, 10_000), st.integers(1, 9))
def test_equals_the_plain_formula(seed: int, size: int) -> None:
    s = matrix(seed, size)
    p = torch.softmax(s / 0.07, dim=1).clamp(1e-7, 1 - 1e-7)
    wrong = 1 - torch.eye(size, dtype=torch.float64)
    assert_close(robust_contrastive(s), -((1 - p).log() * wrong).sum(dim=1), rtol=1e-9, atol=1e-9)


def test_clamp_is_as_exact_in_float32_as_in_float64() -> None:
    """A wrong target at p = 1 costs log 1e7; where 1 - 1e-7 is rounded to float32 it would be 15.9."""
    s = torch.tensor([[0.0, 3.0, 0.0], [0.0, 0.0, 0.0], [0.3, 0.2, 0.5]])
    assert_close(robust_contrastive(s[:2, :2])[0].item(), -math.log(1e-7), rtol=1e-6, atol=0.0)
    assert_close(robust_contrastive(s), robust_contrastive(s.double()).float(), rtol=1e-6, atol=1e-7)


@given(st.floats(-20, 20), st.floats(-20, 20), st.floats(-20, 20))
def test_complement_keeps_its_digits_in_float32(a: float, b: float, c: float) -> None:
    p = torch.softmax(torch.tensor([[a, b, c]], dtype=torch.float64), dim=1)
    assert_close(complement(p), 1 - p, rtol=1e-6, atol=1e-15)
    exact = torch.softmax(torch.tensor([[a, b, c]]), dim=1)
    reference = torch.stack([exact[0, [1, 2]].sum(), exact[0, [0, 2]].sum(), exact[0, [0, 1]].sum()])[None]
    assert_close(complement(exact), reference, rtol=1e-5, atol=1e-12)
    assert_close(
        log_complement(exact, 1e-7), log_complement(exact.double(), 1e-7).float(), rtol=1e-5, atol=1e-7
    )


EXTREMES = {
    "one triplet": torch.tensor([[0.3]]),
    "two triplets": torch.tensor([[0.3, 0.9], [0.1, -0.2]]),
    "identical features": torch.ones(5, 5),
    "zero vectors": torch.zeros(5, 5),
    "certain and right": 2 * torch.eye(5) - 1,
    "certain and wrong": (2 * torch.eye(5) - 1).roll(1, dims=0),
    "far beyond a cosine": 100 * torch.eye(5).roll(1, dims=0),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("extreme", EXTREMES)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_finite_at_the_extremes(objective: Objective, extreme: str, dtype: torch.dtype) -> None:
    s = EXTREMES[extreme].to(dtype).requires_grad_()
    tau = torch.tensor(0.07, requires_grad=True)
    values = objective(s, temperature=tau)
    assert values.shape == (len(s),)
    assert values.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert values.isfinite().all()
    assert (values >= 0).all()
    for gradient in torch.autograd.grad(mean(values), [s, tau]):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_wrong_calls_are_refused(objective: Objective) -> None:
    with pytest.raises(ValueError, match=r"square.*\[2, 3\]"):
        objective(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="temperature must be positive, got 0"):
        objective(torch.zeros(2, 2), temperature=0.0)
    with pytest.raises(ValueError, match="eps"):
        robust_contrastive(torch.zeros(2, 2), eps=0.5)


def test_for_and_against_by_hand() -> None:
    p = torch.tensor([[0.5, 0.3, 0.2], [0.6, 0.1, 0.3], [0.2, 0.2, 0.6]])
    positive, negative = positive_and_negative(p)
    assert_close(positive, torch.tensor([0.5, 0.1, 0.6]))
    assert_close(negative, torch.tensor([0.3, 0.6, 0.2]))
    positive, negative = positive_and_negative(match_probabilities(torch.tensor([[0.4]])))
    assert (positive.item(), negative.item()) == (1.0, 0.0)


def test_random_features_start_near_one_in_b() -> None:
    s = 1e-3 * matrix(0, 64)
    positive, negative = positive_and_negative(match_probabilities(s))
    assert_close(positive, torch.full_like(positive, 1 / 64), rtol=0.05, atol=0.0)
    assert_close(negative, torch.full_like(negative, 1 / 64), rtol=0.05, atol=0.0)
