"""Token selection of RDE: one vector from the tokens that are attended to most."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from triptych.methods.layers.linear import linear
from triptych.objectives import full_precision

_ZERO = 1e-12
"""A shorter token has no direction: it counts as zero and gets no gradient."""


class TokenSelection(nn.Module):
    r"""Takes the most attended tokens, maps each by a linear layer beside an MLP, and pools them by their maximum.

    .. math:: v = \mathrm{normalise}\bigl(\max_{k \in K} (W \bar x_k + \mathrm{MLP}(\bar x_k))\bigr)

    with unit tokens :math:`\bar x` and K the :math:`\lceil \text{ratio} \cdot n \rceil` most attended of the n valid
    ones.

    Args:
        inputs: H, width of a token.
        outputs: D, width of the vector.
        ratio: share of the tokens that is taken.
        generator: draws the start.

    Source: RDE (CVPR 2024), token selection embedding; specification, section 7.
    """

    def __init__(self, inputs: int, outputs: int, *, ratio: float, generator: torch.Generator) -> None:
        super().__init__()
        self.ratio = ratio
        middle = max(outputs // 2, 1)
        self.linear = linear(inputs, outputs, generator)
        self.first = linear(inputs, middle, generator)
        self.norm = nn.BatchNorm1d(middle)
        self.second = linear(middle, outputs, generator)

    def forward(self, tokens: Tensor, attention: Tensor, mask: Tensor | None = None) -> Tensor:
        """Select and pool.

        Args:
            tokens: ``[B, N, H]``.
            attention: ``[B, N]``, how much each is attended to.
            mask: ``[B, N]``, true where a token is real; all of them if None.

        Returns:
            ``[B, D]`` unit rows, float32 at least.
        """
        real = torch.ones_like(attention, dtype=torch.bool) if mask is None else mask.bool()
        counts = (self.ratio * real.sum(dim=1).double() - 1e-9).ceil().clamp(min=1).long()
        order = attention.masked_fill(~real, -torch.inf).topk(int(counts.max()), dim=1).indices
        taken = torch.arange(order.shape[1], device=order.device) < counts[:, None]
        rows = torch.arange(len(tokens), device=order.device)[:, None].expand_as(order)
        mapped = self._map(tokens[rows[taken], order[taken]])
        slots = mapped.new_full((*order.shape, mapped.shape[1]), -torch.inf)
        slots[taken] = mapped
        return functional.normalize(slots.amax(dim=1), dim=-1)

    def _map(self, tokens: Tensor) -> Tensor:
        wide = full_precision(tokens)
        length = wide.norm(dim=-1, keepdim=True)
        unit = (wide / length.clamp(min=_ZERO)).masked_fill(length < _ZERO, 0.0).to(self.linear.weight.dtype)
        middle = self._normalise(full_precision(self.first(unit))).relu()
        return full_precision(self.linear(unit)) + full_precision(self.second(middle))

    def _normalise(self, middle: Tensor) -> Tensor:
        """Normalise over the batch's tokens; a lone token, which has no spread, by what was seen before."""
        if len(middle) > 1:
            normalised: Tensor = self.norm(middle)
            return normalised
        norm = self.norm
        return functional.batch_norm(
            middle, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps
        )
