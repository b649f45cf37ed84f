"""Semantic and prompt alignment: by hand, where the gradient goes, and the extremes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from triptych.objectives import mean, prompt_alignment, semantic_alignment


def test_by_hand() -> None:
    """Differences (0, 2), (1, 0), (4, 0): squares 4, 1, 16 over 2; huber 1.5, 0.5, 3.5 over 2."""
    pooled = torch.tensor([[0.0, 2.0], [1.0, 0.0], [4.0, 0.0]])
    anchor = torch.zeros(3, 2)
    assert_close(semantic_alignment(pooled, anchor), torch.tensor([2.0, 0.5, 8.0]))
    assert_close(semantic_alignment(pooled, anchor, form="smoothl1"), torch.tensor([0.75, 0.25, 1.75]))
    clean = torch.tensor([True, True, False])
    assert_close(semantic_alignment(pooled, anchor, clean), torch.tensor([3.0, 0.75, 0.0]))
    assert mean(semantic_alignment(pooled, anchor, clean)).item() == 1.25


def test_prompt_by_hand() -> None:
    """Means (2, 0) and (1, 1) against the prompt's (1, 0): squares 1 and 1 over 2."""
    tokens = torch.tensor([[[1.0, -1.0], [3.0, 1.0]], [[1.0, 2.0], [1.0, 0.0]]])
    prompt = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]]])
    assert_close(prompt_alignment(tokens, prompt), torch.tensor([0.5, 0.5]))


@pytest.mark.parametrize("form", ["mse", "smoothl1"])
def test_the_anchor_gets_no_gradient(form: str) -> None:
    pooled, anchor = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    value = mean(semantic_alignment(pooled, anchor, form=form))
    into, none = torch.autograd.grad(value, [pooled, anchor], allow_unused=True)
    assert into.any()
    assert none is None


def test_the_prompt_gets_no_gradient() -> None:
    tokens = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    prompt = torch.zeros(1, 2, 4, requires_grad=True)
    mean(prompt_alignment(tokens, prompt)).backward()
    assert prompt.grad is None
    assert_close(tokens.grad[:, 0], tokens.grad[:, 1])  # only the mean token matters
    assert tokens.grad.any()


@given(st.integers(0, 10_000), st.integers(1, 6))
def test_shift_and_order_do_not_matter(seed: int, size: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    pooled, anchor = torch.randn(2, size, 5, generator=generator, dtype=torch.float64)
    plain = semantic_alignment(pooled, anchor)
    assert_close(semantic_alignment(pooled + 3, anchor + 3), plain)
    order = torch.randperm(size, generator=generator)
    assert_close(semantic_alignment(pooled[order], anchor[order]), plain[order])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("form", ["mse", "smoothl1"])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("size", [1, 3])
def test_finite_at_the_extremes(size: int, clean: bool, form: str, dtype: torch.dtype) -> None:
    pooled = torch.full((size, 4), 6e4).to(dtype).requires_grad_()  # its square is beyond half precision
    rows = torch.full((size,), clean)
    values = semantic_alignment(pooled, torch.zeros(1, 4, dtype=dtype), rows, form=form)
    assert values.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert values.isfinite().all()
    assert bool(values.any()) is clean
    assert torch.autograd.grad(mean(values), pooled)[0].isfinite().all()


def test_wrong_calls_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\[3, 2\] and \[2, 2\]"):
        semantic_alignment(torch.zeros(3, 2), torch.zeros(2, 2))
    with pytest.raises(ValueError, match='"l1"'):
        semantic_alignment(torch.zeros(3, 2), torch.zeros(3, 2), form="l1")
    with pytest.raises(ValueError, match="bool mask"):
        semantic_alignment(torch.zeros(3, 2), torch.zeros(3, 2), torch.ones(3))
    with pytest.raises(ValueError, match=r"\[3, 2, 4\] and \[3, 2, 4\]"):
        prompt_alignment(torch.zeros(3, 2, 4), torch.zeros(3, 2, 4))
