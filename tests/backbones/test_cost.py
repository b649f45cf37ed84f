"""Costs by hand on a layer, and the specification's figures of BLIP-2 at full size, all without weights."""

from typing import Any

import pytest
import torch
from torch import nn

from triptych.backbones.cost import (
    Pass,
    PassCosts,
    hooked_parameter_count,
    measure,
    parameter_bytes,
    parameter_count,
    planned_backbone,
)
from triptych.errors import UsageError

ENCODE = Pass("encode_images", gradient=False)


class Small(nn.Module):
    """A fused ``qkv`` that profilers pass over, a Linear, a LayerNorm and a frozen table."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(4, 12)
        self.linear = nn.Linear(4, 3)
        self.norm = nn.LayerNorm(3)
        self.table = nn.Parameter(torch.zeros(5, 4), requires_grad=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        query, key, value = self.qkv(rows).chunk(3, dim=-1)
        result: torch.Tensor = self.norm(self.linear((query @ key.T) @ value))
        return result


def test_counts_by_hand() -> None:
    """6 rows: Linear 6·4·3 = 72 and LayerNorm 4·6·3 = 72 hooked; true also qkv 6·4·12 = 288 and 2·6·6·4 = 288."""
    with torch.device("meta"):
        module = Small()
    rows = torch.empty(6, 4, device="meta")
    cost = measure(module, lambda: module(rows))
    assert (cost.hooked_macs, cost.macs) == (144, 72 + 288 + 288)
    assert cost.modules == {"linear", "norm"}
    assert parameter_count(module) == 60 + 15 + 6 + 20
    assert parameter_count(module, trained=True) == 60 + 15 + 6
    assert hooked_parameter_count(module) == 15 + 6
    assert hooked_parameter_count(module, frozenset({"norm"})) == 6
    assert parameter_bytes(module) == 4 * 101


def test_what_is_kept_by_hand() -> None:
    """A linear layer keeps its input, 6·4 floats; exp keeps its output, 6·3; nothing without a gradient."""
    with torch.device("meta"):
        layer = nn.Linear(4, 3)
    rows = torch.empty(6, 4, device="meta")
    assert measure(layer, lambda: layer(rows).exp()).saved_bytes == 4 * (24 + 18)
    with torch.no_grad():
        assert measure(layer, lambda: layer(rows).exp()).saved_bytes == 0


def test_half_precision_keeps_half() -> None:
    """The input as it was cast, 6·4 halves; the cast of the weights is autocast's own and not counted here."""
    with torch.device("meta"):
        layer = nn.Linear(4, 3)
    rows = torch.empty(6, 4, device="meta")
    assert measure(layer, lambda: layer(rows), precision="bf16").saved_bytes == 2 * 24


def test_the_most_that_is_held_at_once() -> None:
    """Of three sums in a row two are alive at a time: 1000 floats each."""
    module = nn.Identity()
    start = torch.empty(1000, device="meta")

    def call() -> None:
        value = start
        for _ in range(3):
            value = value + 1

    assert measure(module, call).peak_bytes == 2 * 4000


@pytest.fixture(scope="module")
def full() -> PassCosts:
    """BLIP-2 with ViT-g/14 on the meta device."""
    return PassCosts(planned_backbone({"name": "blip2"}))


def test_parameters_of_the_specification(full: PassCosts) -> None:
    """Specification 2.7: 915.69 M in counted modules, about 1 172 M in truth."""
    assert hooked_parameter_count(full.backbone) == pytest.approx(915.69e6, abs=0.005e6)
    assert parameter_count(full.backbone) == pytest.approx(1172e6, abs=0.5e6)
    assert all(value.is_meta for value in full.backbone.parameters())


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (ENCODE, 193.50),
        (Pass("image_pass"), 6.28),
        (Pass("compose"), 9.00),
        (Pass("refine"), 5.44),
        (Pass("prompt", tokens=32), 5.44),
    ],
)
def test_building_blocks_of_the_specification(full: PassCosts, what: Pass, expected: float) -> None:
    """To 0.15 %: the specification's blocks leave LayerNorm and projections out, which the printed sums hold."""
    cost = full(what)
    assert cost.hooked_macs / 1e9 == pytest.approx(expected, rel=1.5e-3)
    assert cost.macs > cost.hooked_macs
    assert (cost.saved_bytes > 0) == what.gradient


def test_a_smaller_model_by_settings() -> None:
    sizes = {
        "image_size": 28,
        "image_width": 16,
        "vision_layers": 2,
        "vision_heads": 2,
        "vision_intermediate": 32,
    }
    qformer = {
        "queries": 4,
        "hidden": 24,
        "layers": 2,
        "heads": 2,
        "intermediate": 48,
        "vocabulary": 99,
        "dim": 8,
    }
    backbone: Any = planned_backbone({"name": "blip2", "sizes": {**sizes, **qformer}})
    assert backbone.shape.image_tokens == 5
    cost = PassCosts(backbone)(ENCODE)
    blocks = 2 * (5 * (16 * 16 + 2 * 16 * 32) + 2 * 4 * 5 * 16)
    assert cost.hooked_macs == blocks + 4 * 3 * 14 * 14 * 16
    qkv, attention = 5 * 16 * 48, 2 * 5 * 5 * 16
    assert cost.macs == 2 * (5 * (16 * 16 + 2 * 16 * 32) + qkv + attention) + 4 * 3 * 14 * 14 * 16


def test_an_unknown_backbone_is_named() -> None:
    with pytest.raises(UsageError, match="blip3"):
        planned_backbone({"name": "blip3"})
