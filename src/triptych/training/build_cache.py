"""Fill a token cache with all that training and evaluation on a data set read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from triptych.backbones.base import Backbone
from triptych.backbones.token_cache import TokenCache, find_keys
from triptych.errors import UsageError
from triptych.methods.registry import create as create_method
from triptych.training.bank import Intervention, build_bank, missing_variants
from triptych.triplets import Benchmark


def build_cache(
    cache: TokenCache,
    data: Benchmark,
    backbone: Backbone,
    *,
    bank: int = 0,
    method: Mapping[str, Any] | None = None,
    stages: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> None:
    """Encode every picture that training and evaluation on a benchmark read, so that they need no vision tower.

    Args:
        cache: where the tokens go.
        data: whose train triplets and splits.
        backbone: encodes.
        bank: counterfactuals of each reference, as ``method.counterfactual_bank``; 0 = none.
        method: ``{"name": ..., switches}`` of the method that alters references; ``intent`` by default.
        stages: called with (what is being done, done, total).

    Raises:
        DataError: pictures cannot be read, or the disk cannot hold the tokens; that is said before it begins.
        UsageError: the method has no counterfactuals, or there are fewer than two references.
    """
    parts = [part for query_sets in data.splits.values() for part in query_sets]
    names = {
        *data.train.image_ids(),
        *(name for part in parts for name in (*part.gallery, *part.queries.column("reference"))),
    }
    references = sorted(set(data.train.column("reference")))
    intervention = _intervention(method or {}, bank, backbone) if bank else None
    if intervention is not None:  # both must fit before either begins
        keys, _ = find_keys(data.images, sorted(names))
        images = sum(key not in cache for key in set(keys.values()))
        cache.require_space(images + missing_variants(intervention, references, keys, cache))
    keys = cache.add_images(data.images, sorted(names), backbone, lambda d, t: stages("image tokens", d, t))
    if intervention is not None:
        build_bank(
            intervention,
            references,
            data.images,
            keys,
            cache,
            backbone,
            progress=lambda d, t: stages("counterfactual tokens", d, t),
        )


def _intervention(method: Mapping[str, Any], bank: int, backbone: Backbone) -> Intervention:
    switches = {key: value for key, value in method.items() if key != "name"}
    name = str(method.get("name", "intent"))
    made = create_method(name, {**switches, "counterfactual_bank": bank}, backbone.shape)
    if not isinstance(made, Intervention):
        raise UsageError(f"method {name} has no counterfactuals: leave out --bank")
    return made
