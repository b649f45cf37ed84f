"""Entropic transport: against POT, by hand, its marginals, and problems without a plan."""

import math
import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from triptych.objectives import blocked_paths, entropic_transport, partition_mass


def costs(seed: int, rows: int, columns: int) -> Tensor:
    return torch.rand(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def uniform_mass(size: int) -> Tensor:
    return torch.full((size,), 1 / size, dtype=torch.float64)


def converged(cost: Tensor, **options: object) -> Tensor:
    return entropic_transport(cost, tolerance=1e-11, iterations=3000, **options)


@pytest.fixture(scope="module")
def pot_plan() -> object:
    os.environ.setdefault("POT_BACKEND_DISABLE_PYTORCH", "1")
    ot = pytest.importorskip("ot", reason="POT is not installed; it is in the extra dev")

    def plan(cost: Tensor, rows: Tensor, columns: Tensor, eps: float, method: str) -> Tensor:
        arrays = (x.double().numpy() for x in (rows, columns, cost))
        options = {"method": method, "stopThr": 1e-10, "numItermax": 3000}
        return torch.from_numpy(ot.sinkhorn(*arrays, eps, **options))

    return plan


@pytest.mark.parametrize("eps", [0.03, 0.3])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 4), (6, 6), (16, 32)])
def test_equals_pot_unmasked(pot_plan, rows: int, columns: int, eps: float) -> None:
    cost, mass = costs(rows, rows, columns), costs(1, 1, columns)[0] + 0.1
    a, uniform = uniform_mass(rows), uniform_mass(columns)
    for given_, b in ((None, uniform), (mass, mass / mass.sum())):
        ours = converged(cost, columns=given_, eps=eps)
        assert_close(ours, pot_plan(cost, a, b, eps, "sinkhorn"), rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("marginals", ["uniform", "partition"])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_equals_pot_masked(pot_plan, marginals: str, share: float) -> None:
    """POT knows no blocked paths: there they cost a thousand."""
    batch = 12
    noisy = torch.arange(batch) < share * batch
    cost, blocked = costs(3, batch, 2 * batch), blocked_paths(noisy)
    a = uniform_mass(batch)
    b = uniform_mass(2 * batch) if marginals == "uniform" else partition_mass(noisy).double()
    b = b / b.sum()
    expected = pot_plan(cost.masked_fill(blocked, 1e3), a, b, 0.03, "sinkhorn_log")
    ours = converged(cost, blocked=blocked, columns=b)
    assert_close(ours, expected, rtol=1e-5, atol=1e-10)
    assert (ours[blocked] == 0).all()


def test_two_by_two_by_hand() -> None:
    """Symmetry leaves one number: P = ½ [[p, 1-p], [1-p, p]] with p / (1 - p) = e^(1/eps)."""
    cost = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    p = 1 / (1 + math.exp(-1 / 0.5))
    expected = torch.tensor([[p, 1 - p], [1 - p, p]], dtype=torch.float64) / 2
    assert_close(entropic_transport(cost, eps=0.5), expected)


def test_one_pass_each_way_an_iteration_and_no_more_than_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal costs are solved by the first iteration; the second sees that nothing changes."""
    calls: list[int] = []
    plain = torch.logsumexp

    def counted(logs: Tensor, dim: int) -> Tensor:
        calls.append(dim)
        return plain(logs, dim)

    monkeypatch.setattr(torch, "logsumexp", counted)
    assert_close(entropic_transport(torch.ones(3, 4)), torch.full((3, 4), 1 / 12))
    assert len(calls) == 4
    calls.clear()
    entropic_transport(costs(0, 5, 6), iterations=7, tolerance=0.0)
    assert len(calls) == 14


@given(st.integers(0, 10_000), st.integers(2, 9), st.integers(2, 9))
def test_marginals_and_order(seed: int, rows: int, columns: int) -> None:
    cost = costs(seed, rows, columns)
    plan = entropic_transport(cost, eps=0.3)  # soon converged
    assert_close(plan.sum(dim=0), torch.full((columns,), 1 / columns).double())
    assert (plan.sum(dim=1) - 1 / rows).abs().sum() < 4e-4 / rows
    assert (plan >= 0).all()
    draws = torch.Generator().manual_seed(seed)
    down, across = torch.randperm(rows, generator=draws), torch.randperm(columns, generator=draws)
    assert_close(
        entropic_transport(cost[down][:, across], eps=0.3), plan[down][:, across], rtol=1e-6, atol=1e-12
    )


@given(st.integers(0, 10_000), st.floats(-0.3, 0.3))
def test_a_toll_on_a_row_or_a_column_changes_nothing(seed: int, toll: float) -> None:
    cost, dearer = costs(seed, 4, 5), costs(seed, 4, 5)
    dearer[1] += toll
    dearer[:, 2] += toll
    assert_close(converged(dearer, eps=0.3), converged(cost, eps=0.3), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    "cost", [torch.zeros(1, 2), torch.zeros(4, 8), torch.ones(3, 3), 1 - torch.eye(5), 100 * torch.eye(4)]
)
def test_finite_at_the_extremes(cost: Tensor, dtype: torch.dtype) -> None:
    for eps in (1e-3, 0.03, 10.0):
        plan = entropic_transport(cost.to(dtype), eps=eps)
        assert plan.isfinite().all()
        assert plan.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert plan.sum().item() == pytest.approx(1, rel=1e-4)


def test_what_is_wholly_blocked_carries_nothing() -> None:
    blocked = torch.tensor([[True, False], [True, False]])
    plan = entropic_transport(torch.rand(2, 2), blocked=blocked)
    assert_close(plan, torch.tensor([[0.0, 0.5], [0.0, 0.5]]))
    assert_close(
        entropic_transport(torch.rand(2, 2), blocked=blocked.T), torch.tensor([[0.0, 0.0], [0.5, 0.5]])
    )
    assert_close(entropic_transport(torch.rand(2, 2), blocked=torch.ones(2, 2).bool()), torch.zeros(2, 2))
    tied = torch.tensor([[False, True, True], [False, True, True], [True, False, False]])
    assert entropic_transport(torch.rand(3, 3), blocked=tied).isfinite().all()  # no plan has these margins


def test_nothing_goes_to_a_column_without_mass_and_no_gradient_goes_back() -> None:
    cost = torch.rand(3, 3, requires_grad=True)
    plan = entropic_transport(cost, columns=torch.tensor([0.0, 2.0, 2.0]), rows=torch.tensor([1.0, 1.0, 2.0]))
    assert_close(plan.sum(dim=0), torch.tensor([0.0, 0.5, 0.5]))
    assert_close(plan.sum(dim=1), torch.tensor([0.25, 0.25, 0.5]), rtol=1e-2, atol=0.0)
    assert not plan.requires_grad


def test_wrong_calls_are_refused() -> None:
    cost = torch.zeros(2, 3)
    with pytest.raises(ValueError, match=r"\[N, M\], got \[3\]"):
        entropic_transport(cost[0])
    with pytest.raises(ValueError, match=r"blocked must be \[2, 3\]"):
        entropic_transport(cost, blocked=torch.zeros(3, 2).bool())
    for wrong in (torch.ones(2), torch.tensor([1.0, -1.0, 1.0]), torch.zeros(3)):
        with pytest.raises(ValueError, match=r"mass must be \[3\]"):
            entropic_transport(cost, columns=wrong)
    with pytest.raises(ValueError, match="eps must be positive"):
        entropic_transport(cost, eps=0.0)
    with pytest.raises(ValueError, match="iterations 1 or more"):
        entropic_transport(cost, iterations=0)
