"""Soft margin: a hinge against the hardest negative, wider for triplets that seem clean (HABIT)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from triptych.objectives.precision import full_precision
from triptych.objectives.probability import square
from triptych.objectives.shapes import require_per_triplet

MarginShape = Literal["exponential", "linear", "sin", "none"]


def adaptive_margin(
    cleanliness: Tensor, *, margin: float = 0.2, shape: MarginShape = "exponential"
) -> Tensor:
    r"""Give each triplet a margin that grows with its cleanliness, from 0 to ``margin``.

    .. math::
        \text{exponential: } m\,\frac{10^{e_i} - 1}{9} \qquad \text{linear: } m\,e_i \qquad
        \text{sin: } m\,\frac{\sin(\pi e_i - \pi/2) + 1}{2} \qquad \text{none: } m

    Args:
        cleanliness: ``[B]`` e in [0, 1]; no gradient goes into it.
        margin: m, the margin of a triplet that is surely clean; 0.2 in the paper, 0.5 in its code.
        shape: ``exponential`` (paper and code), ``linear``, ``sin``, or ``none``: the same for all.

    Returns:
        ``[B]``, float32 at least.

    Raises:
        ValueError: ``margin`` is negative, or ``shape`` is unknown.

    Source: HABIT eq. 10; specification, section 9, step 7 and rows 4, 12.
    """
    if not margin >= 0:
        raise ValueError(f"margin must not be negative, got {margin}")
    e = full_precision(cleanliness.detach())
    if shape == "exponential":
        return margin * (10**e - 1) / 9
    if shape == "linear":
        return margin * e
    if shape == "sin":
        return margin * (torch.sin(math.pi * e - math.pi / 2) + 1) / 2
    if shape == "none":
        return torch.full_like(e, margin)
    raise ValueError(f'shape must be "exponential", "linear", "sin" or "none", got "{shape}"')


def soft_margin(
    similarity: Tensor,
    cleanliness: Tensor,
    *,
    mask: Tensor | None = None,
    margin: float = 0.2,
    shape: MarginShape = "exponential",
    mask_hinge: bool = True,
) -> Tensor:
    r"""Keep the annotated target ahead of the hardest negative by a margin that follows the cleanliness.

    .. math:: \ell_i = m_i \max_{j \ne i} \bigl[\mu(m_i e_i) + s_{ij} - s_{ii}\bigr]_+

    Args:
        similarity: ``[B, B]`` query-by-target similarities, annotated pairs on the diagonal.
        cleanliness: ``[B]`` e in [0, 1]; no gradient goes into it.
        mask: ``[B]`` bool m, ``False`` = distrusted; all are trusted, if not given.
        margin: largest margin, see :func:`adaptive_margin`.
        shape: how the margin grows.
        mask_hinge: distrusted triplets cost nothing. Off, as released, only their margin is taken away and
            they are still pulled.

    Returns:
        ``[B]``, 0 or more; 0 in a batch of one.

    Raises:
        ValueError: the shapes do not fit, ``margin`` is negative, or ``shape`` is unknown.

    Source: HABIT eqs. 7, 10; specification, section 9, step 7 and row 7.
    """
    s = square(similarity)
    require_per_triplet(len(s), cleanliness=cleanliness, mask=mask)
    trusted = torch.ones(len(s), dtype=torch.bool, device=s.device) if mask is None else mask
    width = adaptive_margin(cleanliness.masked_fill(~trusted, 0.0), margin=margin, shape=shape).to(s.dtype)
    own = torch.eye(len(s), dtype=torch.bool, device=s.device)
    hinge = torch.relu(width[:, None] + s - s.diagonal()[:, None]).masked_fill(own, 0.0)
    hardest = hinge.amax(dim=1) if len(s) else hinge.sum(dim=1)
    return hardest.masked_fill(~trusted, 0.0) if mask_hinge else hardest
