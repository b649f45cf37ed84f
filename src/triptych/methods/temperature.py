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
    """

    def __init__(self, start: float, *, learnable: bool = False) -> None:
        super().__init__()
        self.start = start
        self.learned = nn.Parameter(torch.tensor(start)) if learnable else None

    def forward(self) -> float | Tensor:
        """Return τ."""
        return self.start if self.learned is None else self.learned.clamp(min=FLOOR)
