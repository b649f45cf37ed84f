"""Entropic optimal transport: Sinkhorn's iterations in the log domain, with blocked paths."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from triptych.objectives.precision import full_precision


@torch.no_grad()
def entropic_transport(
    cost: Tensor,
    *,
    blocked: Tensor | None = None,
    rows: Tensor | None = None,
    columns: Tensor | None = None,
    eps: float = 0.03,
    iterations: int = 100,
    tolerance: float = 1e-4,
) -> Tensor:
    r"""Move the rows' mass to the columns at least cost, smoothed by entropy.

    .. math::
        \min_P \langle P, C \rangle - \epsilon H(P), \qquad P 1 = a,\ P^\top 1 = b,\ P_{ij} = 0 \text{ if blocked}

    Each iteration scales the rows, then the columns, by one log-sum-exp each; it stops when the rows'
    potentials, in units of cost, change by less than ``tolerance`` in sum. The columns' sums are then exact,
    the rows' nearly so.

    A row or column whose every entry is blocked carries nothing, and the others of its side carry its mass.
    Where blocked paths admit no plan otherwise, the result is finite but misses some rows' mass.

    Args:
        cost: ``[N, M]`` C; at ε = 0.03 meant to be at most 1.
        blocked: ``[N, M]`` bool, paths that carry nothing.
        rows: ``[N]`` mass a ≥ 0, scaled to sum to one; uniform by default.
        columns: ``[M]`` mass b ≥ 0, scaled to sum to one; uniform by default.
        eps: weight ε > 0 of the entropy.
        iterations: most iterations, 1 or more.
        tolerance: when to stop; 0 = never early.

    Returns:
        ``[N, M]`` plan P without gradient, float32 at least.

    Raises:
        ValueError: the shapes do not fit, or a number is out of its range.

    Example:
        >>> entropic_transport(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), eps=1.0)
        tensor([[0.3655, 0.1345],
                [0.1345, 0.3655]])

    Source: Cuturi 2013; ConeSep eq. 10; specification, section 11, row 14.
    """
    if cost.ndim != 2 or not cost.numel():
        raise ValueError(f"expected a cost of [N, M], got {list(cost.shape)}")
    if not eps > 0 or iterations < 1:
        raise ValueError(f"eps must be positive and iterations 1 or more, got {eps} and {iterations}")
    cost = full_precision(cost)
    if blocked is None:
        blocked = torch.zeros_like(cost, dtype=torch.bool)
    elif blocked.shape != cost.shape:
        raise ValueError(f"blocked must be {list(cost.shape)} like the cost, got {list(blocked.shape)}")
    log_rows = _log_mass(rows, ~blocked.all(dim=1), cost.dtype)
    log_columns = _log_mass(columns, ~blocked.all(dim=0), cost.dtype)

    by_row = (-cost / eps).masked_fill(blocked, -math.inf)
    by_column = by_row.T.contiguous()
    row_potential, column_potential = torch.zeros_like(log_rows), torch.zeros_like(log_columns)
    for _ in range(iterations):
        previous = row_potential
        row_potential = log_rows - _log_sums(by_row + column_potential)
        column_potential = log_columns - _log_sums(by_column + row_potential)
        if eps * (row_potential - previous).abs().sum() < tolerance:
            break
    return (by_row + row_potential[:, None] + column_potential).exp()


def _log_mass(mass: Tensor | None, open_: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the logarithm of the mass of a side's open entries, scaled to sum to one; 1e-38 stands for 0."""
    if mass is None:
        mass = torch.ones_like(open_, dtype=dtype)
    elif mass.shape != open_.shape or bool((mass < 0).any()) or not bool(mass.sum() > 0):
        raise ValueError(f"mass must be {list(open_.shape)} with none below 0 and some above, got {mass}")
    least = torch.finfo(torch.float32).tiny
    mass = mass.to(dtype) * open_
    return (mass / mass.sum().clamp(min=least)).clamp(min=least).log()


def _log_sums(logs: Tensor) -> Tensor:
    """Log-sum-exp of each row; 0 for a row of nothing, whose potential then does not matter."""
    sums = torch.logsumexp(logs, dim=1)
    return sums.masked_fill(sums == -math.inf, 0.0)
