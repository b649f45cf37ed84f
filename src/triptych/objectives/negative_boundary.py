"""Negative boundary learning: where a query's negative vector n lies, away from query and target (ConeSep)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from triptych.objectives.precision import same_precision
from triptych.objectives.probability import Temperature, match_probabilities, positive_temperature, tempered
from triptych.objectives.reduction import restrict

IntraBounds = Literal["batch", "constants", "eq7"]
Signs = Literal["opposite", "plus", "minus", "zero"]

RELEASED_BOUNDS = (-0.007, -0.002)
"""Interval of the cosine of query and negative vector that the released code states."""


def batch_bounds(cosines: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return α₁ and α₂: the means of a batch's negative and of its positive cosines.

    Args:
        cosines: ``[B]`` :math:`\kappa_i = \langle c_i, n_i \rangle`.

    Returns:
        Two scalars without gradient, :math:`\alpha_1 \le 0 \le \alpha_2`; 0 where there are none.
    """
    below, above = cosines.detach().clamp(max=0), cosines.detach().clamp(min=0)
    lower = below.sum() / below.count_nonzero().clamp(min=1)
    return lower, above.sum() / above.count_nonzero().clamp(min=1)


def query_oriented(
    queries: Tensor,
    negatives: Tensor,
    clean: Tensor | None = None,
    *,
    bounds: IntraBounds = "batch",
    temperature: Temperature = 0.07,
) -> Tensor:
    r"""Keep each negative vector nearly orthogonal to its query (L_intra).

    .. math:: \ell_i = (\kappa_i - hi)_+ + (lo - \kappa_i)_+, \qquad \kappa_i = \langle c_i, n_i \rangle

    ``batch``, the paper's text: lo = α₁ and hi = α₂ of :func:`batch_bounds`. ``constants``, released: lo =
    -0.007, hi = -0.002, and the loss divided by τ. ``eq7``, as printed: lo = -α₂ and hi = -α₁, the
    mirrored interval.

    Args:
        queries: ``[B, D]`` unit rows c.
        negatives: ``[B, D]`` unit rows n.
        clean: ``[B]`` bool, the triplets that count; all by default.
        bounds: one of the above.
        temperature: τ > 0 of ``constants``; the other bounds use none.

    Returns:
        ``[B]`` loss per triplet, 0 where not clean; its mean over the batch is the mean over the clean.

    Raises:
        ValueError: the shapes do not fit, ``temperature`` is not positive, or ``bounds`` is unknown.

    Example:
        >>> queries, negatives = torch.eye(2), torch.tensor([[0.6, 0.8], [0.8, -0.6]])
        >>> query_oriented(queries, negatives, bounds="eq7")  # κ = 0.6, -0.6; interval [-0.6, 0.6]
        tensor([0., 0.])

    Source: ConeSep eq. 7; specification, section 11, row 4 (switch ``intra_bounds``).
    """
    queries, negatives = _pairs(queries, negatives)
    cosines = (queries * negatives).sum(dim=1)
    if bounds == "constants":
        low, high = RELEASED_BOUNDS
        values = _outside(cosines, low, high) / positive_temperature(temperature)
    elif bounds in ("batch", "eq7"):
        lower, upper = batch_bounds(cosines)
        values = _outside(cosines, lower, upper) if bounds == "batch" else _outside(cosines, -upper, -lower)
    else:
        raise ValueError(f'bounds must be "batch", "constants" or "eq7", got "{bounds}"')
    return values if clean is None else restrict(values, clean)


def query_oriented_released(queries: Tensor, negatives: Tensor, *, temperature: Temperature = 0.07) -> Tensor:
    r"""The released L_intra, whose broadcast sums over no coordinate: every product of every pair is bounded.

    .. math::
        \ell_i = \frac{1}{\tau B D} \sum_{j,d} (c_{id} n_{jd} - hi)_+ + (lo - c_{id} n_{jd})_+

    Each coordinate's product is drawn into [-0.007, -0.002], so the cosine of D coordinates into [-0.007 D,
    -0.002 D]: opposite to *all* queries, not orthogonal to its own. No B x B x D tensor is made: with the
    negatives sorted per coordinate, the products above a bound are a tail whose sum is a difference of
    cumulative sums, O(B D log B) in time and O(B D) in memory.

    Args:
        queries: ``[B, D]`` unit rows c.
        negatives: ``[B, D]`` unit rows n.
        temperature: τ > 0.

    Returns:
        ``[B]`` loss per query; all triplets count, as released.

    Raises:
        ValueError: the shapes do not fit, or ``temperature`` is not positive.

    Source: the released code; specification, section 11, row 4.
    """
    queries, negatives = _pairs(queries, negatives)
    low, high = RELEASED_BOUNDS
    ordered = negatives.T.sort(dim=1).values
    outside = _sum_above(queries.T, ordered, high) + _sum_above(-queries.T, ordered, -low)
    return outside.mean(dim=0) / len(negatives) / positive_temperature(temperature)


