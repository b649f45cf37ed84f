"""Semantic shift: the query of what is kept ranks the targets, that of what is removed must not (SSN)."""

from __future__ import annotations

import torch
from torch import Tensor

from triptych.objectives.probability import Temperature, tempered

LABEL_SCALE = 100.0
"""The labels are the softmax of this times the identity matrix."""


def shift_divergence(kept: Tensor, removed: Tensor, *, temperature: Temperature = 0.01) -> Tensor:
    r"""Bring the kept part's ranking near the labels, and away from the removed part's ranking.

    .. math::
        \ell_i = K_i(y \,\Vert\, Z^+) - K_i(\mathrm{softmax}\, Z^+ \,\Vert\, Z^-), \quad
        K_i(a \,\Vert\, Z) = \frac1B \sum_j a_{ij} (\log a_{ij} - \log \mathrm{softmax}(Z_{i\cdot})_j), \quad
        Z^\pm = s^\pm / \tau

    with :math:`y = \mathrm{softmax}(100\,I)`. Nothing is held fixed: the gradient goes through both places of
    :math:`Z^+`. The divergence is divided by the row's B entries too, so the mean over the batch is the
    published mean over all B² entries. It has no lower bound.

    Args:
        kept: ``[B, B]`` similarities s⁺ of the queries of the kept parts, annotated pairs on the diagonal;
            computed in float32 at least.
        removed: ``[B, B]`` similarities s⁻ of the anti-queries.
        temperature: τ > 0.

    Returns:
        ``[B]`` loss per triplet; reduce with :func:`~triptych.objectives.mean`.

    Raises:
        ValueError: a matrix is not square, their sizes differ, or ``temperature`` is not positive.

    Source: SSN (AAAI 2024), ``L_kl``; specification, section 6. Its ``L_ce`` is
    ``symmetric(partial(info_nce, temperature=0.01), kept)``.
    """
    if kept.shape != removed.shape:
        raise ValueError(
            f"expected two matrices of one size, got {list(kept.shape)} and {list(removed.shape)}"
        )
    log_kept = torch.log_softmax(tempered(kept, temperature), dim=1)
    log_removed = torch.log_softmax(tempered(removed, temperature), dim=1)
    labels = LABEL_SCALE * torch.eye(len(kept), dtype=log_kept.dtype, device=kept.device)
    return _divergence(torch.log_softmax(labels, dim=1), log_kept) - _divergence(log_kept, log_removed)


def _divergence(log_first: Tensor, log_second: Tensor) -> Tensor:
    """Kullback-Leibler divergence of each row, divided by the row's length: ``[B, N]`` twice to ``[B]``."""
    return (log_first.exp() * (log_first - log_second)).mean(dim=1)
