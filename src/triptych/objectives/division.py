"""Division of triplets into clean and noisy: from a posterior, from losses, or by two branches that agree."""

from __future__ import annotations

import torch
from torch import Tensor

from triptych.objectives.mixture import rescale


def likely_clean(probabilities: Tensor, *, never_all: bool = False) -> Tensor:
    r"""Hold a triplet clean if its posterior exceeds one half.

    Args:
        probabilities: ``[N]`` posterior of being clean, :attr:`~triptych.objectives.Mixture.clean`.
        never_all: RDE's rule: if all exceed one half, the :math:`\lfloor N/100 \rfloor + 1` lowest are noisy
            all the same (of equal ones the first).

    Returns:
        ``[N]`` bool, True = clean.

    Source: specification, sections 7 and 8.
    """
    clean = probabilities > 0.5
    if never_all and bool(clean.all()):
        return ~_highest(-probabilities, len(probabilities) // 100 + 1)
    return clean


def lowest_losses(losses: Tensor, *, noisy: float) -> Tensor:
    r"""Hold the highest losses noisy, a given share of all (TME's partitioner ``percent``).

    Args:
        losses: ``[N]``.
        noisy: share in [0, 1]; :math:`\lfloor \text{noisy} \cdot N \rfloor` triplets are noisy, of equal
            losses the first.

    Returns:
        ``[N]`` bool, True = clean.

    Raises:
        ValueError: ``noisy`` is not in [0, 1].

    Source: specification, section 8.
    """
    if not 0 <= noisy <= 1:
        raise ValueError(f"noisy must be a share in [0, 1], got {noisy}")
    return ~_highest(losses, int(noisy * len(losses)))


def low_losses(losses: Tensor, *, threshold: float) -> Tensor:
    """Hold a triplet clean if its loss, rescaled to [0, 1], is below a threshold (TME's ``direct``).

    Args:
        losses: ``[N]``.
        threshold: in (0, 1].

    Returns:
        ``[N]`` bool, True = clean.

    Raises:
        ValueError: ``threshold`` is not in (0, 1], or a loss is not finite.

    Source: specification, section 8.
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must be in (0, 1], got {threshold}")
    return rescale(losses) < threshold


def consensus(first: Tensor, second: Tensor, coins: Tensor) -> Tensor:
    """Trust what both branches hold clean, distrust what both hold noisy, and toss a coin for the rest.

    Args:
        first: ``[N]`` bool of one branch, True = clean.
        second: ``[N]`` bool of the other.
        coins: ``[N]`` bool of :func:`toss`, read where the branches disagree.

    Returns:
        ``[N]`` bool, True = clean.

    Raises:
        ValueError: not three bool tensors of one shape.

    Source: RDE (CVPR 2024), consensus division; specification, section 7.
    """
    votes = (first, second, coins)
    if any(vote.dtype != torch.bool or vote.shape != first.shape for vote in votes):
        shapes = ", ".join(f"{list(vote.shape)} {vote.dtype}" for vote in votes)
        raise ValueError(f"expected three bool tensors of one shape, got {shapes}")
    return torch.where(first == second, first, coins)


def toss(count: int, generator: torch.Generator) -> Tensor:
    """Toss a fair coin for each of ``count`` triplets, ``[count]`` bool on the generator's device."""
    return torch.rand(count, generator=generator, device=generator.device) < 0.5


def _highest(values: Tensor, count: int) -> Tensor:
    """Mark the ``count`` highest of ``[N]``, of equal ones the first."""
    marked = torch.zeros_like(values, dtype=torch.bool)
    marked[values.argsort(descending=True, stable=True)[:count]] = True
    return marked