def target_oriented(
    similarity: Tensor,
    clean: Tensor | None = None,
    *,
    signs: Signs = "opposite",
    temperature: Temperature = 0.07,
) -> Tensor:
    r"""Push each negative vector away from its target and towards all others (L_inter).

    .. math::
        \ell_i = \frac1B \sum_j \log\bigl(1 + e^{T_{ij} \sigma_{ij} / \tau}\bigr), \qquad
        \sigma_{ij} = \max_q \langle n_i, t_{j,q} \rangle

    The signs T are ``opposite``: 1 on the diagonal and -1 off it; or, ConeSep's ablations, ``plus``: 1
    everywhere (D6), ``minus``: -1 everywhere (D7), ``zero`` (D8: the constant log 2).

    Args:
        similarity: ``[B, B]`` σ, rows = negative vectors, columns = targets.
        clean: ``[B]`` bool, the triplets that count; all by default.
        signs: one of the above.
        temperature: τ > 0.

    Returns:
        ``[B]`` loss per triplet, 0 where not clean; its mean over the batch is the mean over the clean.

    Raises:
        ValueError: ``similarity`` is not square, ``temperature`` not positive, or ``signs`` unknown.

    Source: ConeSep eq. 6, table 3; specification, section 11, row 5, and section 12.
    """
    logits = tempered(similarity, temperature)
    values = functional.softplus(_signs(logits, signs) * logits).mean(dim=1)
    return values if clean is None else restrict(values, clean)


def target_oriented_released(similarity: Tensor, *, temperature: Temperature = 0.07) -> Tensor:
    r"""The released L_inter: eq. 6 on softmax probabilities in place of logits, summed over the targets.

    .. math::
        \ell_i = \sum_j \log\bigl(1 + e^{T_{ij} \pi_{ij}}\bigr),
        \qquad \pi_{i\cdot} = \mathrm{softmax}(\sigma_{i\cdot}/\tau)

    About B log 2 with a very small gradient. All triplets count, as released.

    Args:
        similarity: ``[B, B]`` σ, rows = negative vectors, columns = targets.
        temperature: τ > 0.

    Returns:
        ``[B]`` loss per triplet.

    Raises:
        ValueError: ``similarity`` is not square, or ``temperature`` not positive.

    Source: the released code; specification, section 11, row 5.
    """
    probabilities = match_probabilities(similarity, temperature)
    return functional.softplus(_signs(probabilities, "opposite") * probabilities).sum(dim=1)


def _pairs(queries: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor]:
    if queries.ndim != 2 or queries.shape != negatives.shape:
        raise ValueError(f"expected [B, D] twice, got {list(queries.shape)} and {list(negatives.shape)}")
    queries, negatives = same_precision(queries, negatives)
    return queries, negatives


def _outside(cosines: Tensor, low: float | Tensor, high: float | Tensor) -> Tensor:
    return (cosines - high).relu() + (low - cosines).relu()


def _signs(like: Tensor, signs: Signs) -> Tensor:
    if signs == "opposite":
        return 2 * torch.eye(len(like), dtype=like.dtype, device=like.device) - 1
    constants = {"plus": 1.0, "minus": -1.0, "zero": 0.0}
    if signs not in constants:
        raise ValueError(f'signs must be "opposite", "plus", "minus" or "zero", got "{signs}"')
    return torch.full_like(like, constants[signs])


def _sum_above(factors: Tensor, ordered: Tensor, bound: float) -> Tensor:
    r"""Sum what the products exceed a bound by, :math:`\sum_j (a_{di} n_{dj} - b)_+`.

    Args:
        factors: ``[D, B]`` a.
        ordered: ``[D, N]`` n, rows ascending.
        bound: b, not 0.

    Returns:
        ``[D, B]``.
    """
    count = ordered.shape[1]
    sums = functional.pad(ordered.cumsum(dim=1), (1, 0))  # of the first 0 ... N
    threshold = bound / factors.detach().abs()
    values = ordered.detach().contiguous()
    up = factors >= 0  # then the largest n exceed the bound, else the smallest
    split = torch.where(
        up,
        torch.searchsorted(values, threshold.contiguous(), right=True),
        torch.searchsorted(values, -threshold.contiguous()),
    )
    head = sums.gather(1, split)
    total = torch.where(up, sums[:, -1:] - head, head)
    exceeding = torch.where(up, count - split, split).to(factors.dtype)
    return factors * total - bound * exceeding
