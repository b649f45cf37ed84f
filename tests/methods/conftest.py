"""A tiny backbone and batch, so that a method's step takes milliseconds."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from triptych.backbones.base import Backbone, BackboneShape, Composed
from triptych.methods.base import TripletBatch

SHAPE = BackboneShape(queries=4, dim=16, hidden=24, image_tokens=4, image_width=12, image_size=16)


class TinyBackbone(Backbone):
    """Random layers in the shape of the real thing: image tokens are averaged 8 x 8 patches."""

    name = "tiny"
    shape = SHAPE
    fingerprint = "tiny"
    frozen = ("tower",)

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.tower = nn.Linear(3 * 8 * 8, SHAPE.image_width)
            self.queries = nn.Parameter(torch.randn(SHAPE.queries, SHAPE.hidden))
            self.image = nn.Linear(SHAPE.image_width, SHAPE.hidden)
            self.words = nn.Parameter(torch.randn(2, SHAPE.hidden))
            self.to_text = nn.Linear(SHAPE.hidden, SHAPE.dim)
            self.to_vision = nn.Linear(SHAPE.hidden, SHAPE.dim)
        self.register_buffer("pixel_mean", torch.tensor([0.48, 0.46, 0.41]))
        self.register_buffer("pixel_std", torch.tensor([0.27, 0.26, 0.28]))

    def preprocess(self, image: Image.Image) -> np.ndarray:
        return np.asarray(image.resize((16, 16)), dtype=np.float32).transpose(2, 0, 1) / 255

    @torch.no_grad()
    def encode_images(self, pixels: Tensor) -> Tensor:
        normalised = (pixels - self.pixel_mean[:, None, None]) / self.pixel_std[:, None, None]
        return self.tower(functional.unfold(normalised, 8, stride=8).mT)

    def image_pass(self, tokens: Tensor) -> Tensor:
        seen = self.image(tokens)
        attention = torch.softmax(self.queries @ seen.mT, dim=2)
        return torch.tanh(self.queries + attention @ seen)

    def targets(self, tokens: Tensor) -> Tensor:
        return functional.normalize(self.to_vision(self.image_pass(tokens)), dim=-1)

    def compose(self, tokens: Tensor, texts: Sequence[str], query_tokens: Tensor | None = None) -> Composed:
        words = torch.stack([self.words[0] * len(text) / 9 + self.words[1] for text in texts])[:, None]
        seen = (
            self.image_pass(tokens)
            if query_tokens is None
            else query_tokens + self.image(tokens).mean(1, True)
        )
        hidden = torch.tanh(torch.cat([seen + words, words + seen.mean(1, True)], dim=1))
        projected = functional.normalize(self.to_text(hidden), dim=-1)
        return Composed(projected[:, SHAPE.queries], projected[:, : SHAPE.queries], hidden)

    def text(self, texts: Sequence[str]) -> Tensor:
        words = torch.stack([self.words[0] * len(text) / 9 + self.words[1] for text in texts])
        return functional.normalize(self.to_text(words), dim=-1)


@pytest.fixture
def shape() -> BackboneShape:
    return SHAPE


@pytest.fixture
def backbone() -> TinyBackbone:
    return TinyBackbone()


@pytest.fixture
def make_batch(backbone: TinyBackbone) -> Callable[..., TripletBatch]:
    """Make a batch of ``size`` triplets with pixels; ``seed`` is that of the step's generator."""

    def make(size: int = 6, *, seed: int = 0, **changes: object) -> TripletBatch:
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

    return make
