"""Checks of shapes that several objectives share."""

from __future__ import annotations

from torch import Tensor


def require_per_triplet(size: int, **values: Tensor | None) -> None:
    """Check values that each triplet has one of; ``None`` passes.

    Args:
        size: B.
        values: name to ``[B]``.

    Raises:
        ValueError: one of them is not ``[B]``; the message names it.
    """
    for name, value in values.items():
        if value is not None and value.shape != (size,):
            raise ValueError(f"{name} must be [{size}], a value per triplet, got {list(value.shape)}")
