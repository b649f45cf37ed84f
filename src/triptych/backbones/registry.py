"""Backbones by name; a backbone's module is imported only when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import BaseModel

from triptych.backbones.base import Backbone
from triptych.errors import UsageError, explain_validation
from triptych.randomness import derive_seed

NAMES = ("lite",)


def config_class(name: str) -> type[BaseModel]:
    """Return the settings model of a backbone.

    Raises:
        UsageError: there is no backbone of that name.
    """
    if name == "lite":
        from triptych.backbones.lite import LiteConfig

        return LiteConfig
    raise UsageError(f'unknown backbone "{name}"; there are: {", ".join(NAMES)}')


def configure(name: str, settings: Mapping[str, Any] | None = None) -> BaseModel:
    """Check the settings of a backbone and fill in the defaults.

    Raises:
        UsageError: the name or a setting is unknown, or a value does not fit.
    """
    return explain_validation(config_class(name), dict(settings or {}), f"backbone {name}")


def create_backbone(settings: Mapping[str, Any], *, seed: int = 0) -> Backbone:
    """Build a backbone from ``{"name": ..., other settings}``; ``seed`` decides its untrained weights.

    Raises:
        UsageError: the name or a setting is unknown, or a value does not fit.
    """
    values = dict(settings)
    config = configure(values.pop("name", "lite"), values)
    from triptych.backbones.lite import LiteBackbone, LiteConfig

    assert isinstance(config, LiteConfig)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "backbone"))
        return LiteBackbone(config)
