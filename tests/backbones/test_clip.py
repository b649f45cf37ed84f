"""CLIP and SigLIP: transformers' numbers, their own processors' pixels, and what they refuse."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch.testing import assert_close

from triptych.backbones.registry import create_backbone
from triptych.errors import DataError, UsageError
from triptych.methods import registry as methods
from triptych.methods.base import TripletBatch

TEXTS = ["a red dress", "blue", "the same but with a much longer text so that the others are padded"]
WORDS = [
    "<pad>",
    "<start>",
    "a",
    "red",
    "dress",
    "blue",
    "the",
    "same",
    "but",
    "with",
    "much",
    "longer",
    "text",
    "so",
    "that",
    "others",
    "are",
    "padded",
    "<end>",
]


def write_tokenizer(folder: Path, length: int) -> None:
    """One piece a word; start and end are added."""
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()  # type: ignore[assignment]
    words.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
        single="<start> $A <end>", special_tokens=[("<start>", 1), ("<end>", len(WORDS) - 1)]
    )
    tokens = {"pad_token": "<pad>", "bos_token": "<start>", "eos_token": "<end>", "unk_token": "<pad>"}
    PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=length, **tokens).save_pretrained(folder)


@pytest.fixture(scope="module", params=["clip", "siglip"])
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A tiny model of transformers, and the folder that it was saved to."""
    from transformers import CLIPConfig, CLIPModel, SiglipConfig, SiglipModel

    folder = tmp_path_factory.mktemp(request.param)
    vision = {"hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
    vision |= {"image_size": 32, "patch_size": 8}
    text = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    text |= {"vocab_size": len(WORDS), "max_position_embeddings": 20}
    with torch.random.fork_rng():
        torch.manual_seed(1)
        if request.param == "clip":
            text |= {"eos_token_id": len(WORDS) - 1, "bos_token_id": 1, "pad_token_id": 0}
            model: Any = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=16))
        else:
            text["projection_size"] = 24
            model = SiglipModel(SiglipConfig(text_config=text, vision_config=vision))
    model.eval().save_pretrained(folder)
    write_tokenizer(folder, 20)
    return model, folder


def pixels(seed: int = 0) -> torch.Tensor:
    return torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("trained_blocks", [None, 0, 2])
@torch.no_grad()
def test_the_numbers_of_transformers(original: Any, trained_blocks: int | None) -> None:
    model, folder = original
    backbone = create_backbone(
        {"name": "clip", "weights": str(folder), "trained_blocks": trained_blocks}
    ).eval()
    given = (pixels() - backbone.pixel_mean[:, None, None]) / backbone.pixel_std[:, None, None]
    seen = model.vision_model(pixel_values=given)
    tokens = backbone.vision(backbone.encode_images(pixels()))
    shape = backbone.shape
    assert tokens.shape == (3, shape.image_tokens, shape.image_width)
    assert_close(tokens, seen.last_hidden_state, atol=1e-5, rtol=1e-5)
    images = model.get_image_features(pixel_values=given).pooler_output
    assert_close(backbone.pool_images(tokens), images, atol=1e-5, rtol=1e-5)
    siglip = not shape.class_token
    inputs = backbone.tokenizer(
        TEXTS, padding="max_length" if siglip else True, max_length=20, truncation=True, return_tensors="pt"
    )
    masks = {} if siglip else {"attention_mask": inputs["attention_mask"]}
    pooled, states, mask = backbone.pool_texts(TEXTS)
    texts = model.get_text_features(input_ids=inputs["input_ids"], **masks).pooler_output
    assert_close(pooled, texts, atol=1e-5, rtol=1e-5)
    assert states.shape == (3, mask.shape[1], shape.hidden)
    assert mask.sum(dim=1).tolist() == [5, 3, 16]
    cosine = torch.nn.functional.cosine_similarity(images[:, None], texts[None], dim=-1)
    assert_close(backbone.targets(backbone.encode_images(pixels()))[:, 0] @ backbone.text(TEXTS).T, cosine)


def test_what_is_trained_and_what_a_model_folder_holds(original: Any) -> None:
    _, folder = original
    backbone = create_backbone({"name": "clip", "weights": str(folder), "trained_blocks": 1})
    frozen = {name for name, value in backbone.named_parameters() if not value.requires_grad}
    assert frozen
    assert all(name.startswith("tower.") for name in frozen)
    assert not any(name.startswith("tower.") for name in backbone.trained_state())
    only_vision = create_backbone({"name": "clip", "weights": str(folder), "train_text": False})
    assert not any(value.requires_grad for value in only_vision.text_model.parameters())
    assert not any(name.startswith("text_") for name in only_vision.trained_state())
    assert only_vision.fingerprint != backbone.fingerprint


