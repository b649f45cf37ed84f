"""Attention layers of torch whose start is drawn from a generator."""

from __future__ import annotations

import torch
from torch import Tensor, nn

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


def encode_at(
    layer: nn.TransformerEncoderLayer, asked: Tensor, tokens: Tensor, padding: Tensor | None = None
) -> Tensor:
    """Return what a post-norm layer makes of some of its tokens, ``[B, A, W]``, without computing the rest.

    Args:
        layer: of :func:`encoder_layer`.
        asked: ``[B, A, W]``, rows of ``tokens``.
        tokens: ``[B, T, W]``, what they attend to.
        padding: ``[B, T]``, true where a token is padding.
    """
    seen = layer.self_attn(asked, tokens, tokens, key_padding_mask=padding, need_weights=False)[0]
    middle = layer.norm1(asked + layer.dropout1(seen))
    deep = layer.linear2(layer.dropout(layer.activation(layer.linear1(middle))))
    result: Tensor = layer.norm2(middle + layer.dropout2(deep))
    return result


def _check(width: int, heads: int) -> None:
    if width % heads:
        raise ValueError(f"a width of {width} cannot be split over {heads} heads")


def _restart(layer: nn.MultiheadAttention, generator: torch.Generator) -> nn.MultiheadAttention:
    nn.init.xavier_uniform_(layer.in_proj_weight, generator=generator)
    nn.init.zeros_(layer.in_proj_bias)
    restart(layer.out_proj, generator)
    nn.init.zeros_(layer.out_proj.bias)
    return layer
