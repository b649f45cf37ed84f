"""InfoNCE: pull the annotated pair together and push all others apart; the loss that memorises noise."""

from __future__ import annotations

import torch
from torch import Tensor

from triptych.objectives.probability import Temperature, tempered


def info_nce(similarity: Tensor, *, temperature: Temperature = 0.07) -> Tensor:
    r"""Cross-entropy of each query over the batch's targets, the annotated one being right.

    .. math:: \ell_i = -\log p_{ii}, \qquad p_{i\cdot} = \mathrm{softmax}(s_{i\cdot}/\tau)

    Its gradient grows with the loss of a pair, so a wrong annotation pulls hardest. For image-text alignment
    use both directions: ``symmetric(info_nce, similarity)``.

    Args:
        similarity: ``[B, B]`` query-by-target similarities, annotated pairs on the diagonal; computed in
            float32 at least.
        temperature: softmax temperature τ > 0.

    Returns:
        ``[B]`` loss per triplet; reduce with :func:`~triptych.objectives.mean`.

    Raises:
        ValueError: ``similarity`` is not square, or ``temperature`` is not positive.

    Example:
        >>> info_nce(torch.eye(2), temperature=1.0)  # log(1 + 1 / e)
        tensor([0.3133, 0.3133])

    Source: van den Oord et al. 2018; specification, section 4 (``L_itc``).
    """
    return -torch.log_softmax(tempered(similarity, temperature), dim=1).diagonal()
