"""Consistency with the past: by hand, what is left out, the released pairing, extremes."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from triptych.objectives import consistency, mean, robust_contrastive


def matrix(seed: int, size: int) -> Tensor:
    return 2 * torch.rand(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 1


def case(seed: int, size: int) -> dict[str, Tensor]:
    return {
        "similarity": matrix(seed, size),
        "past": matrix(seed + 1, size),
        "cleanliness": matrix(seed + 2, size)[0].abs(),
        "past_cleanliness": matrix(seed + 3, size)[0].abs(),
    }


def divergence(p: list[float], q: list[float]) -> float:
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


seeds, sizes = st.integers(0, 10_000), st.integers(1, 8)

# softmax(10 · 1 · s) and softmax(10 · ½ · s⁻) of two triplets
S = torch.tensor([[0.1 * math.log(3), 0.0], [0.0, 0.0]], dtype=torch.float64)
PAST = torch.tensor([[0.2 * math.log(4), 0.0], [0.0, 0.2 * math.log(9)]], dtype=torch.float64)
E, E_BEFORE = torch.ones(2, dtype=torch.float64), torch.full((2,), 0.5, dtype=torch.float64)


def test_two_triplets_by_hand() -> None:
    expected = torch.tensor(
        [divergence([3 / 4, 1 / 4], [4 / 5, 1 / 5]), divergence([1 / 2, 1 / 2], [1 / 10, 9 / 10])],
        dtype=torch.float64,
    )
    assert_close(consistency(S, PAST, E, E_BEFORE, reduction="row"), expected)
    assert_close(consistency(S, PAST, E, E_BEFORE), expected / 2)
    mask = torch.tensor([False, True])
    assert_close(consistency(S, PAST, E, E_BEFORE, mask=mask), expected / 2 * mask)


def test_released_pairing_by_hand() -> None:
    """It weighs s by the past cleanliness ½ and s⁻ by the present 1, or 0 where distrusted."""
    root = math.sqrt(3) / (1 + math.sqrt(3))
    now = [root, 1 - root]
    trusted = divergence(now, [16 / 17, 1 / 17])
    distrusted = divergence(now, [1 / 2, 1 / 2])
    options: dict[str, Any] = {"pairing": "crossed", "reduction": "row"}
    assert consistency(S, PAST, E, E_BEFORE, **options)[0].item() == pytest.approx(trusted)
    mask = torch.tensor([False, True])
    assert consistency(S, PAST, E, E_BEFORE, mask=mask, **options)[0].item() == pytest.approx(distrusted)


def test_nothing_changed_costs_nothing() -> None:
    inputs = case(0, 6)
    s, e = inputs["similarity"], inputs["cleanliness"]
    assert_close(consistency(s, s, e, e), torch.zeros(6, dtype=torch.float64))
    assert_close(consistency(s + 0.3, s, e, e), torch.zeros(6, dtype=torch.float64))


@given(seeds, sizes, sizes)
@pytest.mark.parametrize("pairing", ["own", "crossed"])
def test_samples_without_history_are_left_out_as_queries_and_as_targets(
    pairing: str, seed: int, known: int, unknown: int
) -> None:
    size = known + unknown
    inputs = case(seed, size)
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    kept, strangers = order[:known].sort().values, order[known:]
    options: dict[str, Any] = {"pairing": pairing, "reduction": "row"}
    alone = consistency(
        *(value[kept][:, kept] if value.ndim == 2 else value[kept] for value in inputs.values()), **options
    )
    remembered = torch.ones(size, dtype=torch.bool)
    remembered[strangers] = False
    inputs["past"][strangers] = math.nan  # nobody looks at what is not known
    inputs["past"][:, strangers] = math.nan
    inputs["past_cleanliness"][strangers] = math.nan
    s = inputs["similarity"].requires_grad_()
    together = consistency(**inputs, remembered=remembered, **options)
    assert_close(together[kept], alone)
    assert (together[strangers] == 0).all()
    (gradient,) = torch.autograd.grad(together.sum(), s)
    assert gradient.isfinite().all()
    assert (gradient[strangers] == 0).all()
    assert (gradient[:, strangers] == 0).all()


@given(seeds, sizes)
def test_invariances(seed: int, size: int) -> None:
    inputs = case(seed, size)
    mask = matrix(seed + 4, size)[0] > 0
    value = consistency(**inputs, mask=mask)
    assert (value >= -1e-12).all()
    assert (value[~mask] == 0).all()
    assert_close(consistency(**inputs, mask=mask, reduction="row"), size * value)
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    moved = {k: v[order][:, order] if v.ndim == 2 else v[order] for k, v in inputs.items()}
    assert_close(consistency(**moved, mask=mask[order]), value[order])


def test_the_gradient_is_right_and_goes_into_the_present_only() -> None:
    inputs = {name: value.requires_grad_() for name, value in case(0, 4).items()}
    mask = torch.tensor([True, True, False, True])
    assert torch.autograd.gradcheck(
        lambda s: consistency(s, *list(inputs.values())[1:], mask=mask, remembered=mask.flip(0)),
        inputs["similarity"],
    )
    gradients = torch.autograd.grad(consistency(**inputs).sum(), list(inputs.values()), allow_unused=True)
    assert [gradient is None for gradient in gradients] == [False, True, True, True]


EXTREMES = {
    "no triplet": torch.zeros(0, 0),
    "one triplet": torch.tensor([[0.3]]),
    "two triplets": torch.tensor([[0.3, 0.9], [0.1, -0.2]]),
    "identical features": torch.ones(5, 5),
    "zero vectors": torch.zeros(5, 5),
    "certain and wrong": (2 * torch.eye(5) - 1).roll(1, dims=0),
    "far beyond a cosine": 100 * torch.eye(5).roll(1, dims=0),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("extreme", EXTREMES)
@pytest.mark.parametrize("everyone", [True, False])
def test_finite_at_the_extremes(everyone: bool, extreme: str, dtype: torch.dtype) -> None:
    s = EXTREMES[extreme].to(dtype).requires_grad_()
    past, e = s.detach().T, torch.ones(len(s), dtype=dtype)
    flags = torch.full((len(s),), everyone)
    for options in ({"mask": flags}, {"remembered": flags}, {"mask": flags, "remembered": ~flags}):
        for pairing in ("own", "crossed"):
            values = consistency(s, past, e, e, pairing=pairing, **options)  # type: ignore[arg-type]
            assert values.shape == (len(s),)
            assert values.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
            assert values.isfinite().all()
            assert torch.autograd.grad(mean(values), s)[0].isfinite().all()


def test_wrong_calls_are_refused() -> None:
    s, e = torch.zeros(3, 3), torch.ones(3)
    with pytest.raises(ValueError, match=r"past similarities \[3, 3\], got \[2, 2\]"):
        consistency(s, s[:2, :2], e, e)
    with pytest.raises(ValueError, match=r"past_cleanliness must be \[3\]"):
        consistency(s, s, e, e[:2])
    with pytest.raises(ValueError, match=r"remembered must be \[3\]"):
        consistency(s, s, e, e, remembered=torch.ones(2, dtype=torch.bool))
    with pytest.raises(ValueError, match="pairing must be"):
        consistency(s, s, e, e, pairing="swapped")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="reduction must be"):
        consistency(s, s, e, e, reduction="batchmean")  # type: ignore[arg-type]


@given(seeds, sizes)
def test_masked_rank_loss_spares_distrusted_queries_and_keeps_their_targets(seed: int, size: int) -> None:
    """-Σ log(1 - m p), as released: rows of m = 0 cost nothing, the others cost what they did."""
    s, mask = matrix(seed, size).requires_grad_(), matrix(seed + 1, size)[0] > 0
    p = torch.softmax(s / 0.07, dim=1).clamp(1e-7, 1 - 1e-7)
    wrong = 1 - torch.eye(size, dtype=torch.float64)
    value = robust_contrastive(s, mask=mask)
    assert_close(value, -((1 - mask[:, None] * p).log() * wrong).sum(dim=1), rtol=1e-9, atol=1e-9)
    (gradient,) = torch.autograd.grad(value.sum(), s)
    assert (gradient[~mask] == 0).all()
    with pytest.raises(ValueError, match="mask must be"):
        robust_contrastive(s, mask=mask[:, None])