@pytest.mark.parametrize("size", [(60, 45), (45, 61), (33, 100), (32, 32), (200, 31)])
def test_clips_own_processor_bit_for_bit(original: Any, size: tuple[int, int]) -> None:
    """Both crop and resize on Pillow; the floats are normalised in another order, so they agree to rounding."""
    from transformers import CLIPImageProcessorPil, SiglipImageProcessorPil

    _, folder = original
    backbone = create_backbone({"name": "clip", "weights": str(folder)})
    random = np.random.default_rng(3)
    picture = Image.fromarray(random.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))
    own: Any = CLIPImageProcessorPil if backbone.shape.class_token else SiglipImageProcessorPil
    sizes = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    if not backbone.shape.class_token:
        sizes = {"size": {"height": 32, "width": 32}}
    processor = own(**sizes, do_normalize=False, do_rescale=False)
    expected = processor(picture, return_tensors="np")["pixel_values"][0]
    found = backbone.preprocess(picture)
    np.testing.assert_array_equal(np.round(found * 255).astype(np.uint8), expected.astype(np.uint8))


def test_methods_that_need_a_qformer_say_which_backbones_fit(original: Any) -> None:
    _, folder = original
    backbone = create_backbone({"name": "clip", "weights": str(folder)})
    for name in methods.names():
        if name == "ssn":
            continue
        with pytest.raises(UsageError, match=r"(?s)needs a Q-Former.*lite, blip2, blip2-vitl.*ssn"):
            methods.create(name, {}, backbone.shape)
        with pytest.raises(UsageError, match='backbone "clip" has not'):
            methods.refuse_unfit(name, "clip")
    methods.refuse_unfit("ssn", "clip")
    with pytest.raises(UsageError, match="blip2"):
        backbone.compose(torch.zeros(1, 1, 1), [""])


def test_without_weights_it_is_for_plans_alone() -> None:
    with torch.device("meta"):
        planned: Any = create_backbone({"name": "clip", "weights": None})
    assert planned.shape.image_tokens == 50
    with pytest.raises(UsageError, match="weights = null is for `triptych plan` alone"):
        create_backbone({"name": "clip", "weights": None})


def test_weights_of_another_architecture(shared: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match='another architecture: "blip-2"'):
        create_backbone({"name": "clip", "weights": str(shared / "golden" / "blip2_tiny")})
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "clip"}))
    with pytest.raises(DataError, match="no weights here"):
        create_backbone({"name": "clip", "weights": str(tmp_path)})


def test_ssn_reads_towers_as_they_are(original: Any) -> None:
    """Tokens before the last LayerNorm and projected embeddings that are not normalised; both towers learn."""
    model, folder = original
    backbone = create_backbone({"name": "clip", "weights": str(folder)})
    method: Any = methods.create("ssn", {"feedforward": 16, "dropout": 0.0}, backbone.shape).eval()
    batch = TripletBatch(
        triplet_ids=("a", "b", "c"),
        texts=tuple(TEXTS),
        reference_tokens=backbone.encode_images(pixels()),
        target_tokens=backbone.encode_images(pixels(1)),
        generator=torch.Generator(),
    )
    given = (pixels() - backbone.pixel_mean[:, None, None]) / backbone.pixel_std[:, None, None]
    with torch.no_grad():
        seen = model.vision_model(pixel_values=given).last_hidden_state
        if not backbone.shape.class_token:
            seen = torch.cat([seen.mean(dim=1, keepdim=True), seen], dim=1)
        pooled, states, mask = backbone.pool_texts(TEXTS)
        images = model.get_image_features(pixel_values=given).pooler_output
        expected = method.fusion.query(seen, images, method.words(states), pooled, mask)
        found = method.query(batch.reference_tokens, TEXTS, backbone)
    assert_close(found, expected, atol=1e-5, rtol=1e-5)
    losses = method.losses(batch, backbone)
    losses.total().backward()
    still = {n for n, v in backbone.named_parameters() if v.requires_grad and v.grad is None}
    assert still == set()
