"""The learning rate by hand, and its shape."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.training.schedule import learning_rate_factor

KINDS = ("cosine", "constant", "onecycle")


@pytest.mark.parametrize(
    ("kind", "step", "factor"),
    [
        ("cosine", 0, 1 / 5),
        ("cosine", 3, 4 / 5),
        ("cosine", 4, 1.0),
        ("cosine", 12, 0.505),  # half way of 16: (1 + 0.01) / 2
        ("cosine", 16, 0.01 + 0.99 * (1 + math.cos(math.pi * 12 / 16)) / 2),
        ("constant", 1, 2 / 5),
        ("constant", 4, 1.0),
        ("constant", 19, 1.0),
        ("onecycle", 0, 0.01),
        ("onecycle", 2, 0.505),
        ("onecycle", 4, 1.0),
        ("onecycle", 12, (1 + 1e-4) / 2),
    ],
)
def test_by_hand(kind: str, step: int, factor: float) -> None:
    """20 steps, 4 of them warm-up."""
    found = learning_rate_factor(step, total_steps=20, warmup_steps=4, kind=kind)
    assert found == pytest.approx(factor)


def test_without_warm_up() -> None:
    assert learning_rate_factor(0, total_steps=10, warmup_steps=0, kind="cosine") == 1
    assert learning_rate_factor(0, total_steps=10, warmup_steps=0, kind="onecycle") == 1


@given(kind=st.sampled_from(KINDS), total=st.integers(1, 500), share=st.floats(0, 1.5))
def test_shape(kind: str, total: int, share: float) -> None:
    """Within (0, 1]; up over the warm-up, never up after it, without a jump; past the end still a number."""
    warmup = round(share * total)
    factors = [
        learning_rate_factor(step, total_steps=total, warmup_steps=warmup, kind=kind)
        for step in range(total + 2)
    ]
    assert all(0 < factor <= 1 for factor in factors)
    rising, falling = factors[: warmup + 1], factors[warmup:]
    assert all(a <= b for a, b in itertools.pairwise(rising))
    assert all(a >= b for a, b in itertools.pairwise(falling))
    if warmup < total:
        assert factors[warmup] == 1
        steepest = math.pi / 2 / max(min(warmup or total, total - warmup), 1)
        assert all(abs(a - b) <= steepest + 1e-9 for a, b in itertools.pairwise(factors[:total]))
