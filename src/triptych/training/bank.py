"""A bank of counterfactuals: k altered variants of each reference, encoded once and kept in the token cache."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from triptych.backbones.base import Backbone
from triptych.backbones.token_cache import Progress, TokenCache
from triptych.errors import UsageError
from triptych.files import write_json
from triptych.randomness import generator, torch_generator
from triptych.triplets import ImageStore

_BANKS = "banks"
BANK_SEED = 0
"""Runs of all seeds share a bank."""


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
    seed: int = BANK_SEED,
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
    pool_hash = _pool_hash(pool, keys)
    load = lru_cache(maxsize=256)(lambda name: torch.from_numpy(backbone.preprocess(images.load(name)))[None])

    def make(name: str, variant: int) -> np.ndarray:
        chosen = int(generator(seed, "irrelevant", keys[name].hex(), variant).integers(len(pool) - 1))
        irrelevant = pool[chosen] if pool[chosen] != name else pool[-1]
        draws = torch_generator(seed, "counterfactual", keys[name].hex(), variant)
        return intervention.counterfactual(load(name), load(irrelevant), backbone, draws)[0].numpy()

    def key(name: str, variant: int) -> bytes:
        return _key(keys[name], recipe, seed, pool_hash, variant)

    jobs = {key(n, v): (lambda n=n, v=v: make(n, v)) for n in pool for v in range(variants)}
    cache.add_derived(jobs, backbone, progress)
    _note(cache.folder, f"{recipe}/{seed}/{pool_hash}", recipe, len({keys[name] for name in pool}), variants)
    rows = {name: cache.rows([key(name, variant) for variant in range(variants)]) for name in pool}
    return rows.__getitem__


def read_banks(folder: Path) -> list[dict[str, Any]]:
    """List the banks of a cache's folder: ``recipe``, ``references``, ``variants`` and ``entries`` each."""
    found = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted((folder / _BANKS).glob("*.json"))
    ]
    return [{**bank, "entries": bank["references"] * bank["variants"]} for bank in found]


def _note(folder: Path, identity: str, recipe: str, references: int, variants: int) -> None:
    """Write down that a bank is in the cache, with the most variants that it was ever asked for."""
    path = folder / _BANKS / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"
    if path.is_file():
        variants = max(variants, int(json.loads(path.read_text(encoding="utf-8"))["variants"]))
    write_json(path, {"recipe": recipe, "references": references, "variants": variants})


def missing_variants(
    intervention: Intervention, references: Sequence[str], keys: Mapping[str, bytes], cache: TokenCache
) -> int:
    """Count the variants that a bank lacks; a picture without a key, which cannot be read, is left out."""
    known = [name for name in references if name in keys]
    pool_hash = _pool_hash(known, keys)
    recipe, variants = intervention.counterfactual_recipe, intervention.counterfactual_bank
    wanted = {
        _key(keys[name], recipe, BANK_SEED, pool_hash, variant)
        for name in known
        for variant in range(variants)
    }
    return sum(key not in cache for key in wanted)


def _pool_hash(pool: Sequence[str], keys: Mapping[str, bytes]) -> str:
    return hashlib.sha256("\n".join(keys[name].hex() for name in pool).encode()).hexdigest()


def _key(image: bytes, recipe: str, seed: int, pool_hash: str, variant: int) -> bytes:
    return hashlib.sha256(f"{image.hex()}/{recipe}/{seed}/{pool_hash}/{variant}".encode()).digest()
