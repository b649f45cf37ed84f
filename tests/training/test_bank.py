"""The bank of counterfactuals: encoded once, named by content and recipe."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from triptych.backbones.token_cache import TokenCache
from triptych.errors import UsageError
from triptych.methods.registry import create
from triptych.training.bank import Intervention, build_bank
from triptych.triplets import Benchmark

NAMES = [f"plain-small-{colour}-circle" for colour in ("red", "green", "blue")]
Bank = Callable[[str], np.ndarray]


@pytest.fixture
def build(bench: Benchmark, small: Any, tmp_path: Any) -> Callable[..., tuple[Bank, TokenCache, int]]:
    """Build a bank in one cache; gives it, the cache, and how many variants were encoded for it."""
    cache = TokenCache(small, tmp_path / "cache")
    keys = cache.add_images(bench.images, NAMES, small)

    def make(names: list[str] = NAMES, *, seed: int = 0, **switches: Any) -> tuple[Bank, TokenCache, int]:
        method = create("intent", {"counterfactual_bank": 4, **switches}, small.shape)
        assert isinstance(method, Intervention)
        before = len(cache)
        bank = build_bank(method, names, bench.images, keys, cache, small, seed=seed)
        return bank, cache, len(cache) - before

    return make


def test_it_is_encoded_once(build: Callable[..., Any]) -> None:
    bank, cache, encoded = build()
    assert encoded == 12
    rows = np.concatenate([bank(name) for name in NAMES])
    assert len(set(rows.tolist())) == 12
    again, _, encoded = build([*NAMES[::-1], NAMES[0]])  # order and repeats do not matter
    assert encoded == 0
    for name in NAMES:
        np.testing.assert_array_equal(again(name), bank(name))
    more, _, encoded = build(counterfactual_bank=6)
    assert encoded == 6
    np.testing.assert_array_equal(more(NAMES[1])[:4], bank(NAMES[1]))
    tokens = cache.gather(rows)
    assert tokens.shape == (12, 4, 32)
    assert len(torch.unique(tokens.flatten(1), dim=0)) == 12


@pytest.mark.parametrize(
    "switches", [{"window_ratio": 0.25}, {"intervention": "blur"}, {"lambda_range": (0.3, 0.7)}, {"seed": 1}]
)
def test_another_recipe_or_seed_is_another_bank(build: Callable[..., Any], switches: dict[str, Any]) -> None:
    build()
    assert build(**switches)[2] == 12
    assert build(alpha=0.1, mu=0.9, temperature=0.2)[2] == 0  # these do not change a counterfactual


def test_other_references_are_another_bank(build: Callable[..., Any]) -> None:
    """The irrelevant picture of a variant is drawn from all references."""
    build()
    assert build(NAMES[:2])[2] == 8


def test_a_variant_is_the_methods_alteration(build: Callable[..., Any], bench: Benchmark, small: Any) -> None:
    """A grey counterfactual needs no draw: its tokens are those of the grey picture."""
    bank, cache, _ = build(intervention="grayscale")
    method = create("intent", {"intervention": "grayscale"}, small.shape)
    pixels = torch.from_numpy(small.preprocess(bench.images.load(NAMES[0])))[None]
    assert isinstance(method, Intervention)
    grey = method.counterfactual(pixels, pixels, small, torch.Generator())
    expected = small.encode_images(grey)[0].half().float()
    for row in bank(NAMES[0]):
        torch.testing.assert_close(cache.gather(np.array([row]))[0], expected)


def test_a_lone_reference_has_no_irrelevant_picture(build: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match="only one reference"):
        build(NAMES[:1])
