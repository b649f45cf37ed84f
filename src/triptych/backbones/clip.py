"""CLIP and SigLIP of transformers: two towers with tokens and pooled embeddings, and no composer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.nn.functional import normalize

from triptych.backbones.base import Backbone, BackboneShape, Composed
from triptych.backbones.blip2 import Precision, tower_dtype
from triptych.backbones.hub import find_weights
from triptych.backbones.preprocessing import CLIP_MEAN, CLIP_STD, Preprocessing, to_pixels, to_square
from triptych.backbones.stored_weights import StoredWeights, fill, read_json
from triptych.backbones.vision_tower import VisionTower, restore_positions, run_blocks
from triptych.errors import DataError, UsageError

_UNUSED = (
    "logit_scale",
    "logit_bias",
    "text_model.embeddings.position_ids",
    "vision_model.embeddings.position_ids",
)


class ClipConfig(BaseModel):
    """Where the weights of a CLIP or SigLIP are, and how it is used."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    weights: str | None = Field(
        "openai/clip-vit-base-patch32",
        description="a folder as transformers writes it, or a name on the hub, of a CLIP or SigLIP; null = the "
        "sizes of CLIP ViT-B/32 without weights, to plan with",
    )
    preprocessing: Preprocessing | None = Field(
        None, description="how a picture becomes a square; the model's own if null: centre_crop or squash"
    )
    trained_blocks: int | None = Field(
        None,
        ge=0,
        description="last blocks of the vision tower that are trained, tokens being cached before them; all if null",
    )
    train_text: bool = Field(True, description="train the text tower")
    tower_precision: Precision = Field(
        "auto", description="of what is frozen: auto is float16 where there is a GPU, float32 elsewhere"
    )


