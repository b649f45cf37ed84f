"""Mixture and division: by hand, what must always hold, and the extremes."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from triptych.objectives import (
    LONG_FIT,
    SHORT_FIT,
    consensus,
    fit_mixture,
    likely_clean,
    low_losses,
    lowest_losses,
    rde_fit,
    rescale,
    toss,
)


def two_groups(seed: int = 0, low: int = 30, high: int = 20) -> Tensor:
    """Losses around 1 and around 5, the low ones first."""
    generator = torch.Generator().manual_seed(seed)
    return torch.cat([torch.ones(low), torch.full((high,), 5.0)]) + 0.3 * torch.randn(
        low + high, generator=generator
    )


def test_rescale_by_hand() -> None:
    assert_close(rescale(torch.tensor([2.0, 4.0, 3.0])), torch.tensor([0.0, 1.0, 0.5]))
    assert_close(rescale(torch.full((3,), 7.0)), torch.zeros(3))
    assert_close(rescale(torch.tensor([-3e38, 3e38])), torch.tensor([0.0, 1.0]))
    assert rescale(torch.ones(2, dtype=torch.float16)).dtype == torch.float32


@pytest.mark.parametrize("options", [SHORT_FIT, LONG_FIT])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_two_groups_are_told_apart(dtype: torch.dtype, options: object) -> None:
    losses = two_groups().to(dtype).requires_grad_()
    mixture = fit_mixture(losses, seed=3, options=options)
    assert likely_clean(mixture.clean).tolist() == [True] * 30 + [False] * 20
    assert mixture.clean.dtype == torch.promote_types(dtype, torch.float32)
    assert not mixture.clean.requires_grad
    assert mixture.means[0] < mixture.means[1]
    assert_close(mixture.weights.sum().item(), 1.0)
    assert mixture.weights[0].item() == pytest.approx(0.6, abs=0.02)
    assert 1 <= mixture.iterations <= options.iterations


@given(st.integers(0, 1000), st.floats(0.1, 50), st.floats(-10, 10))
def test_scale_and_shift_do_not_matter(seed: int, scale: float, shift: float) -> None:
    losses = two_groups(seed).double()
    plain = fit_mixture(losses, seed=0).clean
    assert_close(fit_mixture(scale * losses + shift, seed=0).clean, plain, rtol=1e-5, atol=1e-6)


def test_scores_where_high_is_clean_are_passed_as_negatives() -> None:
    scores = 6 - two_groups()
    assert likely_clean(fit_mixture(-scores, seed=0).clean).tolist() == [True] * 30 + [False] * 20


def test_the_seed_decides_and_nothing_global_is_touched() -> None:
    losses = torch.rand(200, generator=torch.Generator().manual_seed(0))
    before, numpy_before = torch.random.get_rng_state(), np.random.get_state()[1].copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, again = (fit_mixture(losses, seed=2**62 + 5).clean for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert (np.random.get_state()[1] == numpy_before).all()


@pytest.mark.parametrize(
    "losses",
    [
        [1.0],
        [2.0, 2.0, 2.0],
        [1.0, 3.0],
        [0.0] * 9 + [1.0],
        [0.0, 0.0, 1.0, 1.0],
        [-3e38, 0.0, 3e38],
        [1.0, 1.0 + 1e-7, 1.0],
    ],
    ids=str,
)
@pytest.mark.parametrize("options", [SHORT_FIT, LONG_FIT])
def test_extremes_give_probabilities(losses: list[float], options: object) -> None:
    mixture = fit_mixture(torch.tensor(losses), seed=0, options=options)
    assert mixture.clean.shape == (len(losses),)
    assert ((mixture.clean >= 0) & (mixture.clean <= 1)).all()
    if len(set(losses)) == 1:
        assert likely_clean(mixture.clean).all()
        assert mixture.iterations == 0


def test_losses_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="2 of 3 losses are not finite"):
        fit_mixture(torch.tensor([math.nan, 1.0, math.inf]), seed=0)
    with pytest.raises(ValueError, match=r"\[N\].*\[2, 2\]"):
        fit_mixture(torch.zeros(2, 2), seed=0)
    with pytest.raises(ValueError, match=r"\[0\]"):
        fit_mixture(torch.zeros(0), seed=0)


def test_rde_fits_longer_under_much_noise() -> None:
    assert rde_fit(0.4) == SHORT_FIT
    assert rde_fit(0.5) == LONG_FIT
    assert (SHORT_FIT.iterations, SHORT_FIT.tolerance, SHORT_FIT.floor) == (10, 1e-2, 5e-4)


def test_never_all_by_hand() -> None:
    some = torch.tensor([0.9, 0.5, 0.6])
    assert likely_clean(some).tolist() == likely_clean(some, never_all=True).tolist() == [True, False, True]
    certain = torch.tensor([0.9, 0.7, 0.6])
    assert likely_clean(certain).all()
    assert likely_clean(certain, never_all=True).tolist() == [True, True, False]


@given(st.integers(1, 400))
def test_never_all_counts_even_among_equal_ones(size: int) -> None:
    clean = likely_clean(torch.ones(size), never_all=True)
    assert int((~clean).sum()) == size // 100 + 1


def test_percent_and_direct_by_hand() -> None:
    losses = torch.tensor([3.0, 1.0, 5.0, 2.0])
    assert lowest_losses(losses, noisy=0.5).tolist() == [False, True, False, True]
    assert lowest_losses(losses, noisy=0.49).tolist() == [True, True, False, True]
    assert lowest_losses(losses, noisy=0.0).all()
    assert not lowest_losses(losses, noisy=1.0).any()
    assert low_losses(losses, threshold=0.5).tolist() == [False, True, False, True]  # 3 is at 0.5
    assert low_losses(torch.ones(3), threshold=0.1).all()
    for noisy in (-0.1, 1.1):
        with pytest.raises(ValueError, match="noisy"):
            lowest_losses(losses, noisy=noisy)
    for threshold in (0.0, 1.1):
        with pytest.raises(ValueError, match="threshold"):
            low_losses(losses, threshold=threshold)


@given(st.integers(1, 50), st.floats(0, 1))
def test_percent_takes_its_share_even_of_equal_losses(size: int, noisy: float) -> None:
    assert int((~lowest_losses(torch.zeros(size), noisy=noisy)).sum()) == int(noisy * size)


def test_consensus_by_hand() -> None:
    first, second = torch.tensor([1, 1, 0, 0, 1]).bool(), torch.tensor([1, 0, 1, 0, 0]).bool()
    coins = torch.tensor([0, 1, 0, 1, 0]).bool()
    assert consensus(first, second, coins).tolist() == [True, True, False, False, False]
    assert torch.equal(consensus(first, second, coins), consensus(second, first, coins))
    with pytest.raises(ValueError, match=r"\[5\] torch.float32"):
        consensus(first, second.float(), coins)
    with pytest.raises(ValueError, match=r"\[4\] torch.bool"):
        consensus(first, second, coins[:4])


def test_coins_are_fair_and_repeatable() -> None:
    coins = toss(10_000, torch.Generator().manual_seed(1))
    assert coins.dtype == torch.bool
    assert coins.float().mean().item() == pytest.approx(0.5, abs=0.02)
    assert torch.equal(coins, toss(10_000, torch.Generator().manual_seed(1)))
