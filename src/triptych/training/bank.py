"""A bank of counterfactuals: k altered variants of each reference, encoded once and kept in the token cache."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from triptych.backbones.base import Backbone
from triptych.backbones.token_cache import Progress, TokenCache
from triptych.errors import UsageError
from triptych.randomness import generator, torch_generator
from triptych.triplets import ImageStore


@runtime_checkable
class Intervention(Protocol):
    """A method that alters references: how many cached variants it wants, by which recipe, and the alteration."""

    counterfactual_bank: int
    counterfactual_recipe: str

    def counterfactual(
        self,
        reference_pixels: Tensor,
        irrelevant_pixels: Tensor,
        backbone: Backbone,
        generator: torch.Generator,
    ) -> Tensor:
        """Return the altered pixels, ``[1, 3, H, W]`` in [0, 1]."""
        ...


def build_bank(
    intervention: Intervention,
    references: Sequence[str],
    images: ImageStore,
    keys: Mapping[str, bytes],
    cache: TokenCache,
    backbone: Backbone,
    *,
    seed: int,
    progress: Progress | None = None,
) -> Callable[[str], np.ndarray]:
    """Encode k counterfactuals of each reference where they are missing.

    The irrelevant picture of a variant is another reference, drawn by name, so the bank does not depend on order.

    Args:
        intervention: the method; another recipe gets other keys.
        references: image ids.
        images: the pictures.
        keys: image id to cache key.
        cache: where the tokens go.
        backbone: encodes.
        seed: of the draws.
        progress: called with (done, total).

    Returns:
        A function from a reference id to the cache rows ``[k]`` of its variants.

    Raises:
        UsageError: there are fewer than two references.
    """
    pool = sorted(set(references))
    variants, recipe = intervention.counterfactual_bank, intervention.counterfactual_recipe
    if len(pool) < 2:
        raise UsageError("a counterfactual needs an irrelevant picture, and there is only one reference")
    pool_hash = hashlib.sha256("\n".join(keys[name].hex() for name in pool).encode()).hexdigest()
    load = lru_cache(maxsize=256)(lambda name: torch.from_numpy(backbone.preprocess(images.load(name)))[None])

    def make(name: str, variant: int) -> np.ndarray:
        chosen = int(generator(seed, "irrelevant", keys[name].hex(), variant).integers(len(pool) - 1))
        irrelevant = pool[chosen] if pool[chosen] != name else pool[-1]
        draws = torch_generator(seed, "counterfactual", keys[name].hex(), variant)
        return intervention.counterfactual(load(name), load(irrelevant), backbone, draws)[0].numpy()

    def key(name: str, variant: int) -> bytes:
        return hashlib.sha256(f"{keys[name].hex()}/{recipe}/{seed}/{pool_hash}/{variant}".encode()).digest()

    jobs = {key(n, v): (lambda n=n, v=v: make(n, v)) for n in pool for v in range(variants)}
    cache.add_derived(jobs, backbone, progress)
    rows = {name: cache.rows([key(name, variant) for variant in range(variants)]) for name in pool}
    return rows.__getitem__
