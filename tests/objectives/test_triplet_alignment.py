"""Triplet alignment: by hand, what must always hold, and the extremes."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from triptych.objectives import mean, triplet_alignment


def matrix(seed: int, size: int) -> Tensor:
    return 2 * torch.rand(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 1


def test_by_hand() -> None:
    """One negative has no sum: m - s_ii + s_ij; three equal rows add tau log 2 in each direction."""
    s = torch.tensor([[0.5, 0.45], [0.2, 0.3]])
    expected = torch.tensor([0.05, 0.0 + (0.1 - 0.3 + 0.45)])
    assert_close(triplet_alignment(s), expected)
    assert_close(
        triplet_alignment(torch.zeros(3, 3), temperature=0.5, margin=0.2),
        torch.full((3,), 2 * (0.2 + 0.5 * math.log(2))),
    )
    assert_close(triplet_alignment(torch.eye(4)), torch.zeros(4))  # apart by far more than the margin


@given(st.integers(0, 10_000), st.integers(2, 9))
def test_equals_the_plain_formula(seed: int, size: int) -> None:
    s, tau = matrix(seed, size), 0.03
    wrong = 1 - torch.eye(size, dtype=torch.float64)
    powers = (s / tau).exp() * wrong
    expected = torch.zeros(size, dtype=torch.float64)
    for dim in (1, 0):
        expected += (0.1 - s.diagonal() + tau * powers.sum(dim).clamp(max=1e36).log()).relu()
    assert_close(triplet_alignment(s, temperature=tau), expected)


@given(st.integers(0, 10_000), st.integers(2, 9))
def test_lies_between_the_hardest_negative_and_its_bound(seed: int, size: int) -> None:
    s, tau = matrix(seed, size), 0.015
    rivals = s.masked_fill(torch.eye(size, dtype=torch.bool), -math.inf)
    hardest = sum((0.1 - s.diagonal() + rivals.amax(dim)).relu() for dim in (0, 1))
    value = triplet_alignment(s, temperature=tau)
    assert (value >= hardest - 1e-12).all()
    assert (value <= hardest + 2 * tau * math.log(size)).all()


@given(st.integers(0, 10_000), st.integers(1, 9))
def test_directions_order_and_shift_do_not_matter(seed: int, size: int) -> None:
    s = matrix(seed, size)
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    plain = triplet_alignment(s)
    assert_close(triplet_alignment(s.T), plain)
    assert_close(triplet_alignment(s[order][:, order]), plain[order])
    assert_close(triplet_alignment(s - 0.5), plain)


def test_the_sum_is_cut_as_published() -> None:
    """Two negatives at 2: log of e^(2 / 0.015) would be 133, but 1e36 has 82.9."""
    s = torch.tensor([[0.0, 2.0], [2.0, 0.0]], dtype=torch.float64)
    expected = 2 * (0.1 + 0.015 * math.log(1e36))
    assert_close(triplet_alignment(s), torch.full((2,), expected, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    "s",
    [
        torch.ones(1, 1),
        torch.eye(2).flip(0),
        torch.zeros(5, 5),
        torch.ones(5, 5),
        100 * torch.eye(4).roll(1, 0),
    ],
    ids=["one", "two", "zeros", "identical", "far beyond a cosine"],
)
def test_finite_at_the_extremes(s: Tensor, dtype: torch.dtype) -> None:
    s = s.to(dtype).requires_grad_()
    tau = torch.tensor(0.015, requires_grad=True)
    values = triplet_alignment(s, temperature=tau)
    assert values.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert values.isfinite().all()
    assert (values >= 0).all()
    for gradient in torch.autograd.grad(mean(values), [s, tau]):
        assert gradient.isfinite().all()


def test_a_batch_of_one_has_no_negatives() -> None:
    assert triplet_alignment(torch.tensor([[-1.0]])).item() == 0


def test_wrong_calls_are_refused() -> None:
    with pytest.raises(ValueError, match=r"square.*\[2, 3\]"):
        triplet_alignment(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="temperature must be positive"):
        triplet_alignment(torch.zeros(2, 2), temperature=0.0)
