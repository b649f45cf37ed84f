"""CKA and the pointwise distances: by hand, invariances, extremes."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from triptych.objectives import DISTANCES, cka_distance, l1_distance, l2_distance, mean, mse_distance


def tokens(seed: int, batch: int = 3, queries: int = 5, dim: int = 7) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    return functional.normalize(
        torch.randn(batch, queries, dim, generator=draws, dtype=torch.float64), dim=-1
    )


seeds = st.integers(0, 10_000)


def test_cka_by_hand() -> None:
    """Three tokens on a line at -1, 0, 1 against -1, 1, 0: K̄ = xxᵀ, so CKA = (x·y)² / (x·x)(y·y) = 1/4."""
    x = torch.tensor([[[-1.0], [0.0], [1.0]]])
    y = torch.tensor([[[-1.0], [1.0], [0.0]]])
    assert_close(cka_distance(x, y), torch.tensor([0.75]))
    assert_close(cka_distance(x, -3 * x + 5), torch.tensor([0.0]))


def test_pointwise_distances_by_hand() -> None:
    x = torch.tensor([[[0.0, 0.0], [1.0, 1.0]]])
    y = torch.tensor([[[3.0, 4.0], [1.0, 1.0]]])
    assert_close(mse_distance(x, y), torch.tensor([25 / 4]))
    assert_close(l1_distance(x, y), torch.tensor([7 / 4]))
    assert_close(l2_distance(x, y), torch.tensor([5 / 2]))


@given(seeds, st.integers(1, 6), st.integers(1, 6), st.integers(1, 9))
def test_cka_equals_the_printed_formula(seed: int, batch: int, queries: int, dim: int) -> None:
    x, y = tokens(seed, batch, queries, dim), tokens(seed + 1, batch, queries, dim)
    centring = torch.eye(queries, dtype=torch.float64) - torch.full(
        (queries, queries), 1 / queries, dtype=torch.float64
    )
    k, other = (centring @ z @ z.mT @ centring for z in (x, y))
    plain = 1 - (k * other).sum((1, 2)) / (k.norm(dim=(1, 2)) * other.norm(dim=(1, 2)) + 1e-8)
    assert_close(cka_distance(x, y), plain, rtol=1e-7, atol=1e-7)


@given(seeds, seeds, st.floats(0.1, 10), st.floats(-2, 2))
def test_cka_ignores_rotation_scale_and_shift_of_the_tokens(
    seed: int, other: int, scale: float, shift: float
) -> None:
    x, y = tokens(seed), tokens(other)
    turn, _ = torch.linalg.qr(tokens(seed + other + 1, 1, 7, 7)[0])
    moved = scale * (y @ turn) + shift
    assert_close(cka_distance(x, moved), cka_distance(x, y), rtol=0.0, atol=1e-5)
    order = torch.randperm(5, generator=torch.Generator().manual_seed(seed))
    assert_close(cka_distance(x[:, order], y[:, order]), cka_distance(x, y))


def test_the_gradient_of_cka_is_right_and_a_second_one_is_refused() -> None:
    x, y = (tokens(seed, 2, 4, 3).requires_grad_() for seed in (0, 1))
    assert torch.autograd.gradcheck(cka_distance, (x, y))
    (gradient,) = torch.autograd.grad(cka_distance(x, y).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@given(seeds, seeds)
@pytest.mark.parametrize("name", DISTANCES)
def test_distances_are_symmetric_zero_to_oneself_and_per_triplet(name: str, seed: int, other: int) -> None:
    distance = DISTANCES[name]
    x, y = tokens(seed), tokens(other + 20_000)
    assert_close(distance(x, y), distance(y, x))
    assert_close(distance(x, x), torch.zeros(3, dtype=x.dtype), rtol=0.0, atol=1e-6)
    assert (distance(x, y) > 1e-3).all()
    assert_close(distance(x, y)[1:2], distance(x[1:2], y[1:2]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", DISTANCES)
@pytest.mark.parametrize(
    "case",
    ["usual", "one triplet", "one query", "one dimension", "zero vectors", "identical tokens", "same twice"],
)
def test_finite_at_the_extremes(case: str, name: str, dtype: torch.dtype) -> None:
    x, y = tokens(0), tokens(1)
    if case == "one triplet":
        x, y = x[:1], y[:1]
    elif case == "one query":
        x, y = x[:, :1], y[:, :1]
    elif case == "one dimension":
        x, y = x[:, :, :1], y[:, :, :1]
    elif case == "zero vectors":
        x, y = torch.zeros_like(x), torch.zeros_like(y)
    elif case == "identical tokens":
        x, y = x[:, :1].expand_as(x), y[:, :1].expand_as(y)
    elif case == "same twice":
        y = x.clone()
    x, y = (value.detach().to(dtype).requires_grad_() for value in (x, y))
    values = DISTANCES[name](x, y)
    assert values.shape == (len(x),)
    assert values.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert values.isfinite().all()
    for gradient in torch.autograd.grad(mean(values), [x, y]):
        assert gradient.isfinite().all()


def test_collapsed_tokens_have_cka_distance_one_and_no_gradient() -> None:
    x = torch.ones(2, 4, 3, requires_grad=True)
    values = cka_distance(x, tokens(0, 2, 4, 3).float())
    assert_close(values, torch.ones(2))
    assert_close(torch.autograd.grad(values.sum(), x)[0], torch.zeros(2, 4, 3))


def test_autocast_does_not_lower_the_precision() -> None:
    x, y = tokens(0).float(), tokens(1).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = cka_distance(x, y)
    assert inside.dtype == torch.float32
    assert_close(inside, cka_distance(x, y), rtol=0.0, atol=0.0)
    assert math.isfinite(mean(inside).item())


@pytest.mark.parametrize("name", DISTANCES)
def test_wrong_calls_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"\[2, 3, 4\] and \[2, 5, 4\]"):
        DISTANCES[name](torch.zeros(2, 3, 4), torch.zeros(2, 5, 4))
    with pytest.raises(ValueError, match="token sets"):
        DISTANCES[name](torch.zeros(3, 4), torch.zeros(3, 4))
