"""The one score of this library: how well a query vector matches a target's best vector."""

from __future__ import annotations

import torch
from torch import Tensor


def similarity(queries: Tensor, targets: Tensor) -> Tensor:
    r"""Score every query against every target by its best-matching vector.

    .. math:: s_{ij} = \max_q \langle c_i, t_{j,q} \rangle

    Args:
        queries: ``[B, D]`` unit rows c.
        targets: ``[N, Q, D]`` unit rows t.

    Returns:
        ``[B, N]`` in [-1, 1]; float32 at least, whatever the input or autocast (float64 stays float64).

    Raises:
        ValueError: the shapes do not fit.

    Source: specification, section 0. Used in training, evaluation and search alike.
    """
    if queries.ndim != 2 or targets.ndim != 3 or queries.shape[1] != targets.shape[2]:
        raise ValueError(
            f"expected [B, D] and [N, Q, D], got {list(queries.shape)} and {list(targets.shape)}"
        )
    dtype = torch.promote_types(torch.promote_types(queries.dtype, targets.dtype), torch.float32)
    with torch.autocast(queries.device.type, enabled=False):
        flat = targets.to(dtype).flatten(0, 1)
        scores = queries.to(dtype) @ flat.T
    return scores.view(len(queries), *targets.shape[:2]).amax(dim=2)
