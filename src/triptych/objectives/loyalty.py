"""Loyalty: how far a query and a target are trusted to match, judged against their rivals (INTENT)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from triptych.objectives.precision import same_precision
from triptych.objectives.probability import (
    Temperature,
    complement,
    match_probabilities,
    square,
)
from triptych.objectives.similarity import similarity as score

SoftForm = Literal["ce_scaled", "neglog"]


def loyalty(
    similarity: Tensor,
    *,
    temperature: Temperature = 0.07,
    positive_reward: bool = True,
    negative_reward: bool = True,
    eps: float = 1e-7,
) -> Tensor:
    r"""Weigh every match by what stands against it.

    .. math::
        l_{ij} = \tfrac12\bigl[p_{ij} + (1 - p^+_i)(1 - y_{ij}) + (1 - p^-_i)\,y_{ij}\bigr],
        \qquad p^+_i = p_{ii}, \quad p^-_i = \max_{j \ne i} p_{ij}, \quad y = I

    The annotated pair is rewarded where no negative competes, the negatives where the annotated pair is weak.
    An annotated pair stays below its strongest negative exactly when its probability does.

    Args:
        similarity: ``[B, B]`` query-by-target similarities, annotated pairs on the diagonal.
        temperature: softmax temperature τ > 0; the paper names none, the released code has 0.07.
        positive_reward: the term with :math:`p^-` (off: INTENT table 3, A3).
        negative_reward: the term with :math:`p^+` (off: A4; both off: A5).
        eps: the result is clamped to ``[eps, 1 - eps]``.

    Returns:
        ``[B, B]`` in (0, 1); the gradient goes through every term.

    Raises:
        ValueError: ``similarity`` is not square, or ``temperature`` is not positive.

    Source: INTENT eqs. 6-9; specification, section 10.
    """
    p = match_probabilities(similarity, temperature)
    rest = complement(p)
    own = torch.eye(len(p), dtype=torch.bool, device=p.device)
    degree = p
    if negative_reward:
        degree = degree + rest.diagonal()[:, None].masked_fill(own, 0.0)  # N, eq. 7
    if positive_reward:
        without_rivals = rest.masked_fill(own, 1.0).amin(dim=1)  # 1 - p^-
        degree = degree + torch.diag(without_rivals)  # R, eq. 8
    return (degree / 2).clamp(eps, 1 - eps)


def soft_discriminative(
    loyalty: Tensor, *, form: SoftForm = "ce_scaled", scale: float | Tensor = 10.0
) -> Tensor:
    r"""Classify softly on the loyalty matrix.

    .. math:: \text{ce\_scaled: } -\log\mathrm{softmax}(T\,l_{i\cdot})_i \qquad \text{neglog: } -\log l_{ii}

    Under ``neglog``, the printed equation, no entry off the diagonal enters, so the negative reward has no
    effect at all; under ``ce_scaled``, the released form, it has.

    Args:
        loyalty: ``[B, B]`` of :func:`loyalty`, in (0, 1).
        form: ``ce_scaled`` or ``neglog``.
        scale: T of ``ce_scaled``, may be learnable.

    Returns:
        ``[B]`` loss per triplet.

    Raises:
        ValueError: ``loyalty`` is not square, or ``form`` is unknown.

    Source: INTENT eq. 10 (``neglog``) and its released code (``ce_scaled``); specification, section 10,
    row 1.
    """
    degrees = square(loyalty)
    if form == "neglog":
        return -degrees.diagonal().log()
    if form == "ce_scaled":
        return -torch.log_softmax(scale * degrees, dim=1).diagonal()
    raise ValueError(f'form must be "ce_scaled" or "neglog", got "{form}"')


def query_axis_similarity(queries: Tensor, targets: Tensor) -> Tensor:
    r"""Score with target tokens normalised again over their *token* axis, as INTENT's released loyalty does.

    .. math:: s_{ij} = \max_q \sum_d c_{i,d}\, t_{j,q,d} \Big/ \sqrt{\textstyle\sum_{q'} t_{j,q',d}^2}

    Entries grow by about :math:`\sqrt{D/Q}`, so the effective temperature falls, and another token may win.
    The queries are normalised too, as released: equal for unit rows, but the gradient is tangent to them.

    Args:
        queries: ``[B, D]`` unit rows.
        targets: ``[N, Q, D]`` unit rows.

    Returns:
        ``[B, N]``, not bounded by 1.

    Source: specification, section 10, row 2 (switch ``loyalty_norm``: ``Q_released``).
    """
    queries, targets = same_precision(queries, targets)
    return score(functional.normalize(queries, dim=1), functional.normalize(targets, dim=1))
