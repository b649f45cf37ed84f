"""Cleanliness: how close a triplet's mutual knowledge is to that of the batch's safest triplet (HABIT)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from triptych.objectives.mutual_knowledge import anchored_mutual_knowledge
from triptych.objectives.probability import Temperature
from triptych.objectives.robust_contrastive import robust_contrastive


class TransitionRates(NamedTuple):
    """How far mutual knowledge moves from the anchor's.

    Attributes:
        own: ``[B]`` ρ, of the triplet's own query and target.
        target: ``[B]`` ρᵗ, of the anchor's query with the triplet's target.
        query: ``[B]`` ρᶜ, of the triplet's query with the anchor's target.
    """

    own: Tensor
    target: Tensor
    query: Tensor


@torch.no_grad()
def lowest_loss(similarity: Tensor, *, temperature: Temperature = 0.07) -> Tensor:
    """Find the anchor a: the triplet of least robust contrastive loss, the likeliest to be right.

    Args:
        similarity: ``[B, B]`` query-by-target similarities, annotated pairs on the diagonal.
        temperature: softmax temperature τ > 0.

    Returns:
        Index, a scalar tensor; the first of several. No gradient.

    Raises:
        ValueError: ``similarity`` is not square or is empty, or ``temperature`` is not positive.

    Source: HABIT section 3.2, "standard sample" (algorithm 1 has the least mutual knowledge, which is a
    slip); specification, section 9, step 1 and row 9.
    """
    if not len(similarity):
        raise ValueError("an empty batch has no anchor")
    return robust_contrastive(similarity, temperature=temperature).argmin()


@torch.no_grad()
def transition_rates(
    composed: Tensor,
    targets: Tensor,
    anchor: int | Tensor,
    *,
    bins: int = 10,
    relative: bool = True,
    floor: float = 1e-3,
) -> TransitionRates:
    r"""Compare every triplet's mutual knowledge with the anchor's, :math:`m_0 = \mathrm{MK}(C_a, t_a)`.

    .. math::
        \rho_i = \frac{|m_0 - \mathrm{MK}(C_i, t_i)|}{m_0}, \quad
        \rho^t_i = \frac{|m_0 - \mathrm{MK}(C_a, t_i)|}{m_0}, \quad
        \rho^c_i = \frac{|m_0 - \mathrm{MK}(C_i, t_a)|}{m_0}

    Args:
        composed: ``[B, Q, D]`` composed query tokens C.
        targets: ``[B, Q, D]`` target tokens t.
        anchor: index a, see :func:`lowest_loss`; a random one is HABIT table 3, D1.
        bins: bins of the histograms.
        relative: divide by :math:`m_0` (off: table 3, D2).
        floor: least :math:`m_0` to divide by, in nats: near the bias of the histogram the rates have no sense.

    Returns:
        Rates of 0 or more; exactly 0 for the anchor itself. No gradient.

    Raises:
        ValueError: the token sets do not fit or are not finite, or ``floor`` is not positive.

    Source: HABIT eq. 3; specification, section 9, step 3 and row 16.
    """
    if not floor > 0:
        raise ValueError(f"floor must be positive, got {floor}")
    knowledge = anchored_mutual_knowledge(composed, targets, anchor, bins=bins)
    base = knowledge[anchor, 0]
    moved = (knowledge - base).abs()
    if relative:
        moved = moved / base.clamp(min=floor)
    moved[anchor] = 0.0
    own, target, query = moved.unbind(dim=1)
    return TransitionRates(own, target, query)


def estimate_cleanliness(rates: TransitionRates) -> Tensor:
    r"""Turn transition rates into cleanliness e.

    .. math:: e_i = \frac{1}{1 + \rho_i + |\rho^t_i - \rho^c_i|}

    Args:
        rates: of :func:`transition_rates`.

    Returns:
        ``[B]`` in (0, 1]; exactly 1 for the anchor.

    Source: HABIT eq. 4; specification, section 9, step 4.
    """
    return 1 / (1 + rates.own + (rates.target - rates.query).abs())
