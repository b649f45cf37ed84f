"""A noise curriculum: the same manifest, but less of it at first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from triptych.errors import UsageError
from triptych.noise.manifest import NoiseManifest
from triptych.randomness import generator


def lighter(manifest: NoiseManifest, ratio: float) -> NoiseManifest:
    """Keep as many corruptions as make a share of the triplets wrong; a lower share is a part of a higher one.

    Args:
        manifest: all corruptions.
        ratio: wrong triplets of all, in [0, 1].

    Raises:
        UsageError: the manifest has fewer.
    """
    wanted = int(ratio * manifest.num_triplets)
    there = len(manifest.corruptions)
    if wanted > there:
        # fixed points make the real rate a little lower than the asked one, which is no mistake of the user's
        if ratio > manifest.ratio_asked:
            raise UsageError(
                f"a curriculum up to {ratio:g} needs a manifest of that rate; this one has {manifest.ratio_real:.3f}"
            )
        wanted = there
    kept = generator(manifest.seed, "curriculum").permutation(there)[:wanted]
    return replace(manifest, corruptions=tuple(manifest.corruptions[i] for i in sorted(kept.tolist())))


def rate_of_epoch(rates: Sequence[float], epoch: int, epochs: int) -> float:
    """Return the rate of an epoch: each of the rates for an equal part of the epochs.

    Example:
        >>> [rate_of_epoch((0.2, 0.5, 0.8), epoch, 6) for epoch in range(6)]
        [0.2, 0.2, 0.5, 0.5, 0.8, 0.8]
    """
    return rates[min(epoch * len(rates) // epochs, len(rates) - 1)]
