"""Named random generators: every draw says what it is for, so a resumed run repeats it.

A generator is made from a seed and a path of names, such as ``generator(42, "order", epoch)``. Two paths give
independent streams and nothing depends on how many numbers were drawn before.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive_seed(seed: int, *names: str | int) -> int:
    """Derive a 63-bit seed from ``seed`` and a path of names."""
    text = "/".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """Make the NumPy generator of this path."""
    return np.random.default_rng(derive_seed(seed, *names))


def torch_generator(seed: int, *names: str | int) -> torch.Generator:
    """Make the torch CPU generator of this path."""
    import torch

    return torch.Generator().manual_seed(derive_seed(seed, *names))
