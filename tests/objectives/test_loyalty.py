"""Loyalty and the soft discriminative loss: by hand, the switches, and the extremes."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from triptych.objectives import (
    loyalty,
    match_probabilities,
    mean,
    positive_and_negative,
    query_axis_similarity,
    similarity,
    soft_discriminative,
)


def matrix(seed: int, size: int) -> Tensor:
    return 2 * torch.rand(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 1


matrices = st.builds(matrix, st.integers(0, 10_000), st.integers(1, 9))


def logits(*rows: tuple[float, ...]) -> Tensor:
    """Similarities whose softmax at temperature 1 is ``rows``."""
    return torch.tensor(rows, dtype=torch.float64).log()


def test_three_triplets_by_hand() -> None:
    """First row: p+ = 0.5, p- = 0.3, so l = ½[0.5 + 0.7, 0.3 + 0.5, 0.2 + 0.5]."""
    s = logits((0.5, 0.3, 0.2), (0.6, 0.1, 0.3), (0.2, 0.2, 0.6))
    expected = [[0.60, 0.40, 0.35], [0.75, 0.25, 0.60], [0.30, 0.30, 0.70]]
    assert_close(loyalty(s, temperature=1.0), torch.tensor(expected, dtype=torch.float64))

    without_positive = loyalty(s, temperature=1.0, positive_reward=False)[0].tolist()
    assert without_positive == pytest.approx([0.25, 0.40, 0.35])
    without_negative = loyalty(s, temperature=1.0, negative_reward=False)[0].tolist()
    assert without_negative == pytest.approx([0.60, 0.15, 0.10])
    bare = loyalty(s, temperature=1.0, positive_reward=False, negative_reward=False)[0].tolist()
    assert bare == pytest.approx([0.25, 0.15, 0.10])


def test_soft_discriminative_by_hand() -> None:
    degrees = torch.tensor([[0.6, 0.4], [0.3, 0.7]])
    assert_close(soft_discriminative(degrees, form="neglog"), -torch.tensor([0.6, 0.7]).log())
    right = [
        math.exp(10 * own) / (math.exp(10 * own) + math.exp(10 * other))
        for own, other in ((0.6, 0.4), (0.7, 0.3))
    ]
    assert_close(soft_discriminative(degrees, scale=10.0), -torch.tensor(right).log())


@given(matrices)
def test_annotated_pair_trails_its_strongest_negative_in_loyalty_exactly_when_in_probability(
    s: Tensor,
) -> None:
    degrees, p = loyalty(s), match_probabilities(s)
    own, strongest = positive_and_negative(degrees)
    positive, negative = positive_and_negative(p)
    if len(s) == 1:
        return
    clear = (positive - negative).abs() > 1e-6
    assert torch.equal((own < strongest)[clear], (positive < negative)[clear])
    assert torch.equal((own > 0.5)[clear], (positive > negative)[clear])


def test_a_wrong_first_place_drops_the_annotated_target_to_a_late_loyalty_rank(
    golden_inputs: Callable[[str], dict[str, Tensor]],
) -> None:
    """A rival overtakes where p > 2 p+ - p-, however weak it is: mostly all of them do once one is ahead."""
    inputs = golden_inputs("b64")
    s = similarity(inputs["fc"], inputs["ft"]).detach()
    degrees, p = loyalty(s), match_probabilities(s)
    positive, negative = positive_and_negative(p)
    rank = (degrees > degrees.diagonal()[:, None]).sum(dim=1) + 1
    overtaken = (p > (2 * positive - negative)[:, None]).fill_diagonal_(False).sum(dim=1) + 1
    assert torch.equal(rank, overtaken)
    wrong = s.argmax(dim=1) != torch.arange(64)
    assert (rank[~wrong] == 1).all()
    assert (int((rank[wrong] == 64).sum()), int(wrong.sum())) == (26, 29)


@given(matrices)
def test_negative_reward_does_nothing_under_neglog_and_something_under_ce(s: Tensor) -> None:
    with_, without = loyalty(s), loyalty(s, negative_reward=False)
    assert torch.equal(soft_discriminative(with_, form="neglog"), soft_discriminative(without, form="neglog"))
    if len(s) > 1:
        assert not torch.allclose(soft_discriminative(with_), soft_discriminative(without), rtol=1e-3)


@given(matrices, st.integers(0, 10_000), st.floats(-3, 3))
def test_order_of_the_batch_and_a_shift_do_not_matter(s: Tensor, seed: int, shift: float) -> None:
    order = torch.randperm(len(s), generator=torch.Generator().manual_seed(seed))
    assert_close(loyalty(s[order][:, order]), loyalty(s)[order][:, order])
    assert_close(loyalty(s + shift), loyalty(s))
    assert_close(soft_discriminative(loyalty(s)[order][:, order]), soft_discriminative(loyalty(s))[order])


@given(matrices)
def test_gradient_goes_through_every_term(s: Tensor) -> None:
    """Against the plain formula, in which nothing is detached."""
    s.requires_grad_()
    p = torch.softmax(s / 0.5, dim=1)
    y = torch.eye(len(s), dtype=s.dtype)
    negative = (p * (1 - y)).max(dim=1).values
    plain = ((p + (1 - p.diagonal())[:, None] * (1 - y) + (1 - negative)[:, None] * y) / 2).clamp(
        1e-7, 1 - 1e-7
    )
    ours = loyalty(s, temperature=0.5)
    assert_close(ours, plain)
    weights = matrix(1, len(s))
    expected, found = (torch.autograd.grad((weights * value).sum(), s)[0] for value in (plain, ours))
    assert_close(found, expected)


def test_float32_keeps_the_digits_of_a_hopeless_pair() -> None:
    """p- = 1 - 2e-6 in float32: 1 - p- must not be rounded to a multiple of 6e-8."""
    s = torch.tensor([[0.0, 0.92], [0.92, 0.0]])
    exact = loyalty(s.double())[0, 0].item()
    assert exact == pytest.approx(2e-6, rel=0.1)
    assert loyalty(s)[0, 0].item() == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("form", ["ce_scaled", "neglog"])
@pytest.mark.parametrize("rewards", [(True, True), (False, True), (True, False), (False, False)])
@pytest.mark.parametrize(
    "extreme",
    [
        torch.tensor([[0.3]]),
        torch.tensor([[0.3, 0.9], [0.1, -0.2]]),
        torch.ones(5, 5),
        torch.zeros(5, 5),
        2 * torch.eye(5) - 1,
        100 * torch.eye(5).roll(1, dims=0),
    ],
    ids=["one", "two", "identical", "zero", "right", "wrong"],
)
def test_finite_at_the_extremes(
    extreme: Tensor, rewards: tuple[bool, bool], form: str, dtype: torch.dtype
) -> None:
    s = extreme.to(dtype).requires_grad_()
    scale = torch.tensor(10.0, requires_grad=True)
    degrees = loyalty(s, positive_reward=rewards[0], negative_reward=rewards[1])
    assert degrees.min() > 0
    assert degrees.max() < 1
    values = soft_discriminative(degrees, form=form, scale=scale)
    assert values.shape == (len(s),)
    assert values.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert values.isfinite().all()
    for gradient in torch.autograd.grad(mean(values), [s, scale], allow_unused=True):
        assert gradient is None or gradient.isfinite().all()


def test_query_axis_similarity_normalises_over_the_tokens_and_grows() -> None:
    draws = torch.Generator().manual_seed(0)
    queries = functional.normalize(torch.randn(8, 256, generator=draws), dim=-1)
    targets = functional.normalize(torch.randn(9, 32, 256, generator=draws), dim=-1)
    scores = query_axis_similarity(queries, targets)
    by_hand = torch.stack(
        [
            torch.stack([max(query @ (token / target.norm(dim=0)) for token in target) for target in targets])
            for query in queries
        ]
    )
    assert_close(scores, by_hand)
    assert (scores / similarity(queries, targets)).mean().item() == pytest.approx(
        math.sqrt(256 / 32), rel=0.05
    )


def test_query_axis_similarity_of_zero_vectors_is_zero_with_finite_gradients() -> None:
    queries, targets = torch.zeros(2, 4, requires_grad=True), torch.zeros(3, 5, 4, requires_grad=True)
    scores = query_axis_similarity(queries, targets)
    assert_close(scores, torch.zeros(2, 3))
    for gradient in torch.autograd.grad(scores.sum(), [queries, targets]):
        assert gradient.isfinite().all()


def test_wrong_calls_are_refused() -> None:
    with pytest.raises(ValueError, match="square"):
        loyalty(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="square"):
        soft_discriminative(torch.zeros(2, 3))
    with pytest.raises(ValueError, match='got "log"'):
        soft_discriminative(torch.full((2, 2), 0.5), form="log")
