"""RCL: robust contrastive learning, from negatives only."""

from __future__ import annotations

from functools import partial
from typing import Literal

from pydantic import Field

from triptych.backbones.base import Backbone, BackboneShape
from triptych.methods.about.rcl import RCL as ABOUT
from triptych.methods.base import Losses, Method, TripletBatch
from triptych.methods.config import MethodConfig
from triptych.methods.temperature import Temperature
from triptych.objectives import (
    info_nce,
    robust_contrastive,
    similarity,
    symmetric,
)


class RCLConfig(MethodConfig):
    """Switches of :class:`RCL`."""

    temperature: float = Field(0.07, gt=0, description="softmax temperature τ, or where learning it starts")
    learnable_temperature: bool = Field(False, description="learn τ, used from 0.01 up (TME)")
    direction: Literal["one", "sym"] = Field(
        "one", description="one: softmax over targets; sym: mean with the softmax over queries"
    )


class RCL(Method):
    """RCL (TPAMI 2023), adapted to composed queries: a wrong positive harms more than a wrong negative."""

    name = "rcl"
    paper = "Cross-Modal Retrieval with Partially Mismatched Pairs (TPAMI 2023)"
    summary = (
        "Only pushes wrong targets away and never pulls the annotated one, so a wrong pair costs little."
    )
    about = ABOUT
    Config = RCLConfig
    captions = "random4"

    config: RCLConfig

    def __init__(self, config: RCLConfig, shape: BackboneShape, *, seed: int = 0) -> None:
        super().__init__(config, shape, seed=seed)
        self.temperature = Temperature(config.temperature, learnable=config.learnable_temperature)

    def losses(self, batch: TripletBatch, backbone: Backbone) -> Losses:
        """Return ``robust``: -Σ log(1 - p) over the other targets, per triplet."""
        composed = backbone.compose(batch.reference_tokens, batch.texts)
        s = similarity(composed.vector, backbone.targets(batch.target_tokens))

        tau = self.temperature()
        name, objective = ("infonce", info_nce) if self.delayed else ("robust", robust_contrastive)
        loss = partial(objective, temperature=tau)
        terms = Losses(**{name: symmetric(loss, s) if self.config.direction == "sym" else loss(s)})
        terms.observe_match(s, tau)
        return terms
