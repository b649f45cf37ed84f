"""CALA: besides query and target, tie the text to what changed, and the reference to what the text points at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor
from torch.nn import functional

from triptych.backbones.base import Backbone, BackboneShape
from triptych.methods.about.cala import CALA as ABOUT
from triptych.methods.about.cala import PRESETS
from triptych.methods.base import Losses, Method, TripletBatch
from triptych.methods.config import MethodConfig
from triptych.methods.layers.cala_attention import HingeAttention, TwinAttention
from triptych.objectives import (
    full_precision,
    info_nce,
    similarity,
)
from triptych.randomness import torch_generator


class CalaConfig(MethodConfig):
    """Switches of :class:`Cala`; specification, section 5."""

    presets: ClassVar = PRESETS

    backbone: Literal["shared"] = Field(
        "shared", description="one backbone reads text, image and both; the paper has three copies of it"
    )
    w_tac: float = Field(
        0.45, ge=0, lt=1, description="share of the visual gap in the logits of L_con; 0 drops its image pass"
    )
    w_hca: float = Field(0.1, ge=0, lt=1, description="weight of L_reason, that of L_con being 1 - w_hca")
    temperature: float = Field(0.01, gt=0, description="τ of matching: the released scale 100")
    association_temperature: float = Field(
        0.1, gt=0, description="τ of the two associations, which are not normalised: the released scale 10"
    )
    unmasked: bool = Field(
        False, description="let padded text take part in the hinge, as released; off zeroes its columns"
    )
    hinge_dropout: float = Field(0.1, ge=0, lt=1, description="dropout of the hinge's weights, in training")
    attention_rate: float = Field(2.0, gt=0, description="learning rate of the two modules over the others'")


class Cala(Method):
    """CALA (SIGIR 2024): three images of one triplet's relations, of which ranking uses the plain one.

    With r0 and m0 the first tokens of the fused reference and of the text, the query is normalise(r0 + m0) and
    a target its first token, both H wide. It trusts every annotation; its ``cleanliness`` is the annotated
    pair's share of the softmax at 0.07.
    """

    name = "cala"
    paper = "CaLa: Complementary Association Learning for Augmenting Composed Image Retrieval (SIGIR 2024)"
    summary = (
        "Ordinary baseline: also matches the text with the visual gap, and reasons over text from reference to "
        "target."
    )
    about = ABOUT
    Config = CalaConfig
    captions = "random4"

    config: CalaConfig

    def __init__(self, config: CalaConfig, shape: BackboneShape, *, seed: int = 0) -> None:
        super().__init__(config, shape, seed=seed)
        self.twin = TwinAttention(shape.hidden, generator=torch_generator(seed, self.name, "twin"))
        self.hinge = HingeAttention(
            shape.hidden, generator=torch_generator(seed, self.name, "hinge"), dropout=config.hinge_dropout
        )

    def rate(self, parameter: str) -> float:
        """Let the two attention modules learn faster."""
        return self.config.attention_rate if parameter.startswith("method.") else 1.0

    def losses(self, batch: TripletBatch, backbone: Backbone) -> Losses:
        """Return (1 - w_hca) L_con + w_hca L_reason: ``contrastive`` and ``reasoning`` per triplet."""
        config = self.config
        fused = backbone.compose(batch.reference_tokens, batch.texts).hidden[:, : self.shape.queries]  # R
        text, text_mask = backbone.text_pass(batch.texts)  # M
        target = backbone.image_pass(batch.target_tokens)  # T
        s = similarity(_query(fused, text), _targets(target))

        logits = s / config.temperature  # Z_match
        if config.w_tac > 0:
            reference = backbone.image_pass(batch.reference_tokens)  # R^v
            gap = self.twin(reference, target)  # g
            aligned = similarity(text[:, 0], gap[:, None]) / config.association_temperature  # Z_align
            logits = config.w_tac * aligned + (1 - config.w_tac) * logits
        terms = Losses()
        terms.add(contrastive=info_nce(logits, temperature=1.0), weight=1 - config.w_hca)  # L_con
        if config.w_hca > 0:
            pseudo_target = self.hinge(fused, text, target, None if config.unmasked else text_mask)  # e
            associated = similarity(pseudo_target, fused[:, :1])
            reasoning = info_nce(associated, temperature=config.association_temperature)
            terms.add(reasoning=reasoning, weight=config.w_hca)  # L_reason

        terms.observe_match(s)
        return terms

    def query(self, tokens: Tensor, texts: Sequence[str], backbone: Backbone) -> Tensor:
        """Embed queries: normalise(r0 + m0), ``[B, H]``."""
        return _query(backbone.compose(tokens, texts).hidden, backbone.text_pass(texts)[0])

    def text_query(self, texts: Sequence[str], backbone: Backbone) -> Tensor:
        """Embed texts that have no reference: normalise(m0), ``[B, H]``."""
        return functional.normalize(full_precision(backbone.text_pass(texts)[0][:, 0]), dim=-1)

    def targets(self, tokens: Tensor, backbone: Backbone) -> Tensor:
        """Embed a gallery: normalise(t0), ``[N, 1, H]``."""
        return _targets(backbone.image_pass(tokens))


def _query(fused: Tensor, text: Tensor) -> Tensor:
    return functional.normalize(full_precision(fused[:, 0]) + full_precision(text[:, 0]), dim=-1)


def _targets(hidden: Tensor) -> Tensor:
    return functional.normalize(full_precision(hidden[:, :1]), dim=-1)
