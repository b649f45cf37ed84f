"""Mutual knowledge: how much two token sets' entries tell of each other, by histogram (HABIT)."""

from __future__ import annotations

import torch
from torch import Tensor

from triptych.objectives.precision import same_precision

EPS = 1e-10
"""Keeps empty cells of a histogram out of ``log 0``."""


@torch.no_grad()
def mutual_knowledge(first: Tensor, second: Tensor, *, bins: int = 10) -> Tensor:
    r"""Mutual information of the paired entries of two token sets, per triplet, in nats.

    .. math:: \mathrm{MK}(X, Y) = \sum_{uv} P_{uv} \log \frac{P_{uv} + \epsilon}{P_u P_v + \epsilon}

    P is the joint histogram of the Q·D entries, in ``bins`` equal-width bins between the least and the largest
    entry of each set (the last bin holds its right edge). An entry counts with its counterpart, whatever its
    coordinate, so permuting the coordinates of both sets alike changes nothing. A set of one constant value
    tells nothing: 0. Unrelated entries give about ``(bins - 1)² / (2QD)``, the bias of a finite sample. No
    gradient.

    Args:
        first: ``[B, Q, D]`` X, or ``[1, Q, D]`` to pair one set with all.
        second: ``[B, Q, D]`` Y, or ``[1, Q, D]``.
        bins: bins along each axis.

    Returns:
        ``[B]``, 0 or more but for rounding; float32 at least.

    Raises:
        ValueError: the shapes do not fit, an entry is not finite, or ``bins`` is less than 1.

    Example:
        >>> x = torch.tensor([[[0.0, 0.0, 1.0, 1.0]], [[0.0, 1.0, 0.0, 1.0]]])
        >>> mutual_knowledge(x, x[:1])  # the same coin: log 2; two independent ones: 0
        tensor([0.6931, 0.0000])

    Source: HABIT eq. 2; specification, section 9, step 2.
    """
    first, second = _same_entries(first, second)
    return _information(_bin(first, bins), _bin(second, bins), bins, first.dtype)


@torch.no_grad()
def anchored_mutual_knowledge(
    composed: Tensor, targets: Tensor, anchor: int | Tensor, *, bins: int = 10
) -> Tensor:
    r"""Mutual knowledge of every triplet, and of its two sides with those of the anchor triplet a.

    .. math:: \mathrm{MK}(C_i, t_i), \quad \mathrm{MK}(C_a, t_i), \quad \mathrm{MK}(C_i, t_a)

    Each set is put into bins once. The anchor's own, :math:`\mathrm{MK}(C_a, t_a)`, is entry ``[anchor, 0]``.

    Args:
        composed: ``[B, Q, D]`` composed query tokens C.
        targets: ``[B, Q, D]`` target tokens t.
        anchor: index a of the batch's reference triplet.
        bins: bins along each axis.

    Returns:
        ``[B, 3]`` in nats, in the order of the formula. No gradient.

    Raises:
        ValueError: as :func:`mutual_knowledge`, or the batch sizes differ.

    Source: HABIT eqs. 2-4; specification, section 9, steps 2, 3.
    """
    if len(composed) != len(targets):
        raise ValueError(f"expected a target for each query, got {len(composed)} and {len(targets)}")
    composed, targets = _same_entries(composed, targets)
    query, target = _bin(composed, bins), _bin(targets, bins)
    pairs = ((query, target), (query[anchor][None], target), (query, target[anchor][None]))
    return torch.stack([_information(x, y, bins, composed.dtype) for x, y in pairs], dim=1)


def _bin(tokens: Tensor, bins: int) -> Tensor:
    """Give ``[B, Q·D]`` int32 bins of each set's entries, between its own least and largest entry."""
    if bins < 1:
        raise ValueError(f"bins must be 1 or more, got {bins}")
    entries = tokens.flatten(1)
    lowest = entries.amin(dim=1, keepdim=True)  # amin and amax take a tenth of aminmax's time on a CPU
    span = entries.amax(dim=1, keepdim=True) - lowest
    if not span.isfinite().all():
        raise ValueError("mutual knowledge needs finite tokens; some are NaN, infinite or out of range")
    width = span / bins
    width = torch.where(width > 0, width, 1.0)  # one value only: all in the first bin
    return (entries - lowest).div_(width).to(torch.int32).clamp_(max=bins - 1)


def _information(first: Tensor, second: Tensor, bins: int, dtype: torch.dtype) -> Tensor:
    """Give ``[B]`` from bins ``[B, M]`` and ``[B, M]``, either of which may be ``[1, M]``."""
    size = max(len(first), len(second)) if len(first) and len(second) else 0
    offset = torch.arange(size, dtype=torch.int32, device=first.device)[:, None] * bins**2
    cells = torch.add(offset + second, first, alpha=bins)
    counts = torch.bincount(cells.flatten(), minlength=size * bins**2)
    joint = counts.view(size, bins, bins).to(dtype) / first.shape[1]
    apart = joint.sum(dim=2, keepdim=True) * joint.sum(dim=1, keepdim=True)
    return (joint * torch.log((joint + EPS) / (apart + EPS))).sum(dim=(1, 2))


def _same_entries(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    fits = first.ndim == 3 and second.ndim == 3 and first.shape[1:] == second.shape[1:]
    fits = fits and (len(first) == len(second) or 1 in (len(first), len(second)))
    if not fits or not first.shape[1:].numel():
        raise ValueError(
            f"expected two [B, Q, D] token sets, got {list(first.shape)} and {list(second.shape)}"
        )
    first, second = same_precision(first, second)
    return first, second
