"""Attention flow: what each position of a Q-Former is mixed from, positions and image regions, layer upon layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from triptych.backbones.composer import QFormerBackbone


@dataclass(frozen=True)
class AttentionFlow:
    """Shares that each row is mixed from; positions and regions of a row sum to 1.

    Attributes:
        positions: ``[B, N, N]`` shares of what entered the first layer: Q queries, then L text positions.
        regions: ``[B, N, P]`` shares of the image tokens.
        text_mask: ``[B, L]``, 1 where a text position is real.
    """

    positions: Tensor
    regions: Tensor
    text_mask: Tensor


def roll_out(
    self_attentions: Sequence[Tensor], cross_attentions: Sequence[Tensor | None]
) -> tuple[Tensor, Tensor]:
    r"""Multiply attention through the layers, each with its residual connection.

    .. math::
        \bar A = \tfrac12 (A + I), \quad F \leftarrow \bar A F, \quad R \leftarrow \bar A R, \quad
        \text{then for the queries: } F_q \leftarrow \tfrac12 F_q, \; R_q \leftarrow \tfrac12 (R_q + X_q)

    with :math:`F = I` and :math:`R = 0` at first, and the second line in layers with cross-attention X.

    Args:
        self_attentions: per layer A, ``[B, N, N]``, rows sum to 1.
        cross_attentions: per layer X, ``[B, Q, P]``, rows sum to 1; None where the layer has none.

    Returns:
        F ``[B, N, N]`` and R ``[B, N, P]``; a row of both together sums to 1.

    Raises:
        ValueError: there is no layer, or none with cross-attention.

    Source: attention rollout (Abnar and Zuidema, 2020), with cross-attention as a second source.
    """
    first = next((cross for cross in cross_attentions if cross is not None), None)
    if not self_attentions or len(self_attentions) != len(cross_attentions) or first is None:
        raise ValueError("expected one self-attention a layer, and at least one layer with cross-attention")
    own = torch.eye(self_attentions[0].shape[1]).to(self_attentions[0])
    flow = own.expand_as(self_attentions[0])
    regions = flow.new_zeros(*flow.shape[:2], first.shape[2])
    for attention, cross in zip(self_attentions, cross_attentions, strict=True):
        mixed = (attention + own) / 2
        flow, regions = mixed @ flow, mixed @ regions
        if cross is not None:
            queries = cross.shape[1]
            flow = torch.cat([flow[:, :queries] / 2, flow[:, queries:]], dim=1)
            regions = torch.cat([(regions[:, :queries] + cross) / 2, regions[:, queries:]], dim=1)
    return flow, regions


@torch.no_grad()
def attention_flow(backbone: QFormerBackbone, tokens: Tensor, texts: Sequence[str]) -> AttentionFlow:
    """Compose references with texts and follow the attention, mean of the heads.

    Args:
        backbone: in eval mode.
        tokens: ``[B, P, V]`` frozen tokens of the references.
        texts: B texts.
    """
    layers: Any = backbone.qformer.encoder.layer
    seen: dict[nn.Module, tuple[Tensor, Tensor | None]] = {}
    modules = [
        (layer.attention.attention, layer.crossattention.attention if layer.has_cross_attention else None)
        for layer in layers
    ]
    hooks = [
        module.register_forward_pre_hook(_note(seen), with_kwargs=True)
        for pair in modules
        for module in pair
        if module is not None
    ]
    try:
        composed = backbone.compose(tokens, texts)
    finally:
        for hook in hooks:
            hook.remove()
    mask = composed.text_mask
    whole = torch.cat([mask.new_ones(len(mask), backbone.shape.queries), mask], dim=1)
    flow, regions = roll_out(
        [_weights(own, *seen[own], whole) for own, _ in modules],
        [None if cross is None else _weights(cross, *seen[cross], None) for _, cross in modules],
    )
    return AttentionFlow(flow, regions, mask)


def _note(
    seen: dict[nn.Module, tuple[Tensor, Tensor | None]],
) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
    def hook(module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        hidden = arguments[0] if arguments else named["hidden_states"]
        seen[module] = hidden, named.get("encoder_hidden_states")

    return hook


def _weights(module: Any, hidden: Tensor, image: Tensor | None, mask: Tensor | None) -> Tensor:
    """Compute attention ``[B, N, M]``, mean of the heads, float32: fast kernels do not give it."""
    source = hidden if image is None else image
    query = module.query(hidden).view(*hidden.shape[:2], module.num_attention_heads, -1)
    key = module.key(source).view(*source.shape[:2], module.num_attention_heads, -1)
    logits: Tensor = torch.einsum("bnhd,bmhd->bhnm", query, key).float() * module.scaling
    if mask is not None:
        logits = logits.masked_fill(mask[:, None, None] == 0, -torch.inf)
    return logits.softmax(dim=-1).mean(dim=1)
