"""SSN: the text first takes away from the reference, then adds to it; what it takes away must not find the target."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from triptych.backbones.base import Backbone, BackboneShape
from triptych.errors import UsageError
from triptych.methods.about.ssn import PRESETS
from triptych.methods.about.ssn import SSN as ABOUT
from triptych.methods.base import Losses, Method, TripletBatch
from triptych.methods.config import MethodConfig
from triptych.methods.layers.linear import linear
from triptych.methods.layers.ssn_fusion import SsnFusion
from triptych.objectives import (
    info_nce,
    shift_divergence,
    similarity,
    symmetric,
)
from triptych.randomness import torch_generator

RATES = {
    "words": 0.4,
    "fusion.image_projection": 0.4,
    "fusion.types": 0.8,
    "fusion.text_gate": 0.8,
    "fusion.image_gate": 0.8,
    "fusion.fusion": 0.8,
}
"""Learning rates over that of the rest of the head: 2, 4, 4, 4 and 4 times lr_ratio = 0.2; ``words`` is ours."""


class SsnConfig(MethodConfig):
    """Switches of :class:`Ssn`; specification, section 6."""

    presets: ClassVar = PRESETS

    kl_weight: float = Field(
        1.0,
        ge=0,
        description="weight of L_kl, which nothing published names: try 1.0, 0.1 and 10; 0 drops the anti-query",
    )
    temperature: float = Field(0.01, gt=0, description="τ of both terms: the released scale 100")
    mask_padding: bool = Field(
        True,
        description="keep padded text out of the fusion; off (released) a query depends on the longest text that "
        "it is embedded with",
    )
    heads: int = Field(8, ge=1, description="attention heads of the fusion layer; they must divide D")
    feedforward: int = Field(2048, ge=1, description="width of the fusion layer's feed-forward part")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout of the fusion layer, in training")
    backbone_rate: float | None = Field(
        None,
        gt=0,
        description="learning rate of the backbone over the head's; if null 0.2 for CLIP's towers (released), which "
        "are pretrained, and 1 for a Q-Former",
    )


class Ssn(Method):
    """SSN (AAAI 2024): token gates split reference and text; the kept parts are the query, the rest an anti-query.

    It trusts every annotation; its ``cleanliness`` is the annotated pair's share of the softmax at 0.07.
    """

    name = "ssn"
    paper = "Decompose Semantic Shifts for Composed Image Retrieval (AAAI 2024)"
    summary = "Ordinary baseline: first degrades the reference by the text, then upgrades it, by gates on the tokens."
    about = ABOUT
    Config = SsnConfig
    captions = "random4"
    qformer = False

    config: SsnConfig

    def __init__(self, config: SsnConfig, shape: BackboneShape, *, seed: int = 0) -> None:
        super().__init__(config, shape, seed=seed)
        if shape.dim % config.heads:
            raise UsageError(
                f"method ssn: heads = {config.heads} does not divide the backbone's dim = {shape.dim}"
            )
        self.words: nn.Module = nn.Identity()
        if shape.hidden != shape.dim:
            self.words = linear(shape.hidden, shape.dim, torch_generator(seed, self.name, "words"))
        self.fusion = SsnFusion(
            shape.image_width,
            shape.dim,
            generator=torch_generator(seed, self.name, "fusion"),
            heads=config.heads,
            feedforward=config.feedforward,
            dropout=config.dropout,
            mask_padding=config.mask_padding,
        )

    def rate(self, parameter: str) -> float:
        """Give each group its share of the rate, as released."""
        owner, _, name = parameter.partition(".")
        if owner == "backbone":
            return self.config.backbone_rate or (1.0 if self.shape.qformer else 0.2)
        return next((rate for start, rate in RATES.items() if name.startswith(start)), 1.0)

    def losses(self, batch: TripletBatch, backbone: Backbone) -> Losses:
        """Return L_ce + w_kl L_kl: ``matching`` and ``shift`` per triplet."""
        config = self.config
        parts = self._read(batch.reference_tokens, batch.texts, backbone)
        targets = self.targets(batch.target_tokens, backbone)  # t
        query, anti_query = self.fusion(*parts) if config.kl_weight > 0 else (self.fusion.query(*parts), None)
        kept = similarity(query, targets)  # q+ t

        terms = Losses(matching=symmetric(partial(info_nce, temperature=config.temperature), kept))  # L_ce
        if anti_query is not None:
            removed = similarity(anti_query, targets)  # q- t
            shift = shift_divergence(kept, removed, temperature=config.temperature)  # L_kl
            terms.add(shift=shift, weight=config.kl_weight)

        terms.observe_match(kept)
        return terms

    def query(self, tokens: Tensor, texts: Sequence[str], backbone: Backbone) -> Tensor:
        """Embed queries: those of the kept parts, ``[B, D]``."""
        return self.fusion.query(*self._read(tokens, texts, backbone))

    def targets(self, tokens: Tensor, backbone: Backbone) -> Tensor:
        """Embed a gallery by the fusion of its image tokens, ``[N, 1, D]``; there is no text, so no padding."""
        return self.fusion.target(*self._see(tokens, backbone))[:, None]

    def _read(
        self, tokens: Tensor, texts: Sequence[str], backbone: Backbone
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return what the fusion takes: image tokens, their pooled embedding, text tokens, theirs, and the mask."""
        text, states, mask = backbone.pool_texts(texts)
        return *self._see(tokens, backbone), self.words(states), text, mask

    def _see(self, tokens: Tensor, backbone: Backbone) -> tuple[Tensor, Tensor]:
        """Return image tokens ``[B, P, V]``, one for the whole first, and the pooled embedding ``[B, D]``."""
        image = backbone.vision(tokens)
        pooled = backbone.pool_images(image)
        if not self.shape.class_token:
            image = torch.cat([image.mean(dim=1, keepdim=True), image], dim=1)
        return image, pooled
