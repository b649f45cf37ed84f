"""Robust contrastive learning: push wrong targets away and never pull the annotated one."""

from __future__ import annotations

import torch
from torch import Tensor

from triptych.objectives.probability import Temperature, log_complement, match_probabilities
from triptych.objectives.shapes import require_per_triplet


def robust_contrastive(
    similarity: Tensor,
    *,
    temperature: Temperature = 0.07,
    eps: float = 1e-7,
    include_diagonal: bool = False,
    mask: Tensor | None = None,
) -> Tensor:
    r"""Negatives-only contrastive loss: push wrong targets away, never pull the annotated one.

    .. math:: \ell_i = -\sum_{j \neq i} \log(1 - p_{ij}), \quad p_{i\cdot} = \mathrm{softmax}(s_{i\cdot}/\tau)

    A wrong annotation costs little here, because the annotated pair enters only through the softmax's
    denominator. The sum is not divided by the number of negatives.

    Args:
        similarity: ``[B, B]`` query-by-target similarities, annotated pairs on the diagonal; computed in
            float32 at least.
        temperature: softmax temperature τ > 0.
        eps: probabilities are clamped to ``[eps, 1 - eps]``; exact in float32 too, where ``1 - 1e-7`` is
            rounded.
        include_diagonal: add the annotated pair to the sum, which repels it (INTENT table 4, B2).
        mask: ``[B]`` bool m of HABIT, ``False`` = distrusted: the loss is :math:`-\sum \log(1 - m_i p_{ij})`,
            so a distrusted query costs nothing, while its target stays a negative of the others. (Eq. 8 as
            printed, with m outside of :math:`1 - p`, would be infinite.)

    Returns:
        ``[B]`` loss per triplet; reduce with :func:`~triptych.objectives.mean`.

    Raises:
        ValueError: ``similarity`` is not square, ``mask`` not ``[B]``, ``temperature`` not positive, or
            ``eps`` not in (0, 0.5).

    Example:
        >>> robust_contrastive(torch.eye(2), temperature=1.0)  # -log(1 - 1 / (1 + e))
        tensor([0.3133, 0.3133])

    Source: RCL (TPAMI 2023) as used by TME, HABIT eq. 8, INTENT eq. 5 (with the index of its algorithm 1),
    ConeSep eq. 4; specification, sections 3 and 9 (step 6).
    """
    if not 0 < eps < 0.5:
        raise ValueError(f"eps must be in (0, 0.5), got {eps}")
    terms = -log_complement(match_probabilities(similarity, temperature), eps)
    if not include_diagonal:
        own = torch.eye(len(terms), dtype=torch.bool, device=terms.device)
        terms = terms.masked_fill(own, 0.0)
    if mask is not None:
        require_per_triplet(len(terms), mask=mask)
        terms = terms.masked_fill(~mask[:, None], 0.0)
    return terms.sum(dim=1)
