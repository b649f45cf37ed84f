"""Partitioned contrastive: by hand, what must always hold, and the extremes."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from triptych.objectives import info_nce, mean, partitioned_contrastive, restrict, robust_contrastive

NOTHING, SOME, ALL = "nothing clean", "some clean", "all clean"


def mask(kind: str, size: int) -> Tensor:
    return {NOTHING: torch.zeros(size), SOME: torch.arange(size) % 2, ALL: torch.ones(size)}[kind].bool()


def matrix(seed: int, size: int) -> Tensor:
    return 2 * torch.rand(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 1


def test_restricted_by_hand() -> None:
    values = torch.tensor([1.0, 5.0, 3.0])
    assert_close(restrict(values, torch.tensor([True, False, True])), torch.tensor([1.5, 0.0, 4.5]))
    assert_close(restrict(values, torch.zeros(3, dtype=torch.bool)), torch.zeros(3))
    worthless = torch.tensor([1.0, math.nan, math.inf])
    assert_close(restrict(worthless, torch.tensor([True, False, False])), torch.tensor([3.0, 0.0, 0.0]))
    with pytest.raises(ValueError, match=r"bool mask \[3\], got \[3\] torch.int64"):
        restrict(values, torch.ones(3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"got \[2\]"):
        restrict(values, torch.ones(2, dtype=torch.bool))


def test_two_triplets_by_hand() -> None:
    """With s = I and tau = 1 either loss is log(1 + 1/e); one clean row of two counts twice."""
    loss = math.log(1 + 1 / math.e)
    clean = torch.tensor([True, False])
    values = partitioned_contrastive(torch.eye(2), clean, temperature=1.0)
    assert_close(values, torch.tensor([2 * loss, 0.0]))
    both = partitioned_contrastive(
        torch.eye(2), clean, positive="infonce", negative="rcl", weight=0.75, temperature=1.0
    )
    assert_close(both, torch.tensor([0.75 * 2 * loss, 0.25 * 2 * loss]))


@given(st.integers(0, 10_000), st.integers(1, 9), st.floats(0, 1))
def test_each_part_is_averaged_over_its_own_rows(seed: int, size: int, weight: float) -> None:
    s = matrix(seed, size)
    clean = torch.rand(size, generator=torch.Generator().manual_seed(seed)) < 0.5
    value = mean(partitioned_contrastive(s, clean, positive="infonce", negative="rcl", weight=weight))
    expected = torch.zeros((), dtype=torch.float64)
    if clean.any():
        expected = expected + weight * info_nce(s)[clean].mean()
    if not clean.all():
        expected = expected + (1 - weight) * robust_contrastive(s)[~clean].mean()
    assert_close(value, expected)


@given(st.integers(0, 10_000), st.integers(1, 9))
def test_all_clean_is_the_plain_loss_and_noisy_rows_get_no_gradient(seed: int, size: int) -> None:
    s = matrix(seed, size).requires_grad_()
    assert_close(partitioned_contrastive(s, mask(ALL, size)), robust_contrastive(s))
    clean = mask(SOME, size)
    (gradient,) = torch.autograd.grad(mean(partitioned_contrastive(s, clean)), s)
    assert not gradient[~clean].any()


@given(st.integers(0, 10_000), st.integers(1, 9))
def test_order_of_the_batch_does_not_matter(seed: int, size: int) -> None:
    s, clean = matrix(seed, size), mask(SOME, size)
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    plain = partitioned_contrastive(s, clean, negative="rcl", weight=0.6)
    permuted = partitioned_contrastive(s[order][:, order], clean[order], negative="rcl", weight=0.6)
    assert_close(permuted, plain[order])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [NOTHING, SOME, ALL])
@pytest.mark.parametrize("positive", ["rcl", "infonce", "none"])
@pytest.mark.parametrize("s", [torch.ones(1, 1), torch.zeros(5, 5), 100 * torch.eye(4).roll(1, 0)], ids=str)
def test_finite_at_the_extremes(s: Tensor, positive: str, kind: str, dtype: torch.dtype) -> None:
    s = s.to(dtype).requires_grad_()
    tau = torch.tensor(0.07, requires_grad=True)
    values = partitioned_contrastive(
        s, mask(kind, len(s)), positive=positive, negative="rcl", weight=0.5, temperature=tau
    )
    assert values.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert values.isfinite().all()
    for gradient in torch.autograd.grad(mean(values), [s, tau]):
        assert gradient.isfinite().all()


def test_wrong_calls_are_refused() -> None:
    s, clean = torch.eye(2), torch.ones(2, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"square.*\[2, 3\]"):
        partitioned_contrastive(torch.zeros(2, 3), clean)
    with pytest.raises(ValueError, match="bool mask"):
        partitioned_contrastive(s, torch.ones(2))
    with pytest.raises(ValueError, match=r"mask \[2\], got \[3\]"):
        partitioned_contrastive(s, torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError, match='"ccl"'):
        partitioned_contrastive(s, clean, negative="ccl")
    with pytest.raises(ValueError, match="nothing to minimise"):
        partitioned_contrastive(s, clean, positive="none")
    with pytest.raises(ValueError, match=r"weight.*1\.5"):
        partitioned_contrastive(s, clean, weight=1.5)
    with pytest.raises(ValueError, match="temperature"):
        partitioned_contrastive(s, clean, temperature=0.0)