class ClipBackbone(Backbone):
    """The towers of CLIP or SigLIP, fine-tuned unless the settings say otherwise; patch embeddings stay frozen.

    Its passes are those that SSN needs; :meth:`compose`, :meth:`refine` and :meth:`prompt` need a Q-Former.

    Raises:
        DataError: the weights cannot be read, hold NaN, or are of another architecture.
        UsageError: ``weights`` names nothing that can be found.
    """

    name = "clip"
    default_learning_rate = 5e-5

    def __init__(self, config: ClipConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or ClipConfig()
        folder = None if config.weights is None else find_weights(config.weights)
        sizes = _read_config(folder)
        self.is_siglip = sizes.model_type == "siglip"
        with torch.device("meta") if folder else nullcontext():
            self._build(sizes, config)
        dtype = tower_dtype(config.tower_precision)
        if folder is not None:
            self._load(folder, dtype)
        elif not self.tower.is_meta:
            raise UsageError(
                "backbone clip has no random weights: weights = null is for `triptych plan` alone"
            )
        self.requires_grad_(True)
        self.tower.requires_grad_(False)
        if not config.train_text:
            for part in self._text_parts():
                part.requires_grad_(False)
        self.frozen = ("tower",) if config.train_text else ("tower", "text_model", "text_projection")
        vision, own = sizes.vision_config, _own_preprocessing(folder, siglip=self.is_siglip)
        self.squared = config.preprocessing or ("squash" if self.is_siglip else "centre_crop")
        self.register_buffer("pixel_mean", torch.tensor(own[0]), persistent=False)
        self.register_buffer("pixel_std", torch.tensor(own[1]), persistent=False)
        self.text_length = int(sizes.text_config.max_position_embeddings)
        self.tokenizer: Any = (
            None if folder is None else _tokenizer(folder, int(sizes.text_config.vocab_size))
        )
        self.shape = BackboneShape(
            queries=1,
            dim=int(vision.hidden_size if self.is_siglip else sizes.projection_dim),
            hidden=int(sizes.text_config.hidden_size),
            image_tokens=(vision.image_size // vision.patch_size) ** 2 + (not self.is_siglip),
            image_width=int(vision.hidden_size),
            image_size=int(vision.image_size),
            class_token=not self.is_siglip,
            qformer=False,
        )
        self.fingerprint = (
            f"{sizes.model_type}-1:{self.tower.digest()}:{self.shape.image_size}px:{self.squared}:{dtype}:"
            f"before {len(self.blocks)} blocks"
        )

    def preprocess(self, image: Image.Image) -> np.ndarray:
        """Resize and crop as the model's own processor does: ``[3, H, W]`` float32 in [0, 1]."""
        return to_pixels(to_square(image, self.shape.image_size, self.squared))

    @torch.no_grad()
    def encode_images(self, pixels: Tensor) -> Tensor:
        """Encode ``[B, 3, H, W]`` in [0, 1] into ``[B, P, V]``: what goes into the trained blocks."""
        normalised = (pixels - self.pixel_mean[:, None, None]) / self.pixel_std[:, None, None]
        tokens: Tensor = self.tower(normalised)
        return tokens.to(self.post_layernorm.weight.dtype)

    def vision(self, tokens: Tensor) -> Tensor:
        """Run the trained blocks: the tower's last hidden states."""
        hidden = run_blocks(self.blocks, tokens)
        return self.post_layernorm(hidden) if self.is_siglip else hidden

    def look(self, vision_tokens: Tensor) -> Tensor:
        """Pool an image to ``[B, 1, V]``, not yet projected."""
        if self.is_siglip:
            pooled: Tensor = self.head(vision_tokens)
            return pooled[:, None]
        first: Tensor = self.post_layernorm(vision_tokens[:, :1])
        return first

    def image_pass(self, tokens: Tensor) -> Tensor:
        """Pool frozen tokens to ``[B, 1, V]``, not yet projected."""
        return self.look(self.vision(tokens))

    def pool_images(self, vision_tokens: Tensor) -> Tensor:
        """Embed images as CLIP does, before it normalises: ``[B, D]``."""
        return self._projected(self.look(vision_tokens))[:, 0]

    def as_targets(self, looks: Tensor) -> Tensor:
        """Project and normalise: ``[B, 1, V]`` to ``[B, 1, D]``."""
        return normalize(self._projected(looks), dim=-1)

    def targets(self, tokens: Tensor) -> Tensor:
        """Embed images: ``[B, 1, D]``, unit rows."""
        return self.as_targets(self.image_pass(tokens))

    def pool_texts(self, texts: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
        """Embed texts as CLIP does, before it normalises, ``[B, D]``; states ``[B, L, H]`` and mask ``[B, L]``."""
        ids, mask = self.tokenise(texts)
        read = self.text_model(input_ids=ids, attention_mask=None if self.is_siglip else mask)
        pooled: Tensor = read.pooler_output
        return (pooled if self.is_siglip else self.text_projection(pooled)), read.last_hidden_state, mask

    def text_and_states(self, texts: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
        """Embed texts, unit rows ``[B, D]``, and keep the states ``[B, L, H]`` and the mask."""
        pooled, states, mask = self.pool_texts(texts)
        return normalize(pooled, dim=-1), states, mask

    def text(self, texts: Sequence[str]) -> Tensor:
        """Embed texts: ``[B, D]``, unit rows."""
        return self.text_and_states(texts)[0]

    def text_pass(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Read texts: the last hidden states ``[B, L, H]`` and the mask."""
        return self.pool_texts(texts)[1:]

    def word_embeddings(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Embed word pieces without their places: ``[B, L, H]`` and the mask."""
        ids, mask = self.tokenise(texts)
        embeddings: Tensor = self.text_model.embeddings.token_embedding(ids)
        return embeddings, mask

    def tokenise(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Cut texts into pieces: ids and mask, ``[B, L]``."""
        found = self.tokenizer(
            list(texts),
            padding="max_length" if self.is_siglip else "longest",
            truncation=True,
            max_length=self.text_length,
            return_attention_mask=True,
            return_tensors="pt",
        )
        return found["input_ids"].to(self.device), found["attention_mask"].to(self.device)

    def look_attentively(self, vision_tokens: Tensor) -> NoReturn:
        """Refuse: there is no Q-Former."""
        raise _no_qformer()

    def compose(
        self,
        tokens: Tensor,
        texts: Sequence[str],
        query_tokens: Tensor | None = None,
        *,
        attention: bool = False,
    ) -> Composed:
        """Refuse: there is no Q-Former."""
        raise _no_qformer()

    def refine(self, query_tokens: Tensor, texts: Sequence[str] | Tensor) -> NoReturn:
        """Refuse: there is no Q-Former."""
        raise _no_qformer()

    def prompt(self, prompt_tokens: Tensor, texts: Sequence[str]) -> NoReturn:
        """Refuse: there is no Q-Former."""
        raise _no_qformer()

    def _build(self, sizes: Any, config: ClipConfig) -> None:
        from transformers import CLIPModel, SiglipModel

        model: Any = SiglipModel(sizes) if self.is_siglip else CLIPModel(sizes)
        blocks = len(model.vision_model.encoder.layers)
        trained = blocks if config.trained_blocks is None else min(config.trained_blocks, blocks)
        self.tower = VisionTower(model.vision_model, trained)
        self.blocks = self.tower.rest()
        self.post_layernorm: nn.LayerNorm = model.vision_model.post_layernorm
        self.text_model: Any = model.text_model
        if self.is_siglip:
            self.head: nn.Module = model.vision_model.head
        else:
            self.visual_projection: nn.Module = model.visual_projection
            self.text_projection: nn.Module = model.text_projection

    def _load(self, folder: Path, dtype: torch.dtype) -> None:
        first_trained = len(self.tower.layers)
        fill(
            self,
            StoredWeights(folder),
            lambda name: _stored_name(name, first_trained),
            unused=_UNUSED,
            dtype_of=lambda name: dtype if name.startswith("tower.") else torch.float32,
        )
        restore_positions(self)

    def _text_parts(self) -> list[nn.Module]:
        return [self.text_model, *([] if self.is_siglip else [self.text_projection])]

    def _projected(self, looks: Tensor) -> Tensor:
        return looks if self.is_siglip else self.visual_projection(looks)


def _no_qformer() -> UsageError:
    from triptych.backbones.registry import ENTRIES

    fitting = ", ".join(name for name, entry in ENTRIES.items() if entry.qformer)
    return UsageError(f"backbone clip has no Q-Former to compose with; those that have one: {fitting}")


def _stored_name(name: str, first_trained: int) -> str:
    if name.startswith("blocks."):
        _, number, rest = name.split(".", 2)
        return f"vision_model.encoder.layers.{first_trained + int(number)}.{rest}"
    if name.startswith("tower.layers."):
        return name.replace("tower.layers.", "vision_model.encoder.layers.", 1)
    for ours, theirs in (("tower.", "vision_model."), ("post_layernorm.", "vision_model.post_layernorm.")):
        if name.startswith(ours):
            return name.replace(ours, theirs, 1)
    return name.replace("head.", "vision_model.head.", 1) if name.startswith("head.") else name


def _read_config(folder: Path | None) -> Any:
    """Read the sizes of weights; those of CLIP ViT-B/32 are transformers' defaults."""
    from transformers import CLIPConfig, SiglipConfig

    if folder is None:
        return CLIPConfig()
    path = folder / "config.json"
    values = read_json(path)
    kinds = {"clip": CLIPConfig, "siglip": SiglipConfig}
    if values.get("model_type") not in kinds:
        raise DataError(
            f'these weights are of another architecture: "{values.get("model_type", "nothing said")}", not one of '
            f"{', '.join(kinds)}",
            file=path,
            field="model_type",
            mend="Backbone clip needs a CLIPModel or SiglipModel, such as openai/clip-vit-base-patch32.",
        )
    config: Any = kinds[values["model_type"]].from_dict(values)
    return config


def _own_preprocessing(folder: Path | None, *, siglip: bool) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation of the input: those of the folder, or those of the architecture."""
    path = None if folder is None else folder / "preprocessor_config.json"
    said = read_json(path) if path is not None and path.is_file() else {}
    defaults = ((0.5,) * 3, (0.5,) * 3) if siglip else (CLIP_MEAN, CLIP_STD)
    return tuple(said.get("image_mean", defaults[0])), tuple(said.get("image_std", defaults[1]))


def _tokenizer(folder: Path, rows: int) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:  # whatever the tokenizer's library says of a missing or damaged file
        raise DataError(
            f"the tokenizer cannot be read ({str(error).splitlines()[0]})",
            file=folder,
            mend="Put tokenizer.json and tokenizer_config.json (or vocab.json and merges.txt) beside the weights.",
        ) from error
    if len(tokenizer) > rows:
        raise DataError(
            f"the tokenizer knows {len(tokenizer)} pieces and the weights have {rows} word embeddings; "
            "they do not belong together",
            file=folder,
        )
    return tokenizer
