"""Fidelity: how far a triplet's similarity lies above the floor of random inputs, and who falls short."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from triptych.objectives.division import lowest_losses
from triptych.objectives.precision import full_precision
from triptych.objectives.probability import square

FidelityForm = Literal["smoothstep", "released", "eq3", "x2_1mx_nomax"]
PartitionRule = Literal["threshold", "quantile"]

LEAST_SPAN = 1e-6
"""Least distance between floor and clean level, so that a batch of equal similarities divides by something."""


def empirical_boundary(similarity: Tensor) -> Tensor:
    r"""Estimate the floor 𝔹 from the batch itself: the mean of :math:`s_{ij}, j \ne i`.

    Args:
        similarity: ``[B, B]``, annotated pairs on the diagonal.

    Returns:
        A scalar without gradient; 0 for a batch of one, which has no other pair.

    Raises:
        ValueError: ``similarity`` is not square.

    Source: ConeSep table 5, "w/ Empirical"; specification, section 12.
    """
    s = square(similarity.detach())
    own = torch.eye(len(s), dtype=torch.bool, device=s.device)
    return s.masked_fill(own, 0.0).sum() / max(s.numel() - len(s), 1)


def clean_level(matched: Tensor, *, quantile: float = 0.95) -> Tensor:
    r"""Return the batch's clean level :math:`s_{hi}`, a linearly interpolated quantile of ``[B]`` similarities."""
    return torch.quantile(full_precision(matched.detach()), quantile)


def fidelity(matched: Tensor, boundary: float | Tensor, *, form: FidelityForm = "smoothstep") -> Tensor:
    r"""Grade each triplet by how far its similarity exceeds the floor 𝔹 of random inputs.

    .. math::
        \text{smoothstep: } f = x^2 (3 - 2x), \quad
        x_i = \mathrm{clip}\Bigl(\frac{s_{ii} - \mathbb{B}}{\max(s_{hi} - \mathbb{B}, 10^{-6})}, 0, 1\Bigr)

    It grows with the similarity and :math:`f(\tfrac12) = \tfrac12`, so a threshold of 0.5 asks whether a
    similarity is nearer to the batch's clean level than to the floor. With :math:`u = [s - \mathbb{B}]_+` the
    other forms are

    .. math::
        \text{released: } x^2 (1 - x^2),\ x = u / \max u \qquad
        \text{eq3: } u^2 (u - 1) \qquad \text{x2\_1mx\_nomax: } u^2 (1 - u)

    ``released`` is 0 at the floor and at the batch's *best* match alike, and never above 0.25; ``eq3``, as
    printed, is never positive, so a threshold makes everything noisy; ``x2_1mx_nomax`` grows up to u = 2/3.

    Args:
        matched: ``[B]`` similarities of the annotated pairs, :math:`s_{ii}`; no gradient goes back.
        boundary: the floor 𝔹; 0 for ConeSep's ablation D4.
        form: one of the above.

    Returns:
        ``[B]``, in [0, 1] but for ``eq3``; float32 at least. Where nothing exceeds the floor all are 0 (the
        released code gives NaN).

    Raises:
        ValueError: ``matched`` is not a vector, or ``form`` is unknown.

    Example:
        >>> fidelity(torch.tensor([0.0, 0.1, 0.35, 0.6, 0.6]), 0.1)
        tensor([0.0000, 0.0000, 0.5000, 1.0000, 1.0000])

    Source: ConeSep eq. 3; specification, section 11, row 1.
    """
    if matched.ndim != 1:
        raise ValueError(f"expected [B] similarities of the annotated pairs, got {list(matched.shape)}")
    matched = full_precision(matched.detach())
    above = (matched - boundary).clamp(min=0)
    if form == "smoothstep":
        x = (above / (clean_level(matched) - boundary).clamp(min=LEAST_SPAN)).clamp(max=1)
        return x.square() * (3 - 2 * x)
    if form == "released":
        squared = (above / above.amax().clamp(min=torch.finfo(above.dtype).tiny)).square()
        return squared * (1 - squared)
    if form == "eq3":
        return above.square() * (above - 1)
    if form == "x2_1mx_nomax":
        return above.square() * (1 - above)
    raise ValueError(f'form must be "smoothstep", "released", "eq3" or "x2_1mx_nomax", got "{form}"')


def low_fidelity(fidelity: Tensor, *, omega: float = 0.5, rule: PartitionRule = "threshold") -> Tensor:
    r"""Pick the noisy set 𝒩 of a batch.

    ``threshold``, the paper's text: :math:`f_i < \omega`. ``quantile``, released: the
    :math:`\lfloor \omega B \rfloor` lowest, whatever their fidelity, so that half of a clean batch is noisy too;
    among equals the first go first.

    Args:
        fidelity: ``[B]`` of :func:`fidelity`; random numbers with ``quantile`` give a random share of the batch
            (ConeSep's ablation D5, switch ``random``).
        omega: ω, a fidelity or a share in [0, 1].
        rule: ``threshold`` or ``quantile``.

    Returns:
        ``[B]`` bool, true for the noisy.

    Raises:
        ValueError: ``omega`` is not in [0, 1], or ``rule`` is unknown.

    Example:
        >>> low_fidelity(torch.tensor([0.9, 0.1, 0.7, 0.8]), rule="quantile")
        tensor([False,  True,  True, False])

    Source: ConeSep, section 3.2; specification, section 11, row 2 (switch ``partition``).
    """
    if not 0 <= omega <= 1:
        raise ValueError(f"omega must be in [0, 1], got {omega}")
    if rule == "threshold":
        return fidelity < omega
    if rule == "quantile":
        return ~lowest_losses(-fidelity, noisy=omega)
    raise ValueError(f'rule must be "threshold" or "quantile", got "{rule}"')
