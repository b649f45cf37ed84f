"""Attention layers of torch whose start is drawn from a generator."""

from __future__ import annotations

import torch
from torch import nn

from triptych.methods.layers.linear import restart


def attention(
    width: int, heads: int, generator: torch.Generator, *, dropout: float = 0.0
) -> nn.MultiheadAttention:
    """Make an attention layer, batch first, with torch's usual start, drawn from ``generator``.

    Raises:
        ValueError: ``width`` is not a multiple of ``heads``.
    """
    _check(width, heads)
    layer = nn.MultiheadAttention(width, heads, dropout=dropout, batch_first=True, device="meta")
    return _restart(layer.to_empty(device="cpu"), generator)


def encoder_layer(
    width: int, heads: int, generator: torch.Generator, *, feedforward: int = 2048, dropout: float = 0.1
) -> nn.TransformerEncoderLayer:
    """Make a post-norm transformer layer, batch first, with torch's usual start, drawn from ``generator``.

    Raises:
        ValueError: ``width`` is not a multiple of ``heads``.
    """
    _check(width, heads)
    layer = nn.TransformerEncoderLayer(
        width, heads, feedforward, dropout, batch_first=True, device="meta"
    ).to_empty(device="cpu")
    _restart(layer.self_attn, generator)
    for dense in (layer.linear1, layer.linear2):
        restart(dense, generator)
    for norm in (layer.norm1, layer.norm2):
        norm.reset_parameters()  # ones and zeros: nothing is drawn
    return layer


def _check(width: int, heads: int) -> None:
    if width % heads:
        raise ValueError(f"a width of {width} cannot be split over {heads} heads")


def _restart(layer: nn.MultiheadAttention, generator: torch.Generator) -> nn.MultiheadAttention:
    nn.init.xavier_uniform_(layer.in_proj_weight, generator=generator)
    nn.init.zeros_(layer.in_proj_bias)
    restart(layer.out_proj, generator)
    nn.init.zeros_(layer.out_proj.bias)
    return layer
