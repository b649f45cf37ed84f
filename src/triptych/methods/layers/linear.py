"""A linear layer whose start is drawn from a generator."""

from __future__ import annotations

import torch
from torch import nn


def linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """Make a linear layer with torch's usual start, drawn from ``generator``."""
    layer = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
    return restart(layer, generator)


def restart(layer: nn.Linear, generator: torch.Generator) -> nn.Linear:
    """Draw the start of a linear layer, weights and biases, in place."""
    bound = layer.in_features**-0.5
    nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
    nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    return layer
