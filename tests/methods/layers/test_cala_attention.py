"""CALA's attention: by hand, what must always hold, and the extremes."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from triptych.methods.layers.cala_attention import HingeAttention, TwinAttention

WIDTH = 8


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def tokens(seed: int, count: int, batch: int = 3) -> Tensor:
    return torch.randn(batch, count, WIDTH, generator=seeded(seed), dtype=torch.float64)


def hinge() -> HingeAttention:
    return HingeAttention(WIDTH, generator=seeded(0)).double().eval()


def twin() -> TwinAttention:
    return TwinAttention(WIDTH, generator=seeded(1)).double().eval()


def test_hinge_by_hand() -> None:
    """With identity projections: width 1, reference 2, words 1 and 3, targets 0 and log 3 / 20.

    The scores are 2 (1 + 9) t, so 0 and log 3, the weights 1/4 and 3/4.
    """
    layer = HingeAttention(1, generator=seeded(0)).double().eval()
    layer.load_state_dict(
        {name: torch.full_like(value, name.endswith("weight")) for name, value in layer.state_dict().items()}
    )
    step = torch.log(torch.tensor(3.0, dtype=torch.float64)) / 20
    reference, text = (torch.tensor([[values]], dtype=torch.float64).mT for values in ([2.0], [1.0, 3.0]))
    target = torch.stack([0 * step, step])[None, :, None]
    assert_close(layer(reference, text, target), 0.75 * step[None, None])


def test_padding_is_masked_by_zeroing_or_takes_part() -> None:
    layer, reference, text, target = hinge(), tokens(1, 4), tokens(2, 5), tokens(3, 6)
    mask = torch.tensor([[1, 1, 1, 0, 0]]).expand(3, -1)
    masked = layer(reference, text, target, mask)
    assert_close(layer(reference, text[:, :3], target), masked)
    assert_close(layer(reference, text.masked_fill(mask[..., None] == 0, 9.0), target, mask), masked)
    assert not torch.allclose(layer(reference, text, target), masked)
    assert_close(layer(reference, text, target, torch.ones(3, 5)), layer(reference, text, target))
    empty = layer(reference, text, target, torch.zeros(3, 5))
    assert_close(empty, functional.linear(target.mean(1), layer.value.weight, layer.value.bias))


def test_only_the_first_reference_token_is_asked() -> None:
    layer, text, target = hinge(), tokens(2, 5), tokens(3, 6)
    assert_close(layer(tokens(1, 4)[:, :1], text, target), layer(tokens(1, 4), text, target))


def test_order_of_words_and_target_tokens_does_not_matter() -> None:
    layer, reference, text, target = hinge(), tokens(1, 4), tokens(2, 5), tokens(3, 6)
    expected = layer(reference, text, target)
    assert_close(layer(reference, text.flip(1), target.flip(1)), expected)
    assert_close(layer(*(part.flip(0) for part in (reference, text, target))), expected.flip(0))


def test_weights_are_dropped_in_training_alone() -> None:
    layer, parts = hinge(), (tokens(1, 4), tokens(2, 5), tokens(3, 6))
    assert layer.dropout.p == 0.1
    layer.dropout.p = 1.0
    assert layer(*parts).any()
    assert not layer.train()(*parts).any()


def test_twin_swaps_roles_and_runs_four_steps() -> None:
    layer, reference, target = twin(), tokens(1, 4), tokens(2, 6)
    gap = layer(reference, target)
    first, second = target, reference
    for _ in range(4):
        first = layer.reference_query(reference, first, first)[0]
        second = layer.target_query(target, second, second)[0]
    assert_close(gap, (first[:, 0] + second[:, 0]) / 2)
    swapped = twin()
    swapped.reference_query, swapped.target_query = layer.target_query, layer.reference_query
    assert_close(swapped(target, reference), gap)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("value", [0.0, 1.0, 100.0])
def test_finite_at_the_extremes(value: float, batch: int, dtype: torch.dtype) -> None:
    gap, reason = TwinAttention(WIDTH, generator=seeded(0)), HingeAttention(WIDTH, generator=seeded(0))
    part = torch.full((batch, 3, WIDTH), value, dtype=dtype, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        outputs = [gap(part, part), reason(part, part, part, torch.zeros(batch, 3))]
    for output in outputs:
        assert output.shape == (batch, WIDTH)
        assert output.dtype == torch.float32
        assert output.isfinite().all()
        assert torch.autograd.grad(output.sum(), part)[0].isfinite().all()
