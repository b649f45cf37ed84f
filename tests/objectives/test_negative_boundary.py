"""Query- and target-oriented losses: by hand, against the plain broadcast, and the extremes."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from triptych.objectives import (
    batch_bounds,
    mean,
    query_oriented,
    query_oriented_released,
    target_oriented,
    target_oriented_released,
)

QUERY_ORIENTED: list[Callable[..., Tensor]] = [
    partial(query_oriented, bounds="batch"),
    partial(query_oriented, bounds="constants"),
    partial(query_oriented, bounds="eq7"),
    query_oriented_released,
]
TARGET_ORIENTED: list[Callable[..., Tensor]] = [
    *(partial(target_oriented, signs=signs) for signs in ("opposite", "plus", "minus", "zero")),
    target_oriented_released,
]


def with_cosines(*cosines: float) -> tuple[Tensor, Tensor]:
    """Unit rows in the plane at given cosines."""
    kappa = torch.tensor(cosines, dtype=torch.float64)
    queries = torch.tensor([[1.0, 0.0]], dtype=torch.float64).expand(len(cosines), 2)
    return queries, torch.stack([kappa, (1 - kappa.square()).sqrt()], dim=1)


def unit(seed: int, batch: int, width: int) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    return functional.normalize(torch.randn(batch, width, generator=draws, dtype=torch.float64), dim=1)


def test_bounds_by_hand() -> None:
    lower, upper = batch_bounds(torch.tensor([-0.2, -0.4, 0.0, 0.6]))
    assert (lower.item(), upper.item()) == (pytest.approx(-0.3), pytest.approx(0.6))
    assert [bound.item() for bound in batch_bounds(torch.tensor([0.5]))] == [0.0, 0.5]
    assert [bound.item() for bound in batch_bounds(torch.zeros(3))] == [0.0, 0.0]


def test_query_oriented_by_hand() -> None:
    queries, negatives = with_cosines(-0.2, -0.4, 0.0, 0.8, 0.4)  # alpha_1 = -0.3, alpha_2 = 0.6
    values = query_oriented(queries, negatives)
    assert values.tolist() == pytest.approx([0, 0.1, 0, 0.2, 0])
    values = query_oriented(queries, negatives, bounds="eq7")  # inside [-0.6, 0.3]
    assert values.tolist() == pytest.approx([0, 0, 0, 0.5, 0.1])
    values = query_oriented(queries, negatives, bounds="constants", temperature=0.1)
    assert values.tolist() == pytest.approx([1.93, 3.93, 0.02, 8.02, 4.02])


def test_mean_over_the_batch_is_the_mean_over_the_clean() -> None:
    queries, negatives = with_cosines(-0.2, -0.4, 0.0, 0.8, 0.4)
    clean = torch.tensor([True, True, False, True, False])
    assert mean(query_oriented(queries, negatives, clean)).item() == pytest.approx((0 + 0.1 + 0.2) / 3)
    assert query_oriented(queries, negatives, clean)[~clean].tolist() == [0, 0]
    s = unit(0, 5, 5)
    assert mean(target_oriented(s, clean)).item() == pytest.approx(target_oriented(s)[clean].mean().item())
    nobody = torch.zeros(5, dtype=torch.bool)
    assert mean(query_oriented(queries, negatives, nobody)).item() == 0
    assert mean(target_oriented(s, nobody)).item() == 0


def test_batch_bounds_get_no_gradient() -> None:
    """The loss of 0.8 above alpha_2 = 0.6 has slope 1, as if the bound were a constant."""
    queries, negatives = with_cosines(-0.2, 0.8, 0.4)
    negatives.requires_grad_()
    (gradient,) = torch.autograd.grad(query_oriented(queries, negatives).sum(), negatives)
    assert_close(gradient, torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]], dtype=torch.float64))


@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 6), st.booleans())
def test_released_broadcast_equals_all_products(seed: int, batch: int, width: int, holes: bool) -> None:
    """Values and gradients of both arguments, with zero coordinates and equal ones too."""
    queries, negatives = unit(seed, batch, width), unit(seed + 1, batch, width)
    if holes:
        queries, negatives = (
            x.masked_fill(x.abs() < 0.3, 0.0).mul(4).round().div(4) for x in (queries, negatives)
        )
    leaves = [queries.requires_grad_(), negatives.requires_grad_()]
    products = queries[:, None] * negatives
    low, high = -0.007, -0.002
    plain = ((products - high).relu() + (low - products).relu()).mean(dim=(1, 2)) / 0.07
    ours = query_oriented_released(queries, negatives)
    assert_close(ours, plain, rtol=1e-9, atol=1e-12)
    for found, expected in zip(
        torch.autograd.grad(ours.sum(), leaves), torch.autograd.grad(plain.sum(), leaves), strict=True
    ):
        assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_released_broadcast_wants_every_product_below_zero() -> None:
    """Opposite to all queries costs less than orthogonal to them: D = 8, products 0 against -1/8 and -0.005."""
    queries = torch.full((3, 8), 8**-0.5)
    tilted = torch.full((3, 8), -0.005 * 8**0.5)
    assert mean(query_oriented_released(queries, tilted)).item() == pytest.approx(0, abs=1e-6)
    assert mean(query_oriented_released(queries, torch.zeros(3, 8))).item() == pytest.approx(0.002 / 0.07)
    assert mean(query_oriented(queries, torch.zeros(3, 8))).item() == 0


def test_target_oriented_by_hand() -> None:
    sigma = torch.tensor([[0.5, -0.2], [0.1, -0.3]], dtype=torch.float64)

    def soft(x: float) -> float:
        return math.log(1 + math.exp(x))

    values = target_oriented(sigma, temperature=0.1)
    assert values.tolist() == pytest.approx([(soft(5) + soft(2)) / 2, (soft(-1) + soft(-3)) / 2])
    values = target_oriented(sigma, signs="plus", temperature=0.1)
    assert values.tolist() == pytest.approx([(soft(5) + soft(-2)) / 2, (soft(1) + soft(-3)) / 2])
    values = target_oriented(sigma, signs="minus", temperature=0.1)
    assert values.tolist() == pytest.approx([(soft(-5) + soft(2)) / 2, (soft(-1) + soft(3)) / 2])
    values = target_oriented(sigma, signs="zero")
    assert values.tolist() == pytest.approx([math.log(2)] * 2)
    p = 1 / (1 + math.exp(-7))
    values = target_oriented_released(sigma[:1, :].expand(2, 2), temperature=0.1)
    assert values[0].item() == pytest.approx(soft(p) + soft(-(1 - p)))


@given(st.integers(0, 10_000), st.integers(1, 8))
def test_target_oriented_pushes_off_its_own_target_only(seed: int, size: int) -> None:
    sigma = unit(seed, size, size).requires_grad_()
    (gradient,) = torch.autograd.grad(target_oriented(sigma).sum(), sigma)
    own = torch.eye(size, dtype=torch.bool)
    assert (gradient[own] > 0).all()
    assert (gradient[~own] < 0).all()


@given(st.integers(0, 10_000), st.integers(1, 8))
def test_order_of_the_batch_does_not_matter(seed: int, size: int) -> None:
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    queries, negatives, sigma = unit(seed, size, 5), unit(seed + 1, size, 5), unit(seed + 2, size, size)
    for objective in QUERY_ORIENTED:
        assert_close(objective(queries[order], negatives[order]), objective(queries, negatives)[order])
    for objective in TARGET_ORIENTED:
        assert_close(objective(sigma[order][:, order]), objective(sigma)[order])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [1, 2, 5])
@pytest.mark.parametrize("kind", ["random", "identical", "opposite", "zero"])
def test_finite_at_the_extremes(kind: str, batch: int, dtype: torch.dtype) -> None:
    queries = unit(0, batch, 6)
    negatives = {
        "random": unit(1, batch, 6),
        "identical": queries,
        "opposite": -queries,
        "zero": torch.zeros_like(queries),
    }[kind]
    if kind == "identical":
        queries = negatives = queries[:1].expand(batch, 6)
    leaves = [x.to(dtype).clone().requires_grad_() for x in (queries, negatives)]
    losses = [objective(*leaves) for objective in QUERY_ORIENTED]
    losses += [objective(leaves[1] @ leaves[0].T) for objective in TARGET_ORIENTED]
    for rows in (torch.zeros(batch, dtype=torch.bool), torch.arange(batch) % 2 == 0):
        losses += [query_oriented(*leaves, rows), target_oriented(leaves[1] @ leaves[0].T, rows)]
    for values in losses:
        assert values.shape == (batch,)
        assert values.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert values.isfinite().all()
        for gradient in torch.autograd.grad(mean(values), leaves, allow_unused=True):
            assert gradient is None or gradient.isfinite().all()


def test_wrong_calls_are_refused() -> None:
    for objective in QUERY_ORIENTED:
        with pytest.raises(ValueError, match=r"\[B, D\] twice, got \[2, 3\] and \[2, 4\]"):
            objective(torch.zeros(2, 3), torch.zeros(2, 4))
    for objective in TARGET_ORIENTED:
        with pytest.raises(ValueError, match="square"):
            objective(torch.zeros(2, 3))
        with pytest.raises(ValueError, match="temperature must be positive"):
            objective(torch.zeros(2, 2), temperature=0.0)
    with pytest.raises(ValueError, match="temperature must be positive"):
        query_oriented(torch.zeros(2, 2), torch.zeros(2, 2), bounds="constants", temperature=-1.0)
    with pytest.raises(ValueError, match='got "median"'):
        query_oriented(torch.zeros(2, 2), torch.zeros(2, 2), bounds="median")
    with pytest.raises(ValueError, match='got "random"'):
        target_oriented(torch.zeros(2, 2), signs="random")
    with pytest.raises(ValueError, match="bool mask"):
        target_oriented(torch.zeros(2, 2), torch.ones(2))
