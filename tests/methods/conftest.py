"""A tiny backbone and batch, so that a method's step takes milliseconds."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional
from transformers import Blip2QFormerConfig

from triptych.backbones.base import BackboneShape
from triptych.backbones.composer import QFormerBackbone
from triptych.methods.base import TripletBatch

SHAPE = BackboneShape(queries=4, dim=16, hidden=24, image_tokens=4, image_width=12, image_size=16)


class TinyBackbone(QFormerBackbone):
    """The real composer at a tiny size; image tokens are averaged 8 x 8 patches, a letter is a word."""

    name = "tiny"
    fingerprint = "tiny"
    frozen = ("tower",)
    pixel_mean: Tensor
    pixel_std: Tensor

    def __init__(self) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            super().__init__(
                SHAPE,
                Blip2QFormerConfig(
                    hidden_size=SHAPE.hidden,
                    num_hidden_layers=2,
                    num_attention_heads=2,
                    intermediate_size=2 * SHAPE.hidden,
                    encoder_hidden_size=SHAPE.image_width,
                    cross_attention_frequency=1,
                    use_qformer_text_input=True,
                    hidden_dropout_prob=0.0,
                    attention_probs_dropout_prob=0.0,
                    vocab_size=1,
                ),
            )
            self.tower = nn.Linear(3 * 8 * 8, SHAPE.image_width)
            self.letters = nn.Embedding(27, SHAPE.hidden)
            self.places = nn.Parameter(torch.randn(64, SHAPE.hidden))
            self.ln_vision = nn.LayerNorm(SHAPE.image_width)
        self.register_buffer("pixel_mean", torch.tensor([0.48, 0.46, 0.41]))
        self.register_buffer("pixel_std", torch.tensor([0.27, 0.26, 0.28]))

    def preprocess(self, image: Image.Image) -> np.ndarray:
        return np.asarray(image.resize((16, 16)), dtype=np.float32).transpose(2, 0, 1) / 255

    @torch.no_grad()
    def encode_images(self, pixels: Tensor) -> Tensor:
        normalised = (pixels - self.pixel_mean[:, None, None]) / self.pixel_std[:, None, None]
        return self.tower(functional.unfold(normalised, 8, stride=8).mT)

    def vision(self, tokens: Tensor) -> Tensor:
        return self.ln_vision(tokens)

    def word_embeddings(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        longest = max(map(len, texts)) + 1
        ids = torch.tensor([[26, *(ord(x) % 26 for x in text), *[0] * longest][:longest] for text in texts])
        mask = torch.tensor([[i <= len(text) for i in range(longest)] for text in texts])
        return self.letters(ids.to(self.device)), mask.float().to(self.device)

    def positioned(self, embeddings: Tensor) -> Tensor:
        return embeddings + self.places[: embeddings.shape[1]]


@pytest.fixture
def shape() -> BackboneShape:
    return SHAPE


@pytest.fixture
def backbone() -> TinyBackbone:
    return TinyBackbone()


@pytest.fixture(scope="session")
def make_tiny() -> Callable[[], TinyBackbone]:
    """Make tiny backbones, all with the same weights, in eval mode."""
    return lambda: TinyBackbone().eval()


@pytest.fixture
def make_batch(backbone: TinyBackbone) -> Callable[..., TripletBatch]:
    """Make a batch of ``size`` triplets with pixels; ``seed`` is that of the step's generator."""
    return partial(batch_of, backbone)


@pytest.fixture(scope="session")
def make_batch_of() -> Callable[..., TripletBatch]:
    """Make a batch for a given backbone: ``(backbone, size)``, and what :func:`batch_of` takes."""
    return batch_of


def batch_of(backbone: TinyBackbone, size: int = 6, *, seed: int = 0, **changes: object) -> TripletBatch:
    draws = torch.Generator().manual_seed(1000 + size)
    reference, target = torch.rand(2, size, 3, 16, 16, generator=draws)
    fields: dict[str, object] = {
        "triplet_ids": tuple(f"t{i}" for i in range(size)),
        "texts": tuple("longer " * (i % 4) + "x" for i in range(size)),
        "reference_tokens": backbone.encode_images(reference),
        "target_tokens": backbone.encode_images(target),
        "generator": torch.Generator().manual_seed(seed),
        "reference_pixels": reference,
        "target_pixels": target,
        "counterfactual_tokens": backbone.encode_images(reference.flip(3)),
    }
    return TripletBatch(**(fields | changes))
