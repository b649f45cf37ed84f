"""Losses are computed in float32 at least, whatever the features or the autocast; float64 stays float64."""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor


def full_precision(tensor: Tensor) -> Tensor:
    """Cast to float32 at least.

    Half precision rounds ``1 - 1e-7`` to 1, which turns the clamps of the losses into ``log 0``.
    """
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def same_precision(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Cast all tensors to their common type, float32 at least."""
    dtype = reduce(torch.promote_types, (tensor.dtype for tensor in tensors), torch.float32)
    return tuple(tensor.to(dtype) for tensor in tensors)


def no_autocast(device: torch.device) -> torch.autocast:
    """Give the context in which matrix products keep the precision of their inputs."""
    return torch.autocast(device.type, enabled=False)
