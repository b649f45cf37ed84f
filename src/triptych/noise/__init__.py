"""Noise: corrupt triplets on purpose, and write down which."""

from triptych.noise.corruption import Corruption
from triptych.noise.inject import KINDS, inject, mix_sources, permuted_sources
from triptych.noise.manifest import NoiseManifest

__all__ = ["KINDS", "Corruption", "NoiseManifest", "inject", "mix_sources", "permuted_sources"]
