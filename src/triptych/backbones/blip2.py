"""BLIP-2: a frozen ViT-g/14 (or ViT-L/14), and its Q-Former of 12 layers as the composer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from triptych.backbones.base import BackboneShape
from triptych.backbones.blip2_sizes import Blip2Sizes
from triptych.backbones.composer import QFormerBackbone
from triptych.backbones.preprocessing import CLIP_MEAN, CLIP_STD, Preprocessing, to_pixels, to_square
from triptych.backbones.stored_weights import StoredWeights, fill, read_json
from triptych.backbones.vision_tower import VisionTower, restore_positions, run_blocks
from triptych.backbones.word_pieces import find_word_pieces

Precision = Literal["auto", "float32", "float16", "bfloat16"]
_UNUSED = ("itm_head.", "logit_scale", "temp")
"""What files of BLIP-2 hold and no pass reads: the matching head and temperatures."""


class Blip2Config(BaseModel):
    """Where BLIP-2's weights are, and how it is used."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    default_weights: ClassVar[str | None] = "Salesforce/blip2-itm-vit-g"

    weights: str | None = Field(
        "Salesforce/blip2-itm-vit-g",
        description="a folder (as transformers or `triptych convert` writes it) or a name on the hub; "
        "null draws random weights of `sizes`",
    )
    sizes: Blip2Sizes = Field(
        Blip2Sizes(), description="sizes of random weights; other weights bring their own"
    )
    preprocessing: Preprocessing = Field("target_pad", description="how a picture becomes a square")
    text_length: int = Field(32, ge=3, description="word pieces a text, [CLS] and [SEP] included")
    dropout: float | None = Field(
        None, ge=0, lt=1, description="of the Q-Former; the weights' own if null (0.1)"
    )
    trained_blocks: int = Field(
        0, ge=0, description="last blocks of the vision tower that are trained; tokens are cached before them"
    )
    gradient_checkpointing: bool = Field(
        False, description="recompute the Q-Former's layers in the backward pass: less memory, more time"
    )
    tower_precision: Precision = Field(
        "auto", description="of the frozen tower: auto is float16 where there is a GPU, float32 elsewhere"
    )


class Blip2VitLConfig(Blip2Config):
    """BLIP-2 with CLIP's ViT-L/14 without its last block, as CALA uses it; no hub holds it in this layout."""

    default_weights: ClassVar[str | None] = None

    weights: str | None = Field(
        ...,
        description="a folder that `triptych convert blip2_pretrained_vitL.pth` wrote; null draws random weights",
    )
    sizes: Blip2Sizes = Field(
        Blip2Sizes.vit_l(), description="sizes of random weights; other weights bring their own"
    )


