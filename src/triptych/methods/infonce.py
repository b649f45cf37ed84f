"""InfoNCE on the fused query: the naive baseline that trusts every annotation."""

from __future__ import annotations

from functools import partial
from typing import Literal

from pydantic import Field

from triptych.backbones.base import Backbone, BackboneShape
from triptych.methods.about.infonce import INFONCE as ABOUT
from triptych.methods.base import Losses, Method, TripletBatch
from triptych.methods.config import MethodConfig
from triptych.methods.temperature import Temperature
from triptych.objectives import info_nce, similarity, symmetric


class InfoNCEConfig(MethodConfig):
    """Switches of :class:`InfoNCE`."""

    temperature: float = Field(0.07, gt=0, description="softmax temperature τ, or where learning it starts")
    learnable_temperature: bool = Field(False, description="learn τ, used from 0.01 up")
    direction: Literal["one", "sym"] = Field(
        "one", description="one: classify the target of each query; sym: also the query of each target"
    )


class InfoNCE(Method):
    """Cross-entropy of the composed query over the batch's targets."""

    name = "infonce"
    paper = "Representation Learning with Contrastive Predictive Coding (arXiv 2018)"
    summary = "Naive baseline: pulls every annotated pair together, so it memorises the wrong ones."
    about = ABOUT
    Config = InfoNCEConfig
    captions = "random4"

    config: InfoNCEConfig

    def __init__(self, config: InfoNCEConfig, shape: BackboneShape, *, seed: int = 0) -> None:
        super().__init__(config, shape, seed=seed)
        self.temperature = Temperature(config.temperature, learnable=config.learnable_temperature)

    def losses(self, batch: TripletBatch, backbone: Backbone) -> Losses:
        """Return ``infonce``: -log p of the annotated target, per triplet."""
        composed = backbone.compose(batch.reference_tokens, batch.texts)
        s = similarity(composed.vector, backbone.targets(batch.target_tokens))

        tau = self.temperature()
        loss = partial(info_nce, temperature=tau)
        terms = Losses(infonce=symmetric(loss, s) if self.config.direction == "sym" else loss(s))
        terms.observe_match(s, tau)
        return terms
