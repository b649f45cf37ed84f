"""ConeSep's unlearning block as its code has it, kept apart from the formula: for ``compat = "released"`` only."""

from __future__ import annotations

import torch
from torch import Tensor

from triptych.objectives.precision import same_precision
from triptych.objectives.probability import Temperature, match_probabilities
from triptych.objectives.transport import entropic_transport
from triptych.objectives.unlearning import divergence, per_triplet, scaled_cost, soft_labels


def released_scores(positive: Tensor, negative: Tensor, *, temperature: Temperature = 0.07) -> Tensor:
    r"""Join :math:`[\mathrm{softmax}(S^+/\tau) \,|\, \sigma^\top]`: probabilities beside cosines, ``[B, 2B]``.

    The right half is transposed: row i is of target i, column j of negative vector j. Costs *and* logits are
    made of it.

    Args:
        positive: ``[B, B]`` S⁺, similarity of queries and targets.
        negative: ``[B, B]`` σ, similarity of negative vectors (rows) and targets.
        temperature: τ > 0 of the left half.

    Raises:
        ValueError: the shapes do not fit, or ``temperature`` is not positive.

    Source: specification, section 11, rows 6, 7.
    """
    if positive.shape != negative.shape:
        raise ValueError(f"expected [B, B] twice, got {list(positive.shape)} and {list(negative.shape)}")
    positive, negative = same_precision(positive, negative)
    return torch.cat([match_probabilities(positive, temperature), negative.T], dim=1)


def released_blocked(noisy: Tensor) -> Tensor:
    """Block noisy queries' targets, and the *last column* for the clean (row 8): ``[B, 2B]`` bool."""
    return _dustbin(noisy, ~noisy)


def released_labels(noisy: Tensor) -> Tensor:
    """Label the clean with their targets, and all noisy with the *last column* (row 9): ``[B, 2B]`` bool."""
    return _dustbin(~noisy, noisy)


def targeted_unlearning_released(
    positive: Tensor, negative: Tensor, noisy: Tensor, *, gamma: float = 0.7, temperature: Temperature = 0.07
) -> Tensor:
    r"""The released L_ul: nearly inert, for its labels are softmaxed again and its logits are not tempered.

    .. math::
        \tfrac12 \mathrm{KL}\bigl(\mathrm{softmax}(Y) \,\Vert\, \mathrm{softmax}(Z)\bigr) + \tfrac12
        \mathrm{KL}\bigl(\mathrm{softmax}(Y') \,\Vert\, \mathrm{softmax}(Z^\top)\bigr)

    with Z of :func:`released_scores`, Y = γ P / (P 1) + (1 - γ) H, and Y' the same of Zᵀ.

    Args:
        positive: ``[B, B]`` S⁺, similarity of queries and targets.
        negative: ``[B, B]`` σ, similarity of negative vectors (rows) and targets.
        noisy: ``[B]`` bool.
        gamma: γ in [0, 1].
        temperature: τ > 0 of the left half of Z.

    Returns:
        ``[B]`` loss per triplet: row i, and columns i and i + B.

    Raises:
        ValueError: the shapes do not fit, or a number is out of its range.

    Source: specification, section 11, rows 6-11.
    """
    if noisy.shape != positive.shape[:1]:
        raise ValueError(f"expected [{len(positive)}] noisy, got {list(noisy.shape)}")
    scores = released_scores(positive, negative, temperature=temperature)
    cost, blocked, hard = scaled_cost(scores), released_blocked(noisy), released_labels(noisy)
    rows = _divergence(scores, cost, blocked, hard, gamma)
    columns = _divergence(scores.T, cost.T, blocked.T, hard.T, gamma)
    return (rows + per_triplet(columns, len(noisy))) / 2


def _divergence(scores: Tensor, cost: Tensor, blocked: Tensor, hard: Tensor, gamma: float) -> Tensor:
    label = soft_labels(entropic_transport(cost, blocked=blocked), hard, gamma=gamma)
    return divergence(torch.softmax(label, dim=1), torch.log_softmax(scores, dim=1))


def _dustbin(diagonal: Tensor, last: Tensor) -> Tensor:
    right = torch.zeros(len(last), len(last), dtype=torch.bool, device=last.device)
    right[:, -1] = last
    return torch.cat([torch.diag(diagonal), right], dim=1)
