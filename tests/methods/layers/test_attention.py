"""Layers drawn from a generator: torch's usual start, and nothing global is drawn."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from triptych.methods import registry
from triptych.methods.layers.attention import attention, encode_at, encoder_layer
from triptych.methods.layers.cala_attention import HingeAttention, TwinAttention
from triptych.methods.layers.linear import linear
from triptych.methods.layers.ssn_fusion import SsnFusion


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


MAKERS = {
    "linear": lambda generator: linear(12, 6, generator),
    "attention": lambda generator: attention(16, 2, generator),
    "encoder": lambda generator: encoder_layer(16, 2, generator, feedforward=32),
    "hinge": lambda generator: HingeAttention(16, generator=generator),
    "twin": lambda generator: TwinAttention(16, generator=generator),
    "fusion": lambda generator: SsnFusion(12, 16, generator=generator),
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_generator_decides_and_nothing_global_is_drawn(name: str) -> None:
    before = torch.random.get_rng_state()
    first, again, other = (MAKERS[name](seeded(seed)).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(value.isfinite().all() for value in first.values())
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


def test_the_start_is_torchs_usual_one() -> None:
    ours = encoder_layer(64, 8, seeded(0), feedforward=128).state_dict()
    with torch.random.fork_rng():
        torch.manual_seed(0)  # the largest of 64 draws is not the same in every start
        theirs = nn.TransformerEncoderLayer(64, 8, 128, batch_first=True).state_dict()
    assert list(ours) == list(theirs)
    for name, value in theirs.items():
        assert ours[name].shape == value.shape
        if value.std() == 0:
            assert torch.equal(ours[name], value), name
        else:
            assert ours[name].std().item() == pytest.approx(value.std().item(), rel=0.25), name
            assert_close(ours[name].abs().max(), value.abs().max(), rtol=0.1, atol=0.0, msg=name)


def test_a_layer_asked_for_some_tokens_gives_what_it_gives_for_all() -> None:
    layer = encoder_layer(16, 2, seeded(0), feedforward=32).double().train()
    for part in layer.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    layer.self_attn.dropout = 0.0
    tokens = torch.randn(3, 7, 16, generator=seeded(1), dtype=torch.float64)
    padding = torch.zeros(3, 7, dtype=torch.bool)
    padding[1, 5:] = True
    whole = layer(tokens, src_key_padding_mask=padding)
    assert_close(encode_at(layer, tokens[:, 1:4], tokens, padding), whole[:, 1:4], rtol=1e-12, atol=1e-12)
    assert not torch.allclose(encode_at(layer, tokens[:, 1:4], tokens)[1], whole[1, 1:4])


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ValueError, match=r"width of 10.*3 heads"):
        attention(10, 3, seeded(0))
    with pytest.raises(ValueError, match=r"width of 12.*8 heads"):
        SsnFusion(4, 12, generator=seeded(0))


def test_layers_are_not_taken_for_methods() -> None:
    assert "layers" not in registry.names()
