"""From values per triplet to one number, and from one direction to both."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class SimilarityObjective(Protocol):
    """A loss on a square similarity matrix that gives a value per row."""

    def __call__(self, similarity: Tensor, /) -> Tensor:
        """Return ``[B]`` from ``[B, B]``."""
        ...


def mean(values: Tensor) -> Tensor:
    """Average a loss ``[B]`` over its triplets: the ``1/B`` of every paper; 0 for an empty batch."""
    return values.sum() / max(values.numel(), 1)


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
