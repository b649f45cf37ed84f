"""Outliers of cleanliness, and the mask that needs them twice."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from triptych.objectives import dbscan_labels, outliers, trusted_mask

CROWD = torch.linspace(0.70, 0.72, 12)


def batch(*extra: float) -> Tensor:
    return torch.cat([CROWD, torch.tensor(extra)])


def test_a_crowd_and_its_outliers() -> None:
    e = batch(1.0, 0.3)
    assert dbscan_labels(e).tolist() == [0] * 12 + [-1, -1]
    assert outliers(e).tolist() == [False] * 12 + [True, True]
    assert outliers(e, sides="low_side").tolist() == [False] * 12 + [False, True]


def test_an_outlier_between_two_crowds_is_low_where_it_is_below_their_median() -> None:
    e = torch.cat([CROWD, CROWD + 0.2, CROWD + 0.2, torch.tensor([0.8, 1.0])])
    assert dbscan_labels(e).unique().tolist() == [-1, 0, 1]
    assert outliers(e, sides="low_side")[-2:].tolist() == [True, False]


def test_distrusted_only_where_an_outlier_both_now_and_before() -> None:
    now, before = batch(1.0, 0.3, 0.4, 0.71), batch(1.0, 0.5, 0.71, 0.4)
    assert trusted_mask(now, before)[12:].tolist() == [False, False, True, True]
    assert trusted_mask(now, before, sides="low_side")[12:].tolist() == [True, False, True, True]
    assert trusted_mask(now)[12:].tolist() == [False, False, False, True]  # D4
    assert trusted_mask(now, before)[:12].all()


def test_a_triplet_without_history_is_trusted_and_its_place_is_not_looked_at() -> None:
    now, before = batch(0.3, 0.4), batch(0.3, float("nan"))
    remembered = before.isfinite()
    assert trusted_mask(now, before, remembered=remembered)[12:].tolist() == [False, True]
    nobody = torch.zeros_like(remembered)
    assert trusted_mask(now, before, remembered=nobody).all()


def test_a_batch_too_small_for_a_crowd_is_all_outliers() -> None:
    e = CROWD[:9]
    assert outliers(e).all()
    assert not trusted_mask(e, e).any()
    assert trusted_mask(e, e, sides="low_side").all()  # nothing to be below of
    assert trusted_mask(e, e, min_samples=9).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("size", [0, 1, 2, 40])
def test_all_alike_at_any_size(size: int, dtype: torch.dtype) -> None:
    e = torch.ones(size, dtype=dtype, requires_grad=True)
    mask = trusted_mask(e, e)
    assert mask.dtype == torch.bool
    assert mask.tolist() == [size >= 10] * size


@given(st.lists(st.floats(0.3, 1.0), min_size=1, max_size=60), st.integers(0, 10_000))
def test_order_does_not_matter_and_low_side_distrusts_less(values: list[float], seed: int) -> None:
    e = torch.tensor(values, dtype=torch.float64)
    order = torch.randperm(len(e), generator=torch.Generator().manual_seed(seed))
    assert torch.equal(trusted_mask(e[order]), trusted_mask(e)[order])
    assert (trusted_mask(e, sides="low_side") | ~trusted_mask(e)).all()
    history = torch.rand(len(e), generator=torch.Generator().manual_seed(seed))
    assert (trusted_mask(e, history) | ~trusted_mask(e)).all()


def test_wrong_calls_are_refused() -> None:
    with pytest.raises(ValueError, match=r"history must be \[12\]"):
        trusted_mask(CROWD, CROWD[:3])
    with pytest.raises(ValueError, match="sides must be"):
        outliers(CROWD, sides="high_side")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="finite"):
        outliers(torch.tensor([0.5, float("nan")]))
    with pytest.raises(ValueError, match=r"expected \[B\] values"):
        dbscan_labels(torch.zeros(2, 2))


def test_scikit_learn_is_imported_only_when_needed() -> None:
    check = "import sys, triptych.objectives; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
