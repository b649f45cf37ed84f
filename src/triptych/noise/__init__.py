"""Noise: corrupt triplets on purpose, and write down which."""

from triptych.noise.corruption import Corruption
from triptych.noise.curriculum import lighter, rate_of_epoch
from triptych.noise.inject import KINDS, inject, mix_sources, permuted_sources
from triptych.noise.manifest import NoiseManifest

__all__ = [
    "KINDS",
    "Corruption",
    "NoiseManifest",
    "inject",
    "lighter",
    "mix_sources",
    "permuted_sources",
    "rate_of_epoch",
]
