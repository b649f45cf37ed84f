"""Partitioned contrastive: one loss for the triplets held clean, another for those held noisy (TME)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from triptych.objectives.info_nce import info_nce
from triptych.objectives.probability import Temperature, square
from triptych.objectives.reduction import restrict
from triptych.objectives.robust_contrastive import robust_contrastive

PartLoss = Literal["rcl", "infonce", "none"]

_LOSSES: dict[str, Callable[..., Tensor]] = {"rcl": robust_contrastive, "infonce": info_nce}


def partitioned_contrastive(
    similarity: Tensor,
    clean: Tensor,
    *,
    positive: PartLoss = "rcl",
    negative: PartLoss = "none",
    weight: float = 1.0,
    temperature: Temperature = 0.07,
) -> Tensor:
    r"""Contrast clean and noisy triplets by a loss each, every query against all targets of the batch.

    .. math::
        \ell_i = w \frac{B}{|C|}\,[i \in C]\; P_i + (1 - w) \frac{B}{|\bar C|}\,[i \notin C]\; N_i,
        \qquad C = \{i : \text{clean}\}

    The mean over the batch is :math:`w \operatorname{mean}_C P + (1-w) \operatorname{mean}_{\bar C} N`, each
    part divided by its own number of rows; a part without rows gives 0.

    Args:
        similarity: ``[B, B]`` query-by-target similarities, annotated pairs on the diagonal; computed in
            float32 at least.
        clean: ``[B]`` bool, the triplets that are trusted.
        positive: P, the loss of the clean rows: ``rcl`` is :func:`~triptych.objectives.robust_contrastive`,
            ``infonce`` is :func:`~triptych.objectives.info_nce`.
        negative: N, the loss of the noisy rows.
        weight: w in [0, 1].
        temperature: softmax temperature τ > 0; may be learnable.

    Returns:
        ``[B]`` loss per triplet; reduce with :func:`~triptych.objectives.mean`.

    Raises:
        ValueError: ``similarity`` is not square, ``clean`` not ``[B]`` bool, ``temperature`` not positive,
            ``weight`` not in [0, 1], a loss is unknown, or both losses are ``none``.

    Example:
        >>> partitioned_contrastive(torch.eye(2), torch.tensor([True, False]), temperature=1.0)
        tensor([0.6265, 0.0000])

    Source: TME (CVPR 2025); specification, section 8. Its release clamps p to at least 1e-7 under ``infonce``
    too, which takes the gradient away from the worst pairs; here the logarithm is exact.
    """
    unknown = {positive, negative} - {*_LOSSES, "none"}
    if unknown:
        raise ValueError(f'a loss must be "rcl", "infonce" or "none", got "{unknown.pop()}"')
    if positive == negative == "none":
        raise ValueError("positive and negative are both none: there is nothing to minimise")
    if not 0 <= weight <= 1:
        raise ValueError(f"weight must be in [0, 1], got {weight}")
    if clean.dtype != torch.bool:
        raise ValueError(f"clean must be a bool mask, got {clean.dtype}")
    s = square(similarity)
    values = s.new_zeros(len(s))
    for name, share, rows in ((positive, weight, clean), (negative, 1 - weight, ~clean)):
        if name != "none":
            values = values + share * restrict(_LOSSES[name](s, temperature=temperature), rows)
    return values
