"""Targeted unlearning: by hand, the switches, what must always hold, and the extremes."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from triptych.objectives import (
    blocked_paths,
    entropic_transport,
    hard_labels,
    info_nce,
    mean,
    partition_mass,
    released_blocked,
    released_labels,
    scaled_cost,
    soft_labels,
    targeted_unlearning,
    targeted_unlearning_released,
)

NOISY_FIRST = torch.tensor([True, False])


def matrix(seed: int, size: int) -> Tensor:
    return 2 * torch.rand(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 1


def test_paths_and_labels_by_hand() -> None:
    assert blocked_paths(NOISY_FIRST).int().tolist() == [[1, 0, 0, 0], [0, 0, 0, 1]]
    assert hard_labels(NOISY_FIRST).int().tolist() == [[0, 0, 1, 0], [0, 1, 0, 0]]
    assert blocked_paths(NOISY_FIRST, with_negatives=False).int().tolist() == [[1, 0], [0, 0]]
    assert hard_labels(NOISY_FIRST, with_negatives=False).int().tolist() == [[0, 0], [0, 1]]
    noisy = torch.tensor([True, False, True])
    assert released_blocked(noisy).int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 1],
        [0, 0, 1, 0, 0, 0],
    ]
    assert released_labels(noisy).int().tolist() == [
        [0, 0, 0, 0, 0, 1],
        [0, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 1],
    ]


def test_cost_mass_and_mixture_by_hand() -> None:
    assert_close(
        scaled_cost(torch.tensor([[1.0, 0.5], [0.2, -0.6]])), torch.tensor([[0, 0.3125], [0.5, 1.0]])
    )
    total = 1 + 2e-6
    assert_close(partition_mass(NOISY_FIRST), torch.tensor([1e-6, 0.5, 0.5, 1e-6]) / total)
    assert_close(partition_mass(NOISY_FIRST, with_negatives=False), torch.tensor([1e-6, 0.5]) / (0.5 + 1e-6))
    plan, hard = torch.tensor([[0.1, 0.3], [0.0, 0.0]]), torch.tensor([[True, False], [False, True]])
    assert_close(soft_labels(plan, hard, gamma=0.8), torch.tensor([[0.4, 0.6], [0.0, 0.2]]))
    assert_close(soft_labels(plan, hard, gamma=0.8, form="raw"), torch.tensor([[0.28, 0.24], [0.0, 0.2]]))


@pytest.mark.parametrize("noisy", [False, True])
def test_one_triplet_by_hand(noisy: bool) -> None:
    """Only one way is open, to the target if clean, to the negative vector if noisy; plan and label agree."""
    positive, negative = torch.tensor([[0.5]]), torch.tensor([[0.2]])
    wanted, other = (0.2, 0.5) if noisy else (0.5, 0.2)
    for marginals in ("uniform", "partition"):
        values = targeted_unlearning(
            positive, negative, torch.tensor([noisy]), temperature=0.1, marginals=marginals
        )
        assert values.item() == pytest.approx(math.log(1 + math.exp((other - wanted) / 0.1)), rel=1e-5)


def test_without_negative_vectors_by_hand() -> None:
    """D11 with two triplets: the noisy query must go to target 2, so the clean one gets target 1."""
    s = torch.tensor([[0.5, 0.1], [0.3, 0.4]], dtype=torch.float64)
    log_p = torch.log_softmax(s / 0.07, dim=1)
    values = targeted_unlearning(s, None, NOISY_FIRST)
    mixed = 0.7 * (math.log(0.7) - log_p[1, 0]) + 0.3 * (math.log(0.3) - log_p[1, 1])
    assert values[0].item() == pytest.approx(-log_p[0, 1].item())
    assert values[1].item() == pytest.approx(mixed.item(), rel=0.02)  # 100 iterations come near, slowly
    alone = targeted_unlearning(s[:1, :1], None, torch.tensor([True]))
    assert alone.item() == 0  # neither plan nor label


def test_without_transport_by_hand() -> None:
    """D12: Y = H. A clean batch without negative vectors is plain InfoNCE."""
    positive, negative = matrix(0, 2), matrix(1, 2)
    log_p = torch.log_softmax(torch.cat([positive, negative], dim=1) / 0.07, dim=1)
    values = targeted_unlearning(positive, negative, NOISY_FIRST, gamma=0.0)
    assert_close(values, -torch.stack([log_p[0, 2], log_p[1, 1]]))
    clean = torch.zeros(2, dtype=torch.bool)
    assert_close(targeted_unlearning(positive, None, clean, gamma=0.0), info_nce(positive))


@given(st.integers(0, 10_000), st.integers(2, 8))
def test_equals_the_plain_formula(seed: int, size: int) -> None:
    positive, negative, sigma = matrix(seed, size), matrix(seed + 1, size), matrix(seed + 2, size)
    noisy = matrix(seed + 3, size)[0] < 0
    cost = 1 - torch.cat([positive, negative], dim=1)
    cost = cost / cost.max()
    for mass, marginals in ((None, "uniform"), (partition_mass(noisy), "partition")):
        plan = entropic_transport(cost, blocked=blocked_paths(noisy), columns=mass)
        hard = hard_labels(noisy).double()
        y = 0.7 * plan / plan.sum(dim=1, keepdim=True) + 0.3 * hard
        log_p = torch.log_softmax(torch.cat([positive, sigma], dim=1) / 0.07, dim=1)
        expected = (y * (y.clamp(min=1e-300).log() - log_p)).sum(dim=1)
        found = targeted_unlearning(positive, negative, noisy, negative_logits=sigma, marginals=marginals)
        assert_close(found, expected)
        y = 0.7 * plan + 0.3 * hard
        expected = (y * (y.clamp(min=1e-300).log() - log_p)).sum(dim=1)
        raw = targeted_unlearning(
            positive, negative, noisy, negative_logits=sigma, marginals=marginals, plan_form="raw"
        )
        assert_close(raw, expected)


@given(st.integers(0, 10_000), st.integers(1, 8))
def test_order_of_the_batch_does_not_matter(seed: int, size: int) -> None:
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    positive, negative = matrix(seed, size), matrix(seed + 1, size)
    noisy = matrix(seed + 2, size)[0] < 0
    for directions in ("rows", "both"):
        values = targeted_unlearning(positive, negative, noisy, directions=directions)
        moved = targeted_unlearning(
            positive[order][:, order], negative[order][:, order], noisy[order], directions=directions
        )
        assert_close(moved, values[order], rtol=1e-6, atol=1e-9)


def test_gradient_moves_a_noisy_query_from_its_target_to_its_negative_vector() -> None:
    positive, negative = (torch.zeros(4, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    noisy = torch.tensor([True, False, False, True])
    loss = mean(targeted_unlearning(positive, negative, noisy))
    towards, away = torch.autograd.grad(loss, [positive, negative])
    assert ((towards.diagonal() > 0) == noisy).all()
    assert ((away.diagonal() < 0) == noisy).all()


def test_released_block_is_nearly_inert_and_depends_on_the_last_triplet() -> None:
    positive, negative = matrix(0, 8), matrix(1, 8)
    noisy = torch.arange(8) % 2 == 0
    positive.requires_grad_()
    norms = []
    for loss in (
        targeted_unlearning(positive, negative, noisy),
        targeted_unlearning_released(positive, negative, noisy),
    ):
        norms.append(torch.autograd.grad(mean(loss), positive)[0].norm().item())
    assert norms[1] < 0.05 * norms[0]
    order = torch.arange(8).roll(1)
    moved = targeted_unlearning_released(positive[order][:, order], negative[order][:, order], noisy[order])
    assert (mean(moved) - mean(targeted_unlearning_released(positive, negative, noisy))).abs() > 1e-6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [1, 2, 5])
@pytest.mark.parametrize("kind", ["random", "identical", "zero", "right", "wrong"])
def test_finite_at_the_extremes(kind: str, batch: int, dtype: torch.dtype) -> None:
    s = {
        "random": matrix(0, batch),
        "identical": torch.ones(batch, batch),
        "zero": torch.zeros(batch, batch),
        "right": 2 * torch.eye(batch) - 1,
        "wrong": 1 - 2 * torch.eye(batch),
    }[kind]
    leaves = [s.to(dtype).requires_grad_(), s.T.to(dtype).clone().requires_grad_()]
    partitions = torch.zeros(batch).bool(), torch.ones(batch).bool(), torch.arange(batch) % 2 == 0
    for noisy in partitions:
        losses = [targeted_unlearning_released(*leaves, noisy)]
        for negative in (leaves[1], None):
            for options in (
                {},
                {"directions": "both", "marginals": "partition"},
                {"directions": "both", "plan_form": "raw"},
                {"directions": "both", "gamma": 0.0},
                {"gamma": 1.0},
            ):
                losses.append(targeted_unlearning(leaves[0], negative, noisy, **options))
        for values in losses:
            assert values.shape == (batch,)
            assert values.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
            assert values.isfinite().all()
            for gradient in torch.autograd.grad(mean(values), leaves, allow_unused=True):
                assert gradient is None or gradient.isfinite().all()


def test_wrong_calls_are_refused() -> None:
    s = torch.zeros(2, 2)
    with pytest.raises(ValueError, match=r"\[B, B\] similarities"):
        targeted_unlearning(torch.zeros(2, 3), s, NOISY_FIRST)
    with pytest.raises(ValueError, match=r"\[B, B\] similarities"):
        targeted_unlearning(s, s, torch.zeros(3).bool())
    with pytest.raises(ValueError, match="negative_logits need negative"):
        targeted_unlearning(s, None, NOISY_FIRST, negative_logits=s)
    with pytest.raises(ValueError, match='got "even"'):
        targeted_unlearning(s, s, NOISY_FIRST, marginals="even")
    with pytest.raises(ValueError, match='got "columns"'):
        targeted_unlearning(s, s, NOISY_FIRST, directions="columns")
    with pytest.raises(ValueError, match='got "sum"'):
        targeted_unlearning(s, s, NOISY_FIRST, plan_form="sum")
    with pytest.raises(ValueError, match="gamma"):
        targeted_unlearning(s, s, NOISY_FIRST, gamma=1.5)
    with pytest.raises(ValueError, match="temperature"):
        targeted_unlearning(s, s, NOISY_FIRST, temperature=0.0)
    with pytest.raises(ValueError, match="twice"):
        targeted_unlearning_released(s, torch.zeros(3, 3), NOISY_FIRST)
    with pytest.raises(ValueError, match=r"expected \[2\] noisy"):
        targeted_unlearning_released(s, s, torch.zeros(3).bool())
