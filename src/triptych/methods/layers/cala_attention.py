"""CALA's two modules: twin attention reads what changed between two images, hinge attention reasons by text."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from triptych.methods.layers.attention import attention
from triptych.methods.layers.linear import linear
from triptych.objectives.precision import full_precision, no_autocast

STEPS = 4


class TwinAttention(nn.Module):
    r"""Read the visual gap between reference and target (TAC).

    .. math::
        o_1 \leftarrow \mathrm{Attn}_1(R^v, T),\ \text{then three times}\ o_1 \leftarrow
        \mathrm{Attn}_1(R^v, o_1); \qquad g = (o_1[0] + o_2[0]) / 2

    and the same for :math:`o_2` with :math:`\mathrm{Attn}_2` and the roles swapped. The weights of an
    attention are shared by its four steps.

    Args:
        width: H, of the tokens.
        generator: draws the start.
        dropout: of the attention weights; the specification names none.

    Source: CALA (SIGIR 2024); specification, section 5.
    """

    def __init__(self, width: int, *, generator: torch.Generator, dropout: float = 0.0) -> None:
        super().__init__()
        self.reference_query = attention(width, 1, generator, dropout=dropout)
        self.target_query = attention(width, 1, generator, dropout=dropout)

    def forward(self, reference: Tensor, target: Tensor) -> Tensor:
        """Return the visual gap g ``[B, H]``, not normalised.

        Args:
            reference: ``[B, Q, H]`` visual tokens R^v of the references.
            target: ``[B, Q', H]`` visual tokens T of the targets.
        """
        dtype = self.reference_query.in_proj_weight.dtype
        reference, target = reference.to(dtype), target.to(dtype)
        first = _attend(self.reference_query, reference, target)
        second = _attend(self.target_query, target, reference)
        return (full_precision(first) + full_precision(second)) / 2


def _attend(layer: nn.MultiheadAttention, query: Tensor, tokens: Tensor) -> Tensor:
    """Attend four times over the last result; the last time only the first token is asked for, ``[B, H]``."""
    for step in range(STEPS):
        asked = query[:, :1] if step == STEPS - 1 else query
        tokens = layer(asked, tokens, tokens, need_weights=False)[0]
    return tokens[:, 0]


class HingeAttention(nn.Module):
    r"""Reason from the reference over the text to the target (HCA): text is the hinge.

    .. math::
        A = (W_q R)(W_k M)^\top / \sqrt H, \quad A' = (W_k M)(W_t T)^\top / \sqrt H, \quad
        e = \bigl(\mathrm{softmax}(A A')\, W_v T\bigr)[0]

    The key projection of the text is shared. Only the first reference token is asked for, so only it is
    computed. The text is summed over, so padding is masked by zeroing its columns of A.

    Args:
        width: H, of all tokens.
        generator: draws the start.
        dropout: of the weights after the softmax.

    Source: CALA (SIGIR 2024); specification, section 5.
    """

    def __init__(self, width: int, *, generator: torch.Generator, dropout: float = 0.1) -> None:
        super().__init__()
        self.width = width
        self.query = linear(width, width, generator)
        self.text_key = linear(width, width, generator)
        self.target_key = linear(width, width, generator)
        self.value = linear(width, width, generator)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, reference: Tensor, text: Tensor, target: Tensor, text_mask: Tensor | None = None
    ) -> Tensor:
        """Return the pseudo-target e ``[B, H]``, not normalised.

        Args:
            reference: ``[B, Q, H]`` multimodal tokens R.
            text: ``[B, L, H]`` text tokens M.
            target: ``[B, Q', H]`` visual tokens T of the targets.
            text_mask: ``[B, L]``, nonzero = a word; None lets padding take part (switch ``unmasked``, as
                released), which makes the result depend on the longest text of the batch.
        """
        dtype = self.query.weight.dtype
        reference, text, target = reference[:, :1].to(dtype), text.to(dtype), target.to(dtype)
        query, value = full_precision(self.query(reference)), full_precision(self.value(target))
        text_key, target_key = full_precision(self.text_key(text)), full_precision(self.target_key(target))
        with no_autocast(query.device):  # a product of two products leaves the range of half precision
            to_text = query @ text_key.mT / self.width**0.5
            if text_mask is not None:
                to_text = to_text.masked_fill(text_mask[:, None] == 0, 0.0)
            scores = to_text @ (text_key @ target_key.mT / self.width**0.5)
            weights: Tensor = self.dropout(functional.softmax(scores, dim=-1))
            return (weights @ value)[:, 0]
