"""The softmax over targets, its exact complement, and what a row says about its annotated pair."""

from __future__ import annotations

import torch
from torch import Tensor

from triptych.objectives.precision import full_precision

Temperature = float | Tensor
"""A positive number, or a learnable scalar that its owner keeps positive."""


def square(similarity: Tensor) -> Tensor:
    """Return ``similarity`` in float32 at least.

    Raises:
        ValueError: it is not ``[B, B]``.
    """
    if similarity.ndim != 2 or similarity.shape[0] != similarity.shape[1]:
        raise ValueError(f"expected a square [B, B] similarity matrix, got {list(similarity.shape)}")
    return full_precision(similarity)


def positive_temperature(temperature: Temperature) -> Temperature:
    """Return ``temperature``.

    Raises:
        ValueError: it is a number that is not positive.
    """
    if not isinstance(temperature, Tensor) and not temperature > 0:
        raise ValueError(f"temperature must be positive, got {temperature}")
    return temperature


def tempered(similarity: Tensor, temperature: Temperature) -> Tensor:
    """Return the logits ``similarity / temperature`` of a square matrix.

    Raises:
        ValueError: the matrix is not square, or ``temperature`` is a number that is not positive.
    """
    return square(similarity) / positive_temperature(temperature)


def match_probabilities(similarity: Tensor, temperature: Temperature = 0.07) -> Tensor:
    r"""Softmax of each query over the batch's targets, p ``[B, B]`` (specification, section 0)."""
    return torch.softmax(tempered(similarity, temperature), dim=1)


def complement(probabilities: Tensor) -> Tensor:
    r"""Give :math:`1 - p` for rows that sum to one, without cancellation where p is near 1.

    Only the largest entry of a row can be near 1; its complement is the sum of the others.

    Args:
        probabilities: ``[B, N]``, rows summing to one.

    Returns:
        ``[B, N]``, as exact in float32 at p = 1 - 1e-12 as at p = 0.5.
    """
    top = probabilities.argmax(dim=1, keepdim=True)
    others = probabilities.scatter(1, top, 0.0).sum(dim=1, keepdim=True)
    return (1 - probabilities).scatter(1, top, others)


def log_complement(probabilities: Tensor, eps: float) -> Tensor:
    r"""Give :math:`\log(1 - p)` with p clamped to ``[eps, 1 - eps]``, exact at both ends.

    Entries outside the clamp get no gradient.
    """
    small = torch.log1p(-probabilities.clamp(eps, 0.5))
    large = complement(probabilities).clamp(eps, 1 - eps).log()
    return torch.where(probabilities < 0.5, small, large)


def positive_and_negative(probabilities: Tensor) -> tuple[Tensor, Tensor]:
    r"""Pick what a batch says for and against each annotated pair (INTENT eq. 6).

    .. math:: p^+_i = p_{ii}, \qquad p^-_i = \max_{j \ne i} p_{ij}

    Args:
        probabilities: ``[B, B]`` of :func:`match_probabilities`.

    Returns:
        ``[B]`` and ``[B]``; a batch of one has no negative, so :math:`p^- = 0`.
    """
    own = torch.eye(len(probabilities), dtype=torch.bool, device=probabilities.device)
    return probabilities.diagonal(), probabilities.masked_fill(own, 0.0).amax(dim=1)
