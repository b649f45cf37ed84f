"""Token selection: which tokens are taken, what is made of them, and what is left out."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.testing import assert_close

from triptych.methods.layers.token_selection import TokenSelection


def make(ratio: float = 0.3) -> TokenSelection:
    return TokenSelection(6, 5, ratio=ratio, generator=torch.Generator().manual_seed(1))


def rand(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2))


def test_by_hand_in_eval_mode() -> None:
    """Ten tokens: the three most attended ones are mapped, and pooled by their maximum."""
    layer = make().eval()
    layer.norm.running_mean.fill_(0.1)
    layer.norm.running_var.fill_(2.0)
    tokens, attention = rand(1, 10, 6), torch.tensor([[0, 9, 1, 2, 8, 3, 4, 7, 5, 6.0]])
    chosen = normalize(tokens[0, [1, 4, 7]], dim=-1)
    middle = ((layer.first(chosen) - 0.1) / math.sqrt(2 + layer.norm.eps)).relu()
    expected = (layer.linear(chosen) + layer.second(middle)).amax(dim=0)
    assert_close(layer(tokens, attention), normalize(expected, dim=0)[None])


@pytest.mark.parametrize(
    ("ratio", "real", "taken"),
    [(0.3, 10, 3), (0.3, 20, 6), (0.3, 4, 2), (0.3, 3, 1), (0.1, 30, 3), (1.0, 7, 7), (0.01, 5, 1)],
)
def test_the_share_of_the_real_ones_is_rounded_up(ratio: float, real: int, taken: int) -> None:
    """A token counts if its gradient is there; a high attention to what is not real does not."""
    layer = make(ratio).eval()
    tokens = rand(1, real + 3, 6).requires_grad_()
    attention = torch.arange(real + 3.0)[None]
    mask = attention < real
    seen: list[int] = []
    layer.linear.register_forward_hook(lambda module, given, result: seen.append(len(given[0])))
    layer(tokens, attention, mask).sum().backward()
    assert seen == [taken]
    assert tokens.grad is not None
    touched = tokens.grad[0].abs().sum(dim=1) > 0
    assert not touched[real:].any()
    assert not touched[: real - taken].any()


def test_each_row_takes_its_own_number() -> None:
    layer = make().eval()
    tokens, attention = rand(3, 10, 6), torch.rand(3, 10, generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([10, 1, 5])
    mask = torch.arange(10) < lengths[:, None]
    together = layer(tokens, attention, mask)
    for row, length in enumerate(lengths.tolist()):
        alone = layer(tokens[row : row + 1, :length], attention[row : row + 1, :length])
        assert_close(together[row], alone[0])
    assert_close(together.norm(dim=1), torch.ones(3))


def test_only_the_direction_of_a_token_counts() -> None:
    layer, tokens, attention = make().eval(), rand(2, 4, 6), torch.rand(2, 4)
    assert_close(layer(tokens * 7, attention), layer(tokens, attention))


def test_training_normalises_over_all_selected_tokens_and_remembers() -> None:
    layer = make(ratio=1.0)
    tokens = rand(4, 3, 6)
    layer(tokens, torch.rand(4, 3))
    middle = layer.first(normalize(tokens, dim=-1)).flatten(0, 1)
    assert_close(layer.norm.running_mean, 0.1 * middle.mean(dim=0))


def test_a_lone_token_takes_the_running_statistics() -> None:
    layer = make()
    before = layer.norm.running_mean.clone()
    tokens, attention = rand(1, 2, 6), torch.rand(1, 2)
    found = layer(tokens, attention)
    assert found.isfinite().all()
    assert torch.equal(layer.norm.running_mean, before)
    assert_close(found, layer.eval()(tokens, attention))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_extremes_are_finite(dtype: torch.dtype) -> None:
    layer = make()
    for tokens in (torch.zeros(3, 4, 6), torch.ones(3, 4, 6), rand(3, 4, 6) * 1e4):
        given = tokens.to(dtype).requires_grad_()
        result = layer(given, torch.zeros(3, 4))
        assert result.dtype == torch.float32
        result.sum().backward()
        assert given.grad is not None
        assert given.grad.isfinite().all()
        assert result.isfinite().all()
    assert all(value.grad is not None and value.grad.isfinite().all() for value in layer.parameters())


def test_the_start_is_by_its_generator() -> None:
    first, second = (dict(make().named_parameters()) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
