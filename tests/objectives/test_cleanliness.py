"""Anchor, transition rates and cleanliness: by hand, the ablations, extremes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from triptych.objectives import (
    TransitionRates,
    anchored_mutual_knowledge,
    estimate_cleanliness,
    lowest_loss,
    robust_contrastive,
    transition_rates,
)


def tokens(seed: int, batch: int = 5, queries: int = 4, dim: int = 9) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    return functional.normalize(
        torch.randn(batch, queries, dim, generator=draws, dtype=torch.float64), dim=-1
    )


seeds = st.integers(0, 10_000)


def test_cleanliness_by_hand() -> None:
    rates = TransitionRates(
        own=torch.tensor([0.0, 0.5, 0.2]),
        target=torch.tensor([0.0, 0.4, 0.1]),
        query=torch.tensor([0.0, 0.4, 0.4]),
    )
    assert_close(estimate_cleanliness(rates), torch.tensor([1.0, 1 / 1.5, 1 / 1.5]))


def test_the_anchor_has_the_lowest_loss() -> None:
    s = torch.tensor([[0.5, 0.4, 0.1], [0.1, 0.9, 0.0], [0.6, 0.2, 0.3]], requires_grad=True)
    anchor = lowest_loss(s)
    assert anchor.item() == 1 == robust_contrastive(s).argmin().item()
    assert not anchor.requires_grad
    assert lowest_loss(torch.zeros(3, 3)).item() == 0
    assert lowest_loss(torch.zeros(1, 1)).item() == 0
    with pytest.raises(ValueError, match="no anchor"):
        lowest_loss(torch.zeros(0, 0))


@given(seeds, st.integers(1, 6), st.integers(0, 5))
def test_rates_follow_the_formula_and_the_anchor_is_surely_clean(seed: int, batch: int, anchor: int) -> None:
    anchor %= batch
    c, t = tokens(seed, batch), tokens(seed + 1, batch)
    knowledge = anchored_mutual_knowledge(c, t, anchor)
    base = knowledge[anchor, 0]
    relative = transition_rates(c, t, anchor)
    assert_close(torch.stack(relative, dim=1), (knowledge - base).abs() / base)
    raw = transition_rates(c, t, torch.tensor(anchor), relative=False)  # D2
    assert_close(torch.stack(raw, dim=1), (knowledge - base).abs())

    e = estimate_cleanliness(relative)
    assert e[anchor].item() == 1.0
    assert ((e > 0) & (e <= 1)).all()


@given(seeds)
def test_order_of_the_batch_does_not_matter(seed: int) -> None:
    c, t = tokens(seed), tokens(seed + 1)
    order = torch.randperm(5, generator=torch.Generator().manual_seed(seed))
    e = estimate_cleanliness(transition_rates(c, t, 2))
    moved = int((order == 2).nonzero())
    assert_close(estimate_cleanliness(transition_rates(c[order], t[order], moved)), e[order])


def test_an_anchor_that_tells_nothing_is_divided_by_the_floor() -> None:
    c, t = tokens(0), tokens(1)
    c[0] = 0.25  # m_0 = 0
    knowledge = anchored_mutual_knowledge(c, t, 0)
    assert_close(transition_rates(c, t, 0).own, knowledge[:, 0].abs() / 1e-3, rtol=1e-6, atol=1e-6)
    assert_close(transition_rates(c, t, 0, floor=0.1).own, knowledge[:, 0].abs() / 0.1, rtol=1e-6, atol=1e-6)
    assert estimate_cleanliness(transition_rates(c, t, 0))[0].item() == 1.0
    with pytest.raises(ValueError, match="floor must be positive, got 0"):
        transition_rates(c, t, 0, floor=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    "case", ["usual", "one triplet", "two triplets", "zero tokens", "identical features"]
)
def test_in_range_at_the_extremes(case: str, dtype: torch.dtype) -> None:
    c, t = tokens(0), tokens(1)
    if case == "one triplet":
        c, t = c[:1], t[:1]
    elif case == "two triplets":
        c, t = c[:2], t[:2]
    elif case == "zero tokens":
        c = torch.zeros_like(c)
    elif case == "identical features":
        c = t = t[:1].expand_as(t)
    c, t = c.to(dtype).requires_grad_(), t.to(dtype).requires_grad_()
    e = estimate_cleanliness(transition_rates(c, t, 0))
    assert e.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert not e.requires_grad
    assert ((e > 0) & (e <= 1)).all()
    if case in ("zero tokens", "identical features"):
        assert_close(e, torch.ones_like(e), rtol=0.0, atol=1e-2)
