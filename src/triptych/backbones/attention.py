"""What a Q-Former's output read, followed back through its layers to image tokens and text positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from triptych.backbones.composer import QFormerBackbone


@dataclass(frozen=True)
class Attention:
    """The attention of one layer for one query, mean of the heads; rows read columns and sum to 1.

    Attributes:
        own: ``[N, N]`` self-attention over the Q query tokens and the text positions.
        image: ``[Q, P]`` cross-attention of the query tokens; None where the layer has none.
    """

    own: Tensor
    image: Tensor | None


@dataclass(frozen=True)
class Reading:
    """Shares of what a composed query vector read.

    Attributes:
        image: ``[P]`` of the image tokens.
        text: ``[L]`` of the text positions, the first one (which the vector is read from) included.

    What is missing to 1 stayed with the learned query tokens, which are the same for every picture.
    """

    image: Tensor
    text: Tensor


@torch.no_grad()
def read_composition(backbone: QFormerBackbone, tokens: Tensor, text: str) -> Reading:
    """Compose one picture ``[P, V]`` with a text, and say what the query vector read of both.

    The attention of all layers is recorded; no other thread may use the backbone meanwhile.
    """
    queries = backbone.shape.queries
    with _recording(backbone.qformer) as recorded:
        composed = backbone.compose(tokens[None], [text])
    positions = int(composed.text_mask.sum())
    layers = [
        Attention(own[: queries + positions, : queries + positions], image) for own, image in recorded()
    ]
    return roll_out(layers, queries)


def roll_out(layers: Sequence[Attention], queries: int) -> Reading:
    r"""Follow attention from the first text position back to what went in.

    A layer adds what it reads to what was there, so half of a position's share stays with it and half goes where its
    attention points. From the last layer to the first, with :math:`r` the shares of the positions:

    .. math:: x \mathrel{+}= \tfrac12 r_{1..Q} C, \qquad r_{1..Q} \leftarrow \tfrac12 r_{1..Q}, \qquad
              r \leftarrow r \left(\tfrac12 I + \tfrac12 A\right)

    where :math:`C` is the layer's cross-attention and :math:`A` its self-attention.

    Args:
        layers: first to last.
        queries: Q, how many positions are query tokens; the vector is read from the next one.

    Source: attention rollout (Abnar and Zuidema, ACL 2020), with cross-attention beside it.
    """
    last = layers[-1].own
    shares = torch.zeros(len(last), dtype=torch.float64)
    shares[queries] = 1.0
    image: Tensor | None = None
    for layer in reversed(layers):
        if layer.image is not None:
            read = 0.5 * shares[:queries] @ layer.image.double()
            image = read if image is None else image + read
            shares = torch.cat([0.5 * shares[:queries], shares[queries:]])
        shares = 0.5 * shares + 0.5 * shares @ layer.own.double()
    return Reading(torch.zeros(0).double() if image is None else image, shares[queries:])


Recorded = Callable[[], list[tuple[Tensor, Tensor | None]]]


@contextmanager
def _recording(qformer: Any) -> Iterator[Recorded]:
    """Keep the attention of every layer: transformers gives it when attention is computed plainly."""
    seen: dict[nn.Module, Tensor] = {}

    def keep(module: nn.Module, _: Any, output: Any) -> None:
        seen[module] = output[1][0].detach().mean(dim=0).cpu()  # the first query; mean of the heads

    def read() -> list[tuple[Tensor, Tensor | None]]:
        return [
            (seen[layer.attention.attention], seen.get(layer.crossattention.attention))
            if layer.has_cross_attention
            else (seen[layer.attention.attention], None)
            for layer in qformer.encoder.layer
        ]

    modules = [layer.attention.attention for layer in qformer.encoder.layer]
    modules += [
        layer.crossattention.attention for layer in qformer.encoder.layer if layer.has_cross_attention
    ]
    hooks = [module.register_forward_hook(keep) for module in modules]
    before = qformer.config._attn_implementation
    qformer.config._attn_implementation = "eager"
    try:
        yield read
    finally:
        qformer.config._attn_implementation = before
        for hook in hooks:
            hook.remove()
