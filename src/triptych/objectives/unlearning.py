"""Targeted unlearning: move a noisy query from its target to its negative vector by optimal transport (ConeSep).

Matrices are ``[B, 2B]``: the targets on the left, the negative vectors on the right. Without negative vectors
they are ``[B, B]``, the left half alone (ConeSep's ablation D11).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from triptych.objectives.precision import full_precision, same_precision
from triptych.objectives.probability import Temperature, positive_temperature
from triptych.objectives.transport import entropic_transport

Marginals = Literal["uniform", "partition"]
PlanForm = Literal["row_normalised", "raw"]
Directions = Literal["rows", "both"]

LEAST_COST = 1e-6
"""Least largest cost to divide by: below it a batch of equal features has but rounding errors for costs."""
LITTLE_MASS = 1e-6
"""What a column that is not meant to receive mass gets under ``partition``, before all are scaled."""


def scaled_cost(similarity: Tensor) -> Tensor:
    r"""Turn similarities ``[N, M]`` into costs :math:`(1 - s) / \max(1 - s)` (ConeSep eq. 9); no gradient."""
    cost = 1 - full_precision(similarity.detach())
    return cost / cost.amax().clamp(min=LEAST_COST)


def blocked_paths(noisy: Tensor, *, with_negatives: bool = True) -> Tensor:
    """Block the way of each noisy query to its target, and of each clean one to its negative vector.

    Args:
        noisy: ``[B]`` bool.
        with_negatives: keep the right half.

    Returns:
        ``[B, 2B]`` bool, true where blocked (the released code has the opposite coding); or ``[B, B]``.

    Source: ConeSep, section 3.4; specification, section 11 (b), row 8.
    """
    return _halves(noisy, ~noisy, with_negatives)


def hard_labels(noisy: Tensor, *, with_negatives: bool = True) -> Tensor:
    """Label each clean query with its target, and each noisy one with its negative vector.

    Args:
        noisy: ``[B]`` bool.
        with_negatives: keep the right half, without which a noisy query has no label.

    Returns:
        ``[B, 2B]`` bool, or ``[B, B]``.

    Source: ConeSep, section 3.4; specification, section 11 (b), row 9.
    """
    return _halves(~noisy, noisy, with_negatives)


def partition_mass(noisy: Tensor, *, with_negatives: bool = True) -> Tensor:
    """Give mass to the targets of clean queries and the negative vectors of noisy ones only.

    Args:
        noisy: ``[B]`` bool.
        with_negatives: keep the right half.

    Returns:
        ``[2B]`` the same mass for each of these, next to none for the others, 1 in sum; or ``[B]``.

    Source: specification, section 11, row 13 (switch ``btu_marginals``: ``partition``).
    """
    meant = torch.cat([~noisy, noisy]) if with_negatives else ~noisy
    mass = torch.where(meant, 1 / len(noisy), LITTLE_MASS)
    return mass / mass.sum()


def soft_labels(
    plan: Tensor, hard: Tensor, *, gamma: float = 0.7, form: PlanForm = "row_normalised"
) -> Tensor:
    r"""Mix the plan with the hard labels.

    .. math:: Y = \gamma P / (P 1) + (1 - \gamma) H

    Args:
        plan: ``[N, M]`` P.
        hard: ``[N, M]`` bool H.
        gamma: γ in [0, 1].
        form: ``row_normalised``, released; or ``raw``, eq. 11 as printed, γP + (1 - γ)H, where the rows of P sum
            to 1/N only and weigh next to nothing.

    Returns:
        ``[N, M]``. Rows sum to 1 under ``row_normalised`` where there is both a plan and a label.

    Raises:
        ValueError: ``gamma`` is not in [0, 1], or ``form`` is unknown.

    Source: ConeSep eq. 11; specification, section 11, row 24 (switch ``btu_plan``).
    """
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma must be in [0, 1], got {gamma}")
    if form not in ("row_normalised", "raw"):
        raise ValueError(f'form must be "row_normalised" or "raw", got "{form}"')
    if form == "row_normalised":
        plan = _sum_to_one(plan)
    return gamma * plan + (1 - gamma) * hard.to(plan.dtype)


def divergence(label: Tensor, log_probabilities: Tensor) -> Tensor:
    r"""Kullback-Leibler divergence of each row, :math:`\sum_j Y_{ij} (\log Y_{ij} - \log p_{ij})`, ``[N]``.

    Source: ConeSep eq. 12 with the arguments in this order; specification, section 11, row 12.
    """
    return (torch.xlogy(label, label) - label * log_probabilities).sum(dim=1)


def targeted_unlearning(
    positive: Tensor,
    negative: Tensor | None,
    noisy: Tensor,
    *,
    negative_logits: Tensor | None = None,
    gamma: float = 0.7,
    temperature: Temperature = 0.07,
    marginals: Marginals = "uniform",
    plan_form: PlanForm = "row_normalised",
    directions: Directions = "rows",
    eps: float = 0.03,
    iterations: int = 100,
    tolerance: float = 1e-4,
) -> Tensor:
    r"""Unlearn noisy pairs towards their negative vectors (L_ul).

    .. math::
        \ell_i = \mathrm{KL}\bigl(Y_i \,\Vert\, \mathrm{softmax}([S^+_i | S^-_i] / \tau)\bigr), \qquad
        Y = \gamma P / (P 1) + (1 - \gamma) H

    P transports the queries to targets and negative vectors at the costs :math:`1 - [S^+ | S^-]`, scaled to
    at most 1, where a noisy query may not go to its target, nor a clean one to its negative vector; H says where
    each should go. No gradient goes through Y.

    Args:
        positive: ``[B, B]`` S⁺, similarity of queries and targets.
        negative: ``[B, B]`` S⁻, similarity of queries and negative vectors :math:`\langle c_i, n_j \rangle`; None:
            the left half only, where noisy queries keep their blocked target and have no hard label (D11).
        noisy: ``[B]`` bool.
        negative_logits: ``[B, B]`` in place of S⁻ in the softmax: :math:`\sigma_{ij} = \max_q \langle n_i,
            t_{j,q} \rangle` under ``btu_neg_logits = "negt"``.
        gamma: γ in [0, 1]; 0 solves no transport, Y = H (D12).
        temperature: τ > 0.
        marginals: mass of the columns: ``uniform``, or ``partition``, :func:`partition_mass`.
        plan_form: ``row_normalised`` or ``raw``, :func:`soft_labels`.
        directions: ``rows``, or ``both``: half of it, and half the same of the columns over the queries.
        eps: ε of :func:`~triptych.objectives.entropic_transport`.
        iterations: most iterations of it.
        tolerance: its tolerance.

    Returns:
        ``[B]`` loss per triplet. Under ``row_normalised`` a row with a plan but no hard label, or the reverse, is
        scaled to sum to one; a row with neither costs 0.

    Raises:
        ValueError: the shapes do not fit, a number is out of its range, or a name is unknown.

    Source: ConeSep eqs. 9-12, table 3; specification, section 11, rows 6-13, 24, and section 12.
    """
    if marginals not in ("uniform", "partition"):
        raise ValueError(f'marginals must be "uniform" or "partition", got "{marginals}"')
    if directions not in ("rows", "both"):
        raise ValueError(f'directions must be "rows" or "both", got "{directions}"')
    if negative is None and negative_logits is not None:
        raise ValueError("negative_logits need negative: without it only the targets' half is used")
    halves = [positive] if negative is None else [positive, negative]
    logits = _joined(halves if negative_logits is None else [positive, negative_logits], noisy)
    scores = _joined(halves, noisy)
    two = negative is not None

    hard = hard_labels(noisy, with_negatives=two)
    plan = torch.zeros_like(scores)
    if gamma > 0:
        plan = entropic_transport(
            scaled_cost(scores),
            blocked=blocked_paths(noisy, with_negatives=two),
            columns=partition_mass(noisy, with_negatives=two) if marginals == "partition" else None,
            eps=eps,
            iterations=iterations,
            tolerance=tolerance,
        )

    def loss(plan: Tensor, hard: Tensor, logits: Tensor) -> Tensor:
        label = soft_labels(plan, hard, gamma=gamma, form=plan_form)
        if plan_form == "row_normalised":
            label = _sum_to_one(label)
        return divergence(label, torch.log_softmax(logits, dim=1))

    logits = logits / positive_temperature(temperature)
    values = loss(plan, hard, logits)
    if directions == "both":
        values = (values + per_triplet(loss(plan.T, hard.T, logits.T), len(values))) / 2
    return values


def per_triplet(columns: Tensor, batch: int) -> Tensor:
    """Average a loss of the columns ``[B]`` or ``[2B]`` over the two that belong to a triplet, ``[B]``."""
    return columns.view(-1, batch).mean(dim=0)


def _halves(left: Tensor, right: Tensor, both: bool) -> Tensor:
    return torch.cat([torch.diag(left), torch.diag(right)], dim=1) if both else torch.diag(left)


def _sum_to_one(rows: Tensor) -> Tensor:
    """Scale rows to sum to one; a row of zeros stays."""
    return rows / rows.sum(dim=1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)


def _joined(halves: list[Tensor], noisy: Tensor) -> Tensor:
    batch = len(noisy)
    for half in halves:
        if noisy.ndim != 1 or half.shape != (batch, batch):
            raise ValueError(
                f"expected [B, B] similarities and [B] noisy, got {list(half.shape)} and {batch}"
            )
    return torch.cat(same_precision(*halves), dim=1)
