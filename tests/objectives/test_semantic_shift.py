"""Semantic shift: by hand, what must always hold, and the extremes."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from triptych.objectives import mean, shift_divergence


def pair(seed: int, size: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    first, second = 2 * torch.rand(2, size, size, generator=generator, dtype=torch.float64) - 1
    return first, second


def test_by_hand() -> None:
    """Equal kept similarities: -log 1/2 to the labels; against removed [log 3, 0], so 3/4 and 1/4,
    ½ log(½ / ¾) + ½ log(½ / ¼) = ½ log 4/3. Each is divided by the two entries of a row."""
    kept = torch.zeros(2, 2, dtype=torch.float64)
    removed = torch.tensor([[math.log(3), 0.0], [0.0, 0.0]], dtype=torch.float64)
    expected = torch.tensor([math.log(2) - math.log(4 / 3) / 2, math.log(2)], dtype=torch.float64) / 2
    assert_close(shift_divergence(kept, removed, temperature=1.0), expected)


@given(st.integers(0, 10_000), st.integers(1, 9))
def test_equals_the_difference_of_two_means_over_all_entries(seed: int, size: int) -> None:
    kept, removed = pair(seed, size)
    log_kept, log_removed = (100 * kept).log_softmax(1), (100 * removed).log_softmax(1)
    labels = (100 * torch.eye(size, dtype=torch.float64)).softmax(1)
    expected = (
        functional.kl_div(log_kept, labels, reduction="none").mean()
        - functional.kl_div(log_removed, log_kept, reduction="none", log_target=True).mean()
    )
    assert_close(mean(shift_divergence(kept, removed)), expected)


@given(st.integers(0, 10_000), st.integers(1, 9))
def test_order_and_shifts_of_rows_do_not_matter(seed: int, size: int) -> None:
    kept, removed = pair(seed, size)
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    plain = shift_divergence(kept, removed)
    assert_close(shift_divergence(kept[order][:, order], removed[order][:, order]), plain[order])
    assert_close(shift_divergence(kept + 0.3, removed - 0.2), plain)


def test_gradient_goes_through_both_places_of_kept() -> None:
    kept, removed = (matrix.requires_grad_() for matrix in pair(0, 4))
    value = mean(shift_divergence(kept, removed, temperature=1.0))
    full, other = torch.autograd.grad(value, [kept, removed])
    assert other.any()
    p, labels = kept.detach().softmax(1), (100 * torch.eye(4, dtype=torch.float64)).softmax(1)
    assert not torch.allclose(full, (p - labels) / 16)  # what it would be with the second place held fixed


EXTREMES = {
    "one triplet": torch.tensor([[0.3]]),
    "identical": torch.ones(5, 5),
    "zero vectors": torch.zeros(5, 5),
    "certain and right": 2 * torch.eye(5) - 1,
    "certain and wrong": (2 * torch.eye(5) - 1).roll(1, dims=0),
    "far beyond a cosine": 100 * torch.eye(5).roll(1, dims=0),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("extreme", EXTREMES)
def test_finite_at_the_extremes(extreme: str, dtype: torch.dtype) -> None:
    kept = EXTREMES[extreme].to(dtype).requires_grad_()
    removed = EXTREMES[extreme].roll(1, dims=1).to(dtype).requires_grad_()
    values = shift_divergence(kept, removed)
    assert values.shape == (len(kept),)
    assert values.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert values.isfinite().all()
    for gradient in torch.autograd.grad(mean(values), [kept, removed]):
        assert gradient.isfinite().all()


def test_wrong_calls_are_refused() -> None:
    with pytest.raises(ValueError, match=r"one size.*\[2, 2\] and \[3, 3\]"):
        shift_divergence(torch.zeros(2, 2), torch.zeros(3, 3))
    with pytest.raises(ValueError, match="square"):
        shift_divergence(torch.zeros(2, 3), torch.zeros(2, 3))
    with pytest.raises(ValueError, match="temperature"):
        shift_divergence(torch.zeros(2, 2), torch.zeros(2, 2), temperature=0.0)
