"""SPRC: the query is a sentence-level prompt, read once more together with the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from triptych.backbones.base import Backbone, BackboneShape
from triptych.methods.about.sprc import PRESETS
from triptych.methods.about.sprc import SPRC as ABOUT
from triptych.methods.base import Losses, Method, TripletBatch
from triptych.methods.config import MethodConfig
from triptych.methods.layers.prompt import prompt_tokens
from triptych.methods.temperature import FLOOR, Temperature
from triptych.objectives import (
    info_nce,
    match_probabilities,
    prompt_alignment,
    similarity,
)
from triptych.randomness import torch_generator


class SPRCConfig(MethodConfig):
    """Switches of :class:`SPRC`; specification, section 4."""

    presets: ClassVar = PRESETS

    w_rtc: float = Field(1.0, ge=0, description="weight of L_rtc: 1 on FashionIQ, 0.4 on CIRR; 0 drops it")
    w_al: float = Field(1.0, ge=0, description="weight of L_align: 1 on FashionIQ, 0.4 on CIRR; 0 drops it")
    temperature: float = Field(0.07, gt=0, description="softmax temperature τ, or where learning it starts")
    learnable_temperature: bool = Field(True, description="learn τ")
    temperature_floor: float = Field(
        FLOOR, ge=0, description="a learned τ is used from here up; 0 (released) does not clamp it"
    )


class SPRC(Method):
    """SPRC (ICLR 2024): fused query tokens are a prompt before the text; a learned prompt regularises them.

    Adds the learned prompt P and the temperature τ.
    """

    name = "sprc"
    paper = "Sentence-level Prompts Benefit Composed Image Retrieval (ICLR 2024)"
    summary = "Ordinary baseline: fuses picture and text to a prompt, then reads the prompt before the text."
    about = ABOUT
    Config = SPRCConfig
    captions = "random4"

    config: SPRCConfig

    def __init__(self, config: SPRCConfig, shape: BackboneShape, *, seed: int = 0) -> None:
        super().__init__(config, shape, seed=seed)
        self.prompt = prompt_tokens(shape.queries, shape.hidden, torch_generator(seed, self.name, "prompt"))
        self.temperature = Temperature(
            config.temperature, learnable=config.learnable_temperature, floor=config.temperature_floor
        )

    def losses(self, batch: TripletBatch, backbone: Backbone) -> Losses:
        """Return L_itc + w_rtc L_rtc + w_al L_align: ``infonce``, ``prompt`` and ``align`` per triplet."""
        config, tau = self.config, self.temperature()
        z = self._fuse(batch.reference_tokens, batch.texts, backbone)
        c = backbone.refine(z, batch.texts).vector
        targets = backbone.targets(batch.target_tokens)
        s = similarity(c, targets)

        terms = Losses(infonce=info_nce(s, temperature=tau))  # L_itc
        if config.w_rtc > 0:
            u = backbone.prompt(self.prompt[0], batch.texts)
            terms.add(prompt=info_nce(similarity(u, targets), temperature=tau), weight=config.w_rtc)
        if config.w_al > 0:
            terms.add(align=prompt_alignment(z, self.prompt), weight=config.w_al)

        terms.observe_match(s, tau)
        return terms

    def query(self, tokens: Tensor, texts: Sequence[str], backbone: Backbone) -> Tensor:
        """Embed queries: c = normalise(W_t QN(z, m)[Q]), two passes, ``[B, D]``."""
        return backbone.refine(self._fuse(tokens, texts, backbone), texts).vector

    @torch.no_grad()
    def cleanliness(self, batch: TripletBatch, backbone: Backbone) -> Tensor:
        """Give the annotated target's share of the row softmax at τ, ``[B]``."""
        queries = self.query(batch.reference_tokens, batch.texts, backbone)
        s = similarity(queries, backbone.targets(batch.target_tokens))
        return match_probabilities(s, self.temperature()).diagonal()

    def _fuse(self, tokens: Tensor, texts: Sequence[str], backbone: Backbone) -> Tensor:
        """Fuse references and texts to prompts z, ``[B, Q, H]``."""
        return backbone.compose(tokens, texts).hidden[:, : self.shape.queries]
