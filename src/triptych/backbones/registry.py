"""Backbones by name; a backbone's module is imported only when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import BaseModel

from triptych.errors import UsageError, explain_validation
from triptych.randomness import derive_seed

if TYPE_CHECKING:
    from triptych.backbones.base import Backbone


@dataclass(frozen=True)
class Entry:
    """Where a backbone is.

    Attributes:
        module: the module, below this package.
        config: its settings' class.
        backbone: its class, made from the settings.
        qformer: whether it composes by a Q-Former, which most methods need.
    """

    module: str
    config: str
    backbone: str
    qformer: bool = True

    def load(self, name: str) -> Any:
        """Import the module and return a class of it."""
        return getattr(importlib.import_module(f"triptych.backbones.{self.module}"), name)


ENTRIES: Mapping[str, Entry] = {
    "lite": Entry("lite", "LiteConfig", "LiteBackbone"),
    "blip2": Entry("blip2", "Blip2Config", "Blip2Backbone"),
    "blip2-vitl": Entry("blip2", "Blip2VitLConfig", "Blip2VitLBackbone"),
    "clip": Entry("clip", "ClipConfig", "ClipBackbone", qformer=False),
}
NAMES = tuple(ENTRIES)


def entry(name: str) -> Entry:
    """Return where a backbone is.

    Raises:
        UsageError: there is no backbone of that name.
    """
    if name not in ENTRIES:
        raise UsageError(f'unknown backbone "{name}"; there are: {", ".join(NAMES)}')
    return ENTRIES[name]


def config_class(name: str) -> type[BaseModel]:
    """Return the settings model of a backbone.

    Raises:
        UsageError: there is no backbone of that name.
    """
    found = entry(name)
    config: type[BaseModel] = found.load(found.config)
    return config


def configure(name: str, settings: Mapping[str, Any] | None = None) -> BaseModel:
    """Check the settings of a backbone and fill in the defaults.

    Raises:
        UsageError: the name or a setting is unknown, or a value does not fit.
    """
    return explain_validation(config_class(name), dict(settings or {}), f"backbone {name}")


def create_backbone(
    settings: Mapping[str, Any], *, seed: int = 0, progress: Callable[[int, int], None] | None = None
) -> Backbone:
    """Build a backbone from ``{"name": ..., other settings}``.

    Args:
        settings: the name, and what is not as by default.
        seed: decides untrained weights.
        progress: called with (megabytes done, megabytes in all) where weights are fetched from the hub.

    Raises:
        UsageError: the name or a setting is unknown, a value does not fit, or weights are not there.
        DataError: weights cannot be used.
    """
    values = dict(settings)
    name = str(values.pop("name", "lite"))
    config = configure(name, values)
    found = entry(name)
    if isinstance(weights := getattr(config, "weights", None), str):
        from triptych.backbones.hub import find_weights

        find_weights(weights, progress)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "backbone"))
        backbone: Backbone = found.load(found.backbone)(config)
        return backbone


def settled(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that mean the same from any folder: a folder of weights by its whole path."""
    values = dict(settings)
    weights = values.get("weights")
    if isinstance(weights, str) and Path(weights).expanduser().is_dir():
        values["weights"] = str(Path(weights).expanduser().resolve())
    return values
