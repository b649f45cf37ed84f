"""From values per triplet to one number, and from one direction to both."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class SimilarityObjective(Protocol):
    """A loss on a square similarity matrix that gives a value per row."""

    def __call__(self, similarity: Tensor, /) -> Tensor:
        """Return ``[B]`` from ``[B, B]``."""
        ...


def mean(values: Tensor) -> Tensor:
    """Average a loss ``[B]`` over its triplets: the ``1/B`` of every paper; 0 for an empty batch."""
    return values.sum() / max(values.numel(), 1)


def restrict(values: Tensor, rows: Tensor) -> Tensor:
    r"""Restrict a loss to some triplets, such that its mean over the batch is the mean over those.

    .. math:: \ell_i\, [i \in R]\, B / |R|

    Args:
        values: ``[B]`` loss per triplet.
        rows: ``[B]`` bool, the triplets R that count; none gives 0.

    Returns:
        ``[B]``, 0 outside the rows.

    Raises:
        ValueError: ``rows`` is not ``[B]`` bool.

    Example:
        >>> restrict(torch.tensor([1.0, 5.0, 3.0]), torch.tensor([True, False, True]))
        tensor([1.5000, 0.0000, 4.5000])
    """
    if rows.dtype != torch.bool or rows.shape != values.shape:
        raise ValueError(f"expected a bool mask {list(values.shape)}, got {list(rows.shape)} {rows.dtype}")
    scale: Tensor = rows.numel() / rows.sum().clamp(min=1).to(values.dtype)
    return values.masked_fill(~rows, 0.0) * scale


def symmetric(objective: SimilarityObjective, similarity: Tensor) -> Tensor:
    r"""Average an objective over both directions, query to target and target to query.

    .. math:: \tfrac12\bigl(\ell(s)_i + \ell(s^\top)_i\bigr)

    Each direction takes its own softmax. (The transpose of one row-softmax is not a second direction: with
    the diagonal masked its sum is the same number again.)

    Args:
        objective: gives a value per row; bind its options with :func:`functools.partial`.
        similarity: ``[B, B]``, annotated pairs on the diagonal.

    Returns:
        ``[B]``; entry i joins query i and target i.

    Source: specification, section 3, "symmetric (mean)".
    """
    return (objective(similarity) + objective(similarity.T)) / 2
