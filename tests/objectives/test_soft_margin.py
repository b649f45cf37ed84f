"""Adaptive margin and its hinge: by hand, the masks, extremes."""

import math
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from triptych.objectives import MarginShape, adaptive_margin, mean, soft_margin

SHAPES: tuple[MarginShape, ...] = get_args(MarginShape)


def matrix(seed: int, size: int) -> Tensor:
    return 2 * torch.rand(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 1


def test_margins_by_hand() -> None:
    e = torch.tensor([0.0, 0.5, 1.0])
    half = (math.sqrt(10) - 1) / 9
    assert_close(adaptive_margin(e, margin=0.5), 0.5 * torch.tensor([0.0, half, 1.0]))
    assert_close(adaptive_margin(e, margin=0.5, shape="linear"), torch.tensor([0.0, 0.25, 0.5]))
    assert_close(adaptive_margin(e, margin=0.5, shape="sin"), torch.tensor([0.0, 0.25, 0.5]))
    assert_close(adaptive_margin(e, margin=0.5, shape="none"), torch.tensor([0.5, 0.5, 0.5]))
    quarter = torch.tensor([0.25])
    assert_close(adaptive_margin(quarter, margin=1.0, shape="sin"), (1 - torch.tensor([0.5]).sqrt()) / 2)


@given(st.floats(0, 2))
@pytest.mark.parametrize("shape", SHAPES)
def test_margins_grow_with_cleanliness_up_to_the_given_one(shape: MarginShape, margin: float) -> None:
    e = torch.linspace(0, 1, 50, dtype=torch.float64)
    widths = adaptive_margin(e, margin=margin, shape=shape)
    assert (widths.diff() >= 0).all()
    assert widths[-1].item() == pytest.approx(margin)
    assert widths.min() >= 0


def test_hinge_by_hand() -> None:
    """Hardest negatives trail by 0.1, lead by 0.3 and trail by 0.5, against margins of 0.2."""
    s = torch.tensor([[0.6, 0.5, 0.0], [0.7, 0.4, 0.1], [0.3, 0.2, 0.8]])
    sure = torch.ones(3)
    assert_close(soft_margin(s, sure), torch.tensor([0.1, 0.5, 0.0]))
    mask = torch.tensor([True, False, True])
    assert_close(soft_margin(s, sure, mask=mask), torch.tensor([0.1, 0.0, 0.0]))
    released = soft_margin(s, sure, mask=mask, mask_hinge=False)
    assert_close(released, torch.tensor([0.1, 0.3, 0.0]))  # no margin, but still pulled
    assert_close(soft_margin(s, 0.5 * sure, shape="linear"), torch.tensor([0.0, 0.4, 0.0]))


@given(st.integers(0, 10_000), st.integers(1, 8))
@pytest.mark.parametrize("shape", SHAPES)
def test_invariances(shape: MarginShape, seed: int, size: int) -> None:
    s, e = matrix(seed, size), matrix(seed + 1, size)[0].abs()
    mask = matrix(seed + 2, size)[0] > 0
    value = soft_margin(s, e, mask=mask, shape=shape)
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    assert_close(soft_margin(s[order][:, order], e[order], mask=mask[order], shape=shape), value[order])
    assert_close(soft_margin(s + 0.7, e, mask=mask, shape=shape), value)
    assert (value[~mask] == 0).all()
    unmasked_hinge = soft_margin(s, e, mask=mask, shape=shape, mask_hinge=False)
    assert_close(unmasked_hinge[mask], value[mask])
    assert (unmasked_hinge >= value).all()


def test_gradient_moves_the_annotated_pair_and_the_hardest_negative_only() -> None:
    s = torch.tensor([[0.6, 0.5, 0.0], [0.7, 0.4, 0.1], [0.3, 0.2, 0.8]], requires_grad=True)
    e = torch.ones(3, requires_grad=True)
    gradient, none = torch.autograd.grad(soft_margin(s, e).sum(), [s, e], allow_unused=True)
    assert gradient.tolist() == [[-1, 1, 0], [1, -1, 0], [0, 0, 0]]
    assert none is None


EXTREMES = {
    "no triplet": torch.zeros(0, 0),
    "one triplet": torch.tensor([[0.3]]),
    "two triplets": torch.tensor([[0.3, 0.9], [0.1, -0.2]]),
    "identical features": torch.ones(5, 5),
    "zero vectors": torch.zeros(5, 5),
    "certain and wrong": (2 * torch.eye(5) - 1).roll(1, dims=0),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("extreme", EXTREMES)
@pytest.mark.parametrize("trusted", [None, True, False])
def test_finite_at_the_extremes(trusted: bool | None, extreme: str, dtype: torch.dtype) -> None:
    s = EXTREMES[extreme].to(dtype).requires_grad_()
    mask = None if trusted is None else torch.full((len(s),), trusted)
    for mask_hinge in (True, False):
        values = soft_margin(s, torch.ones(len(s), dtype=dtype), mask=mask, mask_hinge=mask_hinge)
        assert values.shape == (len(s),)
        assert values.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert values.isfinite().all()
        assert (values >= 0).all()
        assert torch.autograd.grad(mean(values), s)[0].isfinite().all()


def test_a_batch_of_one_costs_nothing() -> None:
    assert soft_margin(torch.tensor([[0.3]]), torch.ones(1)).tolist() == [0.0]


def test_wrong_calls_are_refused() -> None:
    s = torch.zeros(3, 3)
    with pytest.raises(ValueError, match=r"cleanliness must be \[3\]"):
        soft_margin(s, torch.ones(2))
    with pytest.raises(ValueError, match=r"mask must be \[3\]"):
        soft_margin(s, torch.ones(3), mask=torch.ones(3, 1, dtype=torch.bool))
    with pytest.raises(ValueError, match="margin must not be negative"):
        soft_margin(s, torch.ones(3), margin=-0.1)
    with pytest.raises(ValueError, match="shape must be"):
        adaptive_margin(torch.ones(3), shape="cubic")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="square"):
        soft_margin(torch.zeros(2, 3), torch.ones(2))
