"""Each parameter at its own rate."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from triptych.methods import registry
from triptych.training.groups import parameter_groups
from triptych.training.learner import Learner


def tiny_backbone() -> Any:
    path = Path(__file__).parents[1] / "methods" / "conftest.py"
    spec = importlib.util.spec_from_file_location("tiny_backbone", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TinyBackbone()


def test_the_towers_trained_blocks_have_a_rate_of_their_own() -> None:
    """Also under a method that gives the backbone another one: SSN's is a fifth of the head's."""
    backbone = tiny_backbone()
    backbone.blocks = nn.ModuleList([nn.Linear(12, 12)])
    backbone.trained_tower = ("blocks",)
    settings = {"heads": 2, "feedforward": 8, "backbone_rate": 0.2}
    learner = Learner(backbone, registry.create("ssn", settings, backbone.shape))
    named, groups = parameter_groups(learner, tower=0.01)
    ids = {id(value): name for name, value in named.items()}
    rates = {ids[id(value)]: group["factor"] for group in groups for value in group["params"]}
    assert rates["backbone.blocks.0.weight"] == rates["backbone.blocks.0.bias"] == 0.01
    assert rates["backbone.query_tokens"] == 0.2
    assert rates["method.fusion.output.weight"] == 1.0
    assert len(rates) == len(named) == len(list(learner.parameters()))


def test_gradient_checkpointing_changes_no_gradient() -> None:
    from torch import rand

    tokens = rand(3, 4, 12)
    gradients = []
    for checkpointed in (False, True):
        backbone = tiny_backbone().train()
        if checkpointed:
            backbone.checkpoint_gradients()
            assert all(layer.gradient_checkpointing for layer in backbone.qformer.encoder.layer)
        backbone.compose(tokens, ["a", "bc", "def"], attention=True).tokens.pow(3).sum().backward()
        gradients.append(backbone.qformer.encoder.layer[0].output_query.dense.weight.grad)
    assert gradients[0].abs().sum() > 0
    assert (gradients[0] - gradients[1]).abs().max() == pytest.approx(0, abs=1e-7)
