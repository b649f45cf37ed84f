"""Learned prompt tokens, as SPRC and TME put them before a text."""

from __future__ import annotations

import torch
from torch import nn

DEVIATION = 0.02
"""Of the start, the initializer range of BERT."""


def prompt_tokens(queries: int, hidden: int, generator: torch.Generator) -> nn.Parameter:
    """Make a prompt P ``[1, Q, H]`` with a start from N(0, 0.02²), drawn from ``generator``."""
    return nn.Parameter(torch.randn(1, queries, hidden, generator=generator) * DEVIATION)
