"""Mutual knowledge: by hand, against NumPy's histograms, invariances, extremes."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from triptych.objectives import anchored_mutual_knowledge, mutual_knowledge


def tokens(seed: int, batch: int = 3, queries: int = 4, dim: int = 9) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    return torch.randn(batch, queries, dim, generator=draws, dtype=torch.float64)


def plain(first: Tensor, second: Tensor, bins: int) -> float:
    """One sample by NumPy."""
    counts, _, _ = np.histogram2d(first.flatten().numpy(), second.flatten().numpy(), bins=bins)
    joint = counts / counts.sum()
    apart = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    return float((joint * np.log((joint + 1e-10) / (apart + 1e-10))).sum())


seeds = st.integers(0, 10_000)


def test_coins_by_hand() -> None:
    """A coin tells log 2 of itself, nothing of an independent one, and 0.1308 nat of one right in 3 of 4."""
    coin = torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0])
    independent = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0])
    likely = torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    second = torch.stack([coin, -3 * coin + 5, independent, likely])[:, None]
    informed = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    expected = torch.tensor([math.log(2), math.log(2), 0.0, informed])
    assert_close(mutual_knowledge(coin.view(1, 1, 8), second), expected)
    assert_close(mutual_knowledge(coin.view(1, 1, 8), second, bins=1), torch.zeros(4))


def test_the_last_bin_holds_its_right_edge() -> None:
    """0 to 10 in 10 bins: 9 and 10 share the last one, so its information is that of ten values, one doubled."""
    ramp = torch.arange(11, dtype=torch.float64).view(1, 1, 11)
    entropy = 9 / 11 * math.log(11) + 2 / 11 * math.log(11 / 2)
    assert mutual_knowledge(ramp, ramp).item() == pytest.approx(entropy)


@given(seeds, st.integers(1, 5), st.integers(1, 6), st.integers(1, 40), st.integers(1, 12))
def test_equals_numpy_sample_by_sample(seed: int, batch: int, queries: int, dim: int, bins: int) -> None:
    x, y = tokens(seed, batch, queries, dim), tokens(seed + 1, batch, queries, dim) ** 3
    expected = [plain(one, two, bins) for one, two in zip(x, y, strict=True)]
    assert_close(mutual_knowledge(x, y, bins=bins), torch.tensor(expected, dtype=torch.float64))
    broadcast = [plain(x[0], two, bins) for two in y]
    assert_close(mutual_knowledge(x[:1], y, bins=bins), torch.tensor(broadcast, dtype=torch.float64))


@given(seeds, st.integers(1, 5), st.integers(0, 4))
def test_anchored_is_three_plain_calls(seed: int, batch: int, anchor: int) -> None:
    anchor %= batch
    c, t = tokens(seed, batch), tokens(seed + 1, batch)
    apart = [
        mutual_knowledge(c, t),
        mutual_knowledge(c[anchor][None], t),
        mutual_knowledge(c, t[anchor][None]),
    ]
    for index in (anchor, torch.tensor(anchor)):
        assert_close(anchored_mutual_knowledge(c, t, index), torch.stack(apart, dim=1))


@given(seeds, st.floats(0.1, 10), st.floats(-3, 3))
def test_invariances(seed: int, scale: float, shift: float) -> None:
    x, y = tokens(seed), tokens(seed + 1)
    value = mutual_knowledge(x, y)
    assert (value >= -1e-9).all()
    assert_close(mutual_knowledge(y, x), value)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(seed))
    assert_close(mutual_knowledge(x[:, :, order], y[:, :, order]), value)  # row 11 of the specification
    assert_close(mutual_knowledge(x.flip(0), y.flip(0)), value.flip(0))
    assert_close(mutual_knowledge(scale * x + shift, y), value)


def test_unrelated_entries_give_the_bias_of_the_histogram() -> None:
    draws = torch.Generator().manual_seed(0)
    x, y = torch.rand(2, 16, 32, 256, generator=draws)
    assert mutual_knowledge(x, y).mean().item() == pytest.approx(81 / (2 * 32 * 256), rel=0.1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_constant_tells_nothing_and_nothing_has_a_gradient(dtype: torch.dtype) -> None:
    x = tokens(0).to(dtype).requires_grad_()
    for constant in (torch.zeros_like(x), torch.full_like(x, -0.3)):
        value = mutual_knowledge(x, constant)
        assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert not value.requires_grad
        assert_close(value, torch.zeros_like(value), rtol=0.0, atol=1e-5)
        assert_close(mutual_knowledge(constant, constant), torch.zeros_like(value), rtol=0.0, atol=1e-5)


def test_a_tiny_range_and_an_empty_batch_are_finite() -> None:
    x = torch.tensor([[[0.0, 1e-45, 3e-45, 0.0]]])
    assert mutual_knowledge(x, x).isfinite().all()
    assert mutual_knowledge(tokens(0)[:0], tokens(0)[:0]).shape == (0,)


def test_wrong_calls_are_refused() -> None:
    x = tokens(0)
    with pytest.raises(ValueError, match=r"\[3, 4, 9\] and \[2, 4, 9\]"):
        mutual_knowledge(x, x[:2])
    with pytest.raises(ValueError, match="token sets"):
        mutual_knowledge(x[0], x[0])
    with pytest.raises(ValueError, match="token sets"):
        mutual_knowledge(x[:, :0], x[:, :0])
    with pytest.raises(ValueError, match="a target for each query, got 1 and 3"):
        anchored_mutual_knowledge(x[:1], x, 0)
    with pytest.raises(ValueError, match="bins must be 1 or more, got 0"):
        mutual_knowledge(x, x, bins=0)
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="finite"):
            mutual_knowledge(x, torch.full_like(x, bad))
