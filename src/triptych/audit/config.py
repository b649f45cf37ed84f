"""What an audit does: one frozen model, written to its folder so that it is only gone on with as it was begun."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class AuditConfig(BaseModel):
    """Settings of an audit; the defaults fit two cores, half an hour and 12,000 triplets."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folds: int = Field(5, ge=2, description="parts of the data; each is scored by models that never saw it")
    rounds: int = Field(
        2, ge=1, le=4, description="a later round trains only on the triplets that the one before believed"
    )
    methods: tuple[str, ...] = Field(
        ("infonce",), min_length=1, description="how the models are trained; all of them in each round"
    )
    seeds: tuple[int, ...] = Field((0,), min_length=1, description="a model of each method for each seed")
    epochs: int = Field(5, ge=1, description="passes of each model over its triplets")
    batch_size: int = Field(128, ge=2, description="triplets a step")
    learning_rate: float | None = Field(
        None, gt=0, description="peak rate; the backbone's own where not given"
    )
    backbone: dict[str, Any] = Field(
        default_factory=lambda: {"name": "lite"}, description="name and sizes of the backbone"
    )
    probes: float = Field(
        0.5, gt=0, le=2, description="triplets made wrong on purpose for the classifier, as a share of all"
    )
    swaps: int = Field(3, ge=0, description="other references, and other texts, tried for each triplet")
    flag_at: float = Field(0.5, gt=0, lt=1, description="a triplet is flagged where its score is below this")
    seed: int = Field(0, ge=0, description="seed of folds, probes and classifier")
