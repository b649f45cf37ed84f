"""Consistency: a query should rank the batch's targets as it did when they were last seen (HABIT)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from triptych.objectives.precision import same_precision
from triptych.objectives.probability import square
from triptych.objectives.shapes import require_per_triplet

Pairing = Literal["own", "crossed"]
KlReduction = Literal["element", "row"]


def consistency(
    similarity: Tensor,
    past: Tensor,
    cleanliness: Tensor,
    past_cleanliness: Tensor,
    *,
    mask: Tensor | None = None,
    remembered: Tensor | None = None,
    pairing: Pairing = "own",
    reduction: KlReduction = "element",
    scale: float = 10.0,
) -> Tensor:
    r"""Divergence of a query's similarities from its past ones, each weighed by the cleanliness of its time.

    .. math::
        \ell_i = \frac{m_i}{B}\, \mathrm{KL}(P_i \,\|\, P^-_i), \quad
        P_i = \mathrm{softmax}_j(10\, m_i e_i\, s_{ij}), \quad
        P^-_i = \mathrm{softmax}_j(10\, e^-_i\, s^-_{ij})

    The less clean, the flatter is the distribution. Gradients go into ``similarity`` alone.

    Args:
        similarity: ``[B, B]`` s of now, annotated pairs on the diagonal.
        past: ``[B, B]`` s⁻ of the same samples at their last visit.
        cleanliness: ``[B]`` e of now, before the mask.
        past_cleanliness: ``[B]`` e⁻ of the last visit.
        mask: ``[B]`` bool m, ``False`` = distrusted; all are trusted, if not given (HABIT table 3, D10).
        remembered: ``[B]`` bool, which samples have a history; all, if not given. The others are left out as
            queries and as targets, and whatever stands for them in ``past`` and ``past_cleanliness`` is not
            looked at.
        pairing: ``own`` as above. ``crossed``, as released, weighs s by e⁻ and s⁻ by m e, and distrusted
            rows stay in, against a flat past.
        reduction: ``element`` divides by B, so that the mean over triplets is the mean over all B² entries
            (released; its weight is 10); ``row`` does not, as eq. 6.
        scale: factor of the similarities.

    Returns:
        ``[B]``, 0 or more but for rounding; 0 for rows that are left out.

    Raises:
        ValueError: the shapes do not fit, or ``pairing`` or ``reduction`` is unknown.

    Source: HABIT eq. 6; specification, section 9, step 8 and rows 1, 6.
    """
    s = square(similarity)
    size = len(s)
    if past.shape != s.shape:
        raise ValueError(f"expected past similarities {list(s.shape)}, got {list(past.shape)}")
    require_per_triplet(
        size, cleanliness=cleanliness, past_cleanliness=past_cleanliness, mask=mask, remembered=remembered
    )
    if pairing not in ("own", "crossed"):
        raise ValueError(f'pairing must be "own" or "crossed", got "{pairing}"')
    if reduction not in ("element", "row"):
        raise ValueError(f'reduction must be "element" or "row", got "{reduction}"')

    everyone = torch.ones(size, dtype=torch.bool, device=s.device)
    trusted = everyone if mask is None else mask
    known = everyone if remembered is None else remembered
    both = known[:, None] & known
    s, before = same_precision(s, past.detach().masked_fill(~both, 0.0))
    weight = cleanliness.detach().masked_fill(~trusted, 0.0)
    weight_before = past_cleanliness.detach().masked_fill(~known, 0.0)
    if pairing == "crossed":
        weight, weight_before = weight_before, weight

    now = _log_softmax(scale * weight.to(s)[:, None] * s, known)
    then = _log_softmax(scale * weight_before.to(s)[:, None] * before, known)
    divergence = (now.exp() * (now - then)).sum(dim=1)
    rows = known & trusted if pairing == "own" else known
    divergence = divergence.masked_fill(~rows, 0.0)
    return divergence / max(size, 1) if reduction == "element" else divergence


def _log_softmax(logits: Tensor, columns: Tensor) -> Tensor:
    """Give log-probabilities over some columns; those of the others are finite, and their exponential is 0."""
    nothing = torch.finfo(logits.dtype).min / 2
    return torch.log_softmax(logits.masked_fill(~columns, nothing), dim=1)
