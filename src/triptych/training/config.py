"""What a training run was asked to do: one frozen model, written to the run folder with its hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator

from triptych.errors import explain_validation


class TrainingConfig(BaseModel):
    """The training loop's settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: int = Field(12, ge=1, description="passes over the training triplets")
    batch_size: int = Field(
        128, ge=2, description="triplets a step; a batch's other targets are the negatives"
    )
    learning_rate: float | None = Field(
        None, gt=0, description="peak rate; the backbone's own default where not given"
    )
    weight_decay: float = Field(0.05, ge=0, description="AdamW weight decay")
    betas: tuple[float, float] = Field((0.9, 0.98), description="AdamW betas")
    schedule: Literal["cosine", "constant", "onecycle"] = Field(
        "cosine", description="learning rate over the run"
    )
    warmup_epochs: float = Field(0.5, ge=0, description="linear warm-up, in epochs")
    horizon_epochs: int | None = Field(
        None,
        ge=1,
        description="epochs over which the rate falls, the run's own where not given; SPRC on CIRR has 80 of 50",
    )
    clip_norm: float = Field(1.0, ge=0, description="gradient clipping norm; 0 = off")
    captions: Literal["fixed", "random4"] | None = Field(
        None,
        description='"fixed" = "A and B", "random4" = one of four joins a step; the method\'s own where not given',
    )
    precision: Literal["no", "bf16", "fp16"] = Field(
        "no",
        validation_alias=AliasChoices("precision", "mixed_precision"),
        description="autocast of the passes, losses stay in float32; fp16 needs a GPU",
    )
    micro_batch: int | None = Field(
        None,
        ge=1,
        description="triplets of a batch that run through the backbone at once; the gradient is that of the whole "
        "batch, in less memory and more time; all at once where not given",
    )
    tower_rate: float = Field(
        1e-6, gt=0, description="peak rate of the vision tower's blocks that the backbone lets train"
    )
    patience: int = Field(
        10, ge=0, description="stop when an epoch would be this many after the best one; 0 = never"
    )
    validate_on: str = Field("val", description="split that selects the best model")
    checkpoint_every: int = Field(
        100, ge=1, description="steps between checkpoints (one a finished epoch besides)"
    )
    term_gradients_every: int = Field(
        50, ge=0, description="steps between gradient norms of each loss term; 0 = never"
    )
    noise_curriculum: tuple[float, ...] = Field(
        (),
        description="rates of wrong triplets, each for an equal part of the epochs, such as [0.2, 0.5, 0.8]; "
        "empty = all of the manifest from the start",
    )
    cache_dtype: Literal["float16", "int8"] | None = Field(
        None,
        description="how image tokens are stored; null = as they are found, float16 where there are none",
    )
    memory: Literal["ram", "disk"] = Field(
        "ram",
        description="where a method keeps what it remembers of each triplet; disk = mapped files in the run",
    )
    seed: int = Field(0, ge=0, description="seed of weights, order, captions and dropout")

    @field_validator("noise_curriculum")
    @classmethod
    def _rising(cls, rates: tuple[float, ...]) -> tuple[float, ...]:
        if any(not 0 <= rate <= 1 for rate in rates) or list(rates) != sorted(rates):
            raise ValueError("rates must lie in [0, 1] and must not fall")
        return rates


class RunConfig(BaseModel):
    """Everything that decides a run's result."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: str
    images: str | None = None
    noise: str | None = None
    drop_noisy: bool = False
    leave_out_missing: bool = False
    init: str | None = None
    backbone: dict[str, Any] = Field(default_factory=lambda: {"name": "lite"})
    method: dict[str, Any] = Field(default_factory=lambda: {"name": "intent"})
    training: TrainingConfig = TrainingConfig()

    def fingerprint(self) -> str:
        """Return a SHA-256 of the settings."""
        return settings_hash(self.model_dump(mode="json"))

    @classmethod
    def parse(cls, values: dict[str, Any]) -> RunConfig:
        """Read settings.

        Raises:
            UsageError: a key is unknown or a value does not fit; the message names the key.
        """
        return explain_validation(cls, values, "run")


def settings_hash(values: Mapping[str, Any]) -> str:
    """Return a SHA-256 of settings as they are written: a version that knows more of them finds the same."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
