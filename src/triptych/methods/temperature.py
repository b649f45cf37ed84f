"""Softmax temperature of a method: a constant, or a learned scalar with a floor."""

from __future__ import annotations

import torch
from torch import Tensor, nn

FLOOR = 0.01
"""A learned temperature is not used below this (TME)."""


class Temperature(nn.Module):
    """Gives τ when called: the constant, or the learned scalar clamped to at least 0.01.

    Args:
        start: the constant, or where learning starts; positive.
        learnable: learn it.
        floor: clamp the learned scalar there instead; 0 = no clamp, so it may turn negative.
    """

    def __init__(self, start: float, *, learnable: bool = False, floor: float = FLOOR) -> None:
        super().__init__()
        self.start, self.floor = start, floor
        self.learned = nn.Parameter(torch.tensor(start)) if learnable else None

    def forward(self) -> float | Tensor:
        """Return τ."""
        if self.learned is None:
            return self.start
        return self.learned.clamp(min=self.floor) if self.floor else self.learned
