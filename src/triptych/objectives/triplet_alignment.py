"""Triplet alignment: a smooth maximum over all negatives in place of the hardest one (RDE)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from triptych.objectives.probability import Temperature, square, tempered

LARGEST_SUM = 1e36
"""The sum of exponentials is cut here, in the published form; cosines at τ = 0.015 stay below it."""


def triplet_alignment(similarity: Tensor, *, temperature: Temperature = 0.015, margin: float = 0.1) -> Tensor:
    r"""Keep each annotated pair a margin above a smooth maximum of its negatives, in both directions (TAL).

    .. math::
        \ell_i = \bigl[m - s_{ii} + \tau \log \textstyle\sum_{j \ne i} e^{s_{ij}/\tau}\bigr]_+
               + \bigl[m - s_{ii} + \tau \log \textstyle\sum_{j \ne i} e^{s_{ji}/\tau}\bigr]_+

    As τ goes to 0 it becomes the hinge on the hardest negative, which a noisy batch sends astray; all
    negatives share the gradient here. The logarithm is computed stably, so large similarities cannot overflow.

    Args:
        similarity: ``[B, B]`` query-by-target similarities, annotated pairs on the diagonal; computed in
            float32 at least.
        temperature: τ > 0.
        margin: m.

    Returns:
        ``[B]`` loss per triplet; 0 in a batch of one, which has no negatives. RDE multiplies it by the labels
        of its consensus and sums; the specification recommends the mean.

    Raises:
        ValueError: ``similarity`` is not square, or ``temperature`` is not positive.

    Example:
        >>> triplet_alignment(torch.zeros(2, 2))  # the margin, twice
        tensor([0.2000, 0.2000])

    Source: RDE (CVPR 2024), every identity occurring once; specification, section 7.
    """
    scores = square(similarity)
    logits = tempered(scores, temperature)
    own = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
    negatives = logits.masked_fill(own, torch.finfo(logits.dtype).min)
    ceiling = math.log(LARGEST_SUM)
    hinges = [
        (
            margin - scores.diagonal() + temperature * torch.logsumexp(negatives, dim=dim).clamp(max=ceiling)
        ).relu()
        for dim in (1, 0)
    ]
    return hinges[0] + hinges[1]