class Blip2Backbone(QFormerBackbone):
    """BLIP-2's retrieval model, stage 1: every pass of the specification (section 0).

    :meth:`encode_images` gives tokens before ``ln_vision`` (transformers' ``post_layernorm``), which is trained.

    Raises:
        DataError: the weights cannot be read, hold NaN, or are of another architecture; the tokenizer does not fit.
        UsageError: ``weights`` names nothing that can be found.
    """

    name = "blip2"
    frozen = ("tower",)
    trained_tower = ("blocks",)
    default_learning_rate = 1e-5

    def __init__(self, config: Blip2Config | None = None) -> None:
        config = config or Blip2Config()
        folder = None if config.weights is None else _find(config.weights)
        sizes = config.sizes if folder is None else read_sizes(folder)
        if config.dropout is not None:
            sizes = sizes.model_copy(update={"dropout": config.dropout})
        with torch.device("meta") if folder else nullcontext():
            super().__init__(_shape(sizes), sizes.qformer_config())
            model = sizes.vision_model()
            self.tower = VisionTower(model, config.trained_blocks)
            self.blocks = self.tower.rest()
            self.ln_vision = nn.LayerNorm(sizes.image_width, eps=sizes.ln_vision_eps)
            self.embeddings = _Embeddings(sizes.vocabulary, sizes.positions, sizes.hidden)
        if config.gradient_checkpointing:
            self.checkpoint_gradients()
        self.config, self.sizes, self.squared = config, sizes, config.preprocessing
        self.blocks.requires_grad_(True)
        self.register_buffer("pixel_mean", torch.tensor(CLIP_MEAN), persistent=False)
        self.register_buffer("pixel_std", torch.tensor(CLIP_STD), persistent=False)
        dtype = tower_dtype(config.tower_precision)
        if folder is None:
            self.tower.to(dtype)
        else:
            self._load(folder, dtype)
        self.tokenise = find_word_pieces(folder, sizes.vocabulary, config.text_length)
        """Texts to ids ``[B, L]`` and mask ``[B, L]``."""
        kept = f":{config.trained_blocks} blocks less" if config.trained_blocks else ""
        self.fingerprint = (
            f"{self.name}-1:{self.tower.digest()}:{sizes.image_size}px:{config.preprocessing}:{dtype}{kept}"
        )

    def preprocess(self, image: Image.Image) -> np.ndarray:
        """Pad to 1.25, resize the short side, crop the centre (by default): ``[3, H, W]`` float32 in [0, 1]."""
        return to_pixels(to_square(image, self.shape.image_size, self.config.preprocessing))

    @torch.no_grad()
    def encode_images(self, pixels: Tensor) -> Tensor:
        """Encode ``[B, 3, H, W]`` in [0, 1] into frozen tokens ``[B, 257, 1408]``, the first for the whole."""
        normalised = (pixels - self.pixel_mean[:, None, None]) / self.pixel_std[:, None, None]
        tokens: Tensor = self.tower(normalised)
        return tokens.to(self.ln_vision.weight.dtype)

    def vision(self, tokens: Tensor) -> Tensor:
        """Run the trained blocks, if any, and ``ln_vision``."""
        normalised: Tensor = self.ln_vision(run_blocks(self.blocks, tokens))
        return normalised

    def word_embeddings(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Embed word pieces without their places: ``[B, 32, H]``, padding included, and the mask."""
        ids, mask = self.tokenise(texts)
        embeddings: Tensor = self.embeddings.word_embeddings(ids.to(self.device))
        return embeddings, mask.to(self.device)

    def text_pieces(self, texts: Sequence[str]) -> list[list[str]]:
        """Name the positions of each text: [CLS], word pieces, [SEP]."""
        ids, mask = self.tokenise(texts)
        name = self.tokenise.tokenizer.convert_ids_to_tokens
        return [name(row[real.bool()].tolist()) for row, real in zip(ids, mask, strict=True)]

    def positioned(self, embeddings: Tensor) -> Tensor:
        """Add the position embeddings."""
        return embeddings + self.embeddings.position_embeddings.weight[: embeddings.shape[1]]

    def _load(self, folder: Path, dtype: torch.dtype) -> None:
        stored = StoredWeights(folder)
        ours = any(name.startswith("backbone.") for name in stored.names)
        first_trained = len(self.tower.layers)
        fill(
            self,
            stored,
            lambda name: stored_name(name, first_trained, converted=ours),
            unused=("method.",) if ours else _UNUSED,
            dtype_of=lambda name: dtype if name.startswith("tower.") else torch.float32,
        )
        restore_positions(self)
        self.tower.requires_grad_(False)


class Blip2VitLBackbone(Blip2Backbone):
    """BLIP-2 with a ViT-L/14, which CALA was published with."""

    name = "blip2-vitl"


class _Embeddings(nn.Module):
    """BERT's tables of word pieces and places; their LayerNorm is the Q-Former's ``layernorm``."""

    def __init__(self, vocabulary: int, positions: int, width: int) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(vocabulary, width, padding_idx=0)
        self.position_embeddings = nn.Embedding(positions, width)
        if not self.word_embeddings.weight.is_meta:
            nn.init.normal_(self.position_embeddings.weight, std=0.02)
            nn.init.normal_(self.word_embeddings.weight[1:].detach(), std=0.02)


def stored_name(name: str, first_trained: int, *, converted: bool = False) -> str:
    """Give the name that a tensor of this backbone has in a file.

    Args:
        name: in :class:`Blip2Backbone`.
        first_trained: which block of the tower is the first that is trained.
        converted: whether the file is of a Triptych model folder, not of transformers.
    """
    if name.startswith("blocks."):
        _, number, rest = name.split(".", 2)
        return f"vision_model.encoder.layers.{first_trained + int(number)}.{rest}"
    if name.startswith("tower.layers."):
        return name.replace("tower.layers.", "vision_model.encoder.layers.", 1)
    if name.startswith("tower."):
        return name.replace("tower.", "vision_model.", 1)
    if converted:
        return f"backbone.{name}"
    return name.replace("ln_vision.", "vision_model.post_layernorm.", 1)


def read_sizes(folder: Path) -> Blip2Sizes:
    """Read the sizes of weights from their ``config.json``.

    Raises:
        DataError: it is of another architecture, or incomplete.
    """
    return Blip2Sizes.read(read_json(folder / "config.json"), folder / "config.json")


def tower_dtype(precision: Precision) -> torch.dtype:
    """Choose the precision of a frozen tower."""
    if precision == "auto":
        return torch.float16 if torch.cuda.is_available() else torch.float32
    chosen: Any = getattr(torch, precision)
    assert isinstance(chosen, torch.dtype)
    return chosen


def _find(weights: str) -> Path:
    from triptych.backbones.hub import find_weights

    return find_weights(weights)


def _shape(sizes: Blip2Sizes) -> BackboneShape:
    return BackboneShape(
        queries=sizes.queries,
        dim=sizes.dim,
        hidden=sizes.hidden,
        image_tokens=(sizes.image_size // sizes.patch_size) ** 2 + 1,
        image_width=sizes.image_width,
        image_size=sizes.image_size,
        class_token=True,
    )
