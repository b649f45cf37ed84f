"""BLIP-2: its tower, its words, where its weights are looked for, and weights that cannot be used."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.testing import assert_close

from triptych.backbones.preprocessing import CLIP_MEAN, CLIP_STD
from triptych.backbones.registry import NAMES, config_class, configure, create_backbone, settled
from triptych.errors import DataError, UsageError

SMALL = {
    "image_size": 28,
    "image_width": 24,
    "vision_layers": 3,
    "vision_heads": 4,
    "vision_intermediate": 48,
    "queries": 5,
    "hidden": 24,
    "layers": 2,
    "heads": 4,
    "intermediate": 32,
    "dim": 16,
}


@pytest.fixture(scope="module")
def tiny(shared: Path) -> Path:
    return shared / "golden" / "blip2_tiny"


@pytest.fixture
def copied(tiny: Path, tmp_path: Path) -> Path:
    """A copy of the weights that a test may spoil."""
    (tmp_path / "weights").mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(tiny / name, tmp_path / "weights" / name)
    return tmp_path / "weights"


@pytest.fixture(scope="module")
def drawn() -> Any:
    return create_backbone({"name": "blip2", "weights": None, "sizes": SMALL}, seed=1).eval()


def load(folder: Path, **settings: Any) -> Any:
    return create_backbone({"name": "blip2", "weights": str(folder), **settings}).eval()


@pytest.mark.parametrize("trained_blocks", [0, 1])
@torch.no_grad()
def test_tokens_are_cached_before_the_last_layer_norm(tiny: Path, trained_blocks: int) -> None:
    """What transformers gives is `vision` of what is cached, in float64 to the last bit."""
    from transformers import Blip2ForImageTextRetrieval

    original: Any = Blip2ForImageTextRetrieval.from_pretrained(tiny).double().eval()
    backbone = load(tiny, trained_blocks=trained_blocks).double()
    pixels = torch.rand(3, 3, 28, 28, dtype=torch.float64)
    given = (pixels - backbone.pixel_mean[:, None, None]) / backbone.pixel_std[:, None, None]
    tokens = backbone.encode_images(pixels)
    expected = original.vision_model(pixel_values=given).last_hidden_state
    assert_close(backbone.vision(tokens), expected, atol=1e-12, rtol=0)
    assert (tokens - expected).abs().max() > 0.1


def test_the_tower_is_frozen_and_its_layer_norm_is_not(tiny: Path) -> None:
    backbone = load(tiny, trained_blocks=1).train()
    trained = {name for name, value in backbone.named_parameters() if value.requires_grad}
    assert {"ln_vision.weight", "blocks.0.mlp.fc1.weight", "embeddings.word_embeddings.weight"} <= trained
    assert not any(name.startswith("tower.") for name in trained)
    assert not any(name.startswith("tower.") for name in backbone.trained_state())
    assert not backbone.tower.training
    assert backbone.qformer.training
    other = load(tiny)
    assert other.fingerprint != backbone.fingerprint  # its tokens are others
    assert other.fingerprint == load(tiny).fingerprint


@torch.no_grad()
def test_words(drawn: Any) -> None:
    """[CLS] a red dress [SEP], padded to 32; 40 words are cut, [SEP] kept."""
    ids, mask = drawn.tokenise(["a red dress", " ".join(["red"] * 40), ""])
    assert ids.shape == mask.shape == (3, 32)
    assert ids[0, :6].tolist() == [101, 1037, 2417, 4377, 102, 0]
    assert mask.sum(dim=1).tolist() == [5, 32, 2]
    assert ids[1, -1] == 102
    assert drawn.tokenise.tokenizer.get_vocab()["[DEC]"] == 30_522
    assert drawn.text_pieces(["a red dress", ""]) == [
        ["[CLS]", "a", "red", "dress", "[SEP]"],
        ["[CLS]", "[SEP]"],
    ]
    embedded, seen = drawn.word_embeddings(["a red dress"])
    assert embedded.shape == (1, 32, 24)
    assert int(seen.sum()) == 5
    table = drawn.embeddings.word_embeddings.weight
    assert_close(embedded[0, 1], table[1037])
    assert not embedded[0, 5:].any()  # the row of padding
    assert_close(drawn.positioned(embedded)[0, 7], drawn.embeddings.position_embeddings.weight[7])


def test_vit_l_is_clips_without_its_last_block() -> None:
    config: Any = configure("blip2-vitl", {"weights": None})
    sizes = config.sizes
    assert (sizes.tower, sizes.vision_layers, sizes.image_width, sizes.vision_heads) == ("clip", 23, 1024, 16)
    small = {**SMALL, "tower": "clip", "vision_activation": "quick_gelu"}
    backbone: Any = create_backbone({"name": "blip2-vitl", "weights": None, "sizes": small})
    tokens = backbone.encode_images(torch.rand(2, 3, 28, 28))
    assert tokens.shape == (2, 5, 24)
    assert backbone.compose(tokens, ["red", "blue"]).vector.shape == (2, 16)
    with pytest.raises(UsageError, match="weights"):
        configure("blip2-vitl", {})


def test_the_default_sizes_are_those_of_the_published_model() -> None:
    """1.17 G parameters (specification 2.7), counted without memory; the matching head is not among them."""
    with torch.device("meta"):
        backbone: Any = create_backbone({"name": "blip2", "weights": None})
    total = sum(value.numel() for value in backbone.parameters())
    assert total == pytest.approx(1_172e6, rel=2e-3)
    shape = backbone.shape
    assert (shape.queries, shape.dim, shape.hidden) == (32, 256, 768)
    assert (shape.image_tokens, shape.image_width, shape.image_size) == (257, 1408, 224)
    assert backbone.default_learning_rate == 1e-5


def published(image: Image.Image) -> np.ndarray:
    """The published pipeline, written down anew: pad to 1.25, resize, crop, to floats, normalise."""
    width, height = image.size
    if max(width, height) / min(width, height) >= 1.25:
        goal = max(width, height) / 1.25
        right = max(int((goal - width) / 2), 0)
        below = max(int((goal - height) / 2), 0)
        wide = np.zeros((height + 2 * below, width + 2 * right, 3), dtype=np.uint8)
        wide[below : below + height, right : right + width] = np.asarray(image)
        image = Image.fromarray(wide)
    width, height = image.size
    short, long = sorted((width, height))
    scaled = int(224 * long / short)
    image = image.resize((224, scaled) if width <= height else (scaled, 224), Image.Resampling.BICUBIC)
    top, left = round((image.height - 224) / 2.0), round((image.width - 224) / 2.0)
    pixels = np.asarray(image)[top : top + 224, left : left + 224].transpose(2, 0, 1)
    means = np.array([0.48145466, 0.4578275, 0.40821073], dtype=np.float32)
    deviations = np.array([0.26862954, 0.26130258, 0.27577711], dtype=np.float32)
    given = pixels.astype(np.float32) / np.float32(255)
    return (given - means[:, None, None]) / deviations[:, None, None]


@pytest.mark.parametrize(
    "size",
    [(224, 224), (300, 227), (227, 300), (640, 480), (100, 451), (451, 100), (225, 224), (50, 60), (1, 9)],
)
def test_preprocessing_is_the_published_one_bit_for_bit(size: tuple[int, int]) -> None:
    random = np.random.default_rng(sum(size))
    image = Image.fromarray(random.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))
    with torch.device("meta"):
        backbone: Any = create_backbone({"name": "blip2", "weights": None})
    pixels = torch.from_numpy(backbone.preprocess(image))
    mean, std = map(torch.tensor, (CLIP_MEAN, CLIP_STD))
    found = (pixels - mean[:, None, None]) / std[:, None, None]
    np.testing.assert_array_equal(found.numpy(), published(image))


def change_config(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


def change_weights(folder: Path, change: Callable[[dict[str, Tensor]], None]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors")


def test_weights_of_another_architecture_are_named(copied: Path) -> None:
    change_config(copied, lambda config: config["qformer_config"].update(use_qformer_text_input=False))
    with pytest.raises(DataError, match="this Q-Former reads no text"):
        load(copied)
    change_config(copied, lambda config: config.update(model_type="clip"))
    with pytest.raises(DataError, match=r'another architecture: "clip", not "blip-2"'):
        load(copied)
    (copied / "config.json").write_text("{")
    with pytest.raises(DataError, match="not valid JSON"):
        load(copied)


def test_missing_unknown_and_misshaped_tensors_are_counted_and_listed(copied: Path) -> None:
    def spoil(weights: dict[str, Tensor]) -> None:
        del weights["query_tokens"]
        weights["vision_projection.weight"] = torch.zeros(32, 5)
        weights["surplus"] = torch.zeros(1)

    change_weights(copied, spoil)
    with pytest.raises(DataError) as caught:
        load(copied)
    said = str(caught.value)
    assert "1 missing: query_tokens" in said
    assert "1 unknown: surplus" in said
    assert "1 of another shape: vision_projection.weight is [32, 5], not [32, 48]" in said
    assert str(copied) in said


def test_nan_weights_are_named(copied: Path) -> None:
    def spoil(weights: dict[str, Tensor]) -> None:
        weights["qformer.layernorm.weight"][3] = torch.nan

    change_weights(copied, spoil)
    with pytest.raises(
        DataError, match=r'"qformer.layernorm.weight" hold 1 of 48 values that are not finite'
    ):
        load(copied)


@pytest.mark.parametrize("kept", [0, 4, 5000, -100])
def test_truncated_weights_are_named(copied: Path, kept: int) -> None:
    file = copied / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(DataError, match=r"cannot be read .* may be cut off") as caught:
        load(copied)
    assert str(file) in str(caught.value)


def test_weights_in_parts(copied: Path) -> None:
    weights = load_file(copied / "model.safetensors")
    names = sorted(weights)
    parts = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for name, part in parts.items():
        save_file({key: weights[key] for key in part}, copied / name)
    (copied / "model.safetensors").unlink()
    with pytest.raises(DataError, match="there are no weights here"):
        load(copied)
    index = {"weight_map": {key: name for name, part in parts.items() for key in part}}
    (copied / "model.safetensors.index.json").write_text(json.dumps(index))
    assert torch.equal(load(copied).query_tokens, weights["query_tokens"])
    (copied / "model-2.safetensors").unlink()
    with pytest.raises(DataError, match=r"1 of 2 files that it names are missing: model-2"):
        load(copied)


def test_a_tokenizer_has_to_fit_the_weights(copied: Path) -> None:
    from triptych.backbones.word_pieces import bert_with_dec

    pieces = bert_with_dec()
    pieces.save(copied)
    with pytest.raises(DataError, match="knows 30523 pieces and the weights have 120"):
        load(copied)

    def widen(weights: dict[str, Tensor]) -> None:
        weights["embeddings.word_embeddings.weight"] = torch.zeros(30_523, 48)

    change_weights(copied, widen)
    change_config(copied, lambda config: config["qformer_config"].update(vocab_size=30_523))
    assert int(load(copied).tokenise(["red"])[1].sum()) == 3
    from transformers import BertTokenizer

    vocabulary = [word for word in pieces.tokenizer.get_vocab() if word != "[DEC]"]
    for file in copied.glob("*token*"):
        file.unlink()
    BertTokenizer(vocab={word: i for i, word in enumerate(vocabulary)}).save_pretrained(copied)
    with pytest.raises(DataError, match=r"no \[DEC\] token, which row 30522 of the 30523"):
        load(copied)


def test_without_a_tokenizer_only_texts_are_refused(tiny: Path) -> None:
    backbone = load(tiny)
    assert backbone.targets(backbone.encode_images(torch.rand(1, 3, 28, 28))).shape == (1, 32, 32)
    with pytest.raises(DataError, match="no tokenizer beside these weights"):
        backbone.text(["red"])


def test_where_weights_are_looked_for(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder, then the hub's cache, then the hub, which is not reached in tests."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UsageError) as caught:
        create_backbone({"name": "blip2"})
    said = str(caught.value)
    for part in (
        "Salesforce/blip2-itm-vit-g",
        "config.json",
        "model.safetensors",
        "tokenizer",
        "backbone.weights=",
    ):
        assert part in said
    assert f"models--Salesforce--blip2-itm-vit-g into {tmp_path / 'hub'}" in said
    for name in ("/nowhere", "./nowhere", "nowhere", "a/b/c"):
        with pytest.raises(UsageError, match="there is no such folder"):
            create_backbone({"name": "blip2", "weights": name})
    snapshot = tmp_path / "hub" / "models--Salesforce--blip2-itm-vit-g" / "snapshots" / ("0" * 40)
    shutil.copytree(tiny, snapshot)
    refs = snapshot.parents[1] / "refs"
    refs.mkdir()
    (refs / "main").write_text("0" * 40)
    assert create_backbone({"name": "blip2"}).shape.hidden == 48
    monkeypatch.chdir(tiny.parent)
    assert settled({"name": "blip2", "weights": tiny.name})["weights"] == str(tiny.resolve())
    assert settled({"name": "blip2", "weights": "Salesforce/x"})["weights"] == "Salesforce/x"


def test_the_registry_knows_four_backbones() -> None:
    assert NAMES == ("lite", "blip2", "blip2-vitl", "clip")
    for name in NAMES:
        assert config_class(name).model_fields
    with pytest.raises(UsageError, match=r'unknown backbone "blip"; there are: lite'):
        create_backbone({"name": "blip"})
    with pytest.raises(UsageError, match=r"sizes\.hidden"):
        create_backbone({"name": "blip2", "weights": None, "sizes": {"hidden": "wide"}})
