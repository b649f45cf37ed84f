import pytest
import torch

from triptych.backbones.base import BackboneShape
from triptych.errors import UsageError
from triptych.methods import registry
from triptych.methods.base import Method


def test_every_method_is_listed_with_a_paper_and_a_line() -> None:
    assert {"infonce", "rcl", "intent"} <= set(registry.names())
    assert list(registry.names()) == sorted(registry.names())
    for name in registry.names():
        method = registry.get(name)
        assert issubclass(method, Method)
        assert method.name == name
        assert method.paper
        assert method.summary.endswith(".")
        assert "\n" not in method.summary
        for switch, field in method.Config.model_fields.items():
            assert field.description, f"{name}.{switch} has no meaning"
            assert not field.is_required(), f"{name}.{switch} has no default"


def test_create_fills_in_defaults_and_takes_switches(shape: BackboneShape) -> None:
    method = registry.create("intent", {"alpha": 1.0, "lambda_range": [0.3, 0.7]}, shape)
    config = method.config.model_dump()
    assert (config["alpha"], config["mu"], config["lambda_range"]) == (1.0, 0.2, (0.3, 0.7))
    assert registry.configure("rcl") == registry.create("rcl", None, shape).config


def test_the_seed_decides_the_start_and_nothing_global_is_drawn(shape: BackboneShape) -> None:
    before = torch.random.get_rng_state()
    first, again, other = (registry.create("intent", {}, shape, seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["causal.weight"], other["causal.weight"])
    bound = shape.hidden**-0.5
    assert first["causal.weight"].abs().max() <= bound
    assert first["causal.weight"].std().item() == pytest.approx(bound / 3**0.5, rel=0.1)


@pytest.mark.parametrize(
    ("name", "settings", "parts"),
    [
        ("intnt", {}, ['unknown method "intnt"', 'did you mean "intent"?', "infonce", "rcl"]),
        ("rcl", {"temprature": 0.1}, ["rcl", "temprature", "temperature", "direction"]),
        ("rcl", {"direction": "both"}, ["rcl", "direction", "both", "'one' or 'sym'"]),
        ("rcl", {"temperature": 0}, ["rcl", "temperature", "greater than 0", "0"]),
        ("infonce", {"temperature": float("nan")}, ["temperature", "finite"]),
        ("intent", {"window_ratio": 1.5}, ["window_ratio", "1.5", "less than or equal to 1"]),
        ("intent", {"lambda_range": [0.7, 0.3]}, ["lambda_range", "[0.7, 0.3]"]),
        ("intent", {"counterfactual_bank": 2}, ["counterfactual_bank", "at least 4", "2"]),
        (
            "intent",
            {"counterfactual_bank": 4, "irrelevant": "own_target"},
            ["counterfactual_bank", "own_target"],
        ),
        ("intent", {"mu": 0, "robust": False}, ["mu", "L_rob"]),
        ("intent", {"mu": 0, "robust_from_epoch": 1}, ["mu", "L_rob"]),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed(
    shape: BackboneShape, name: str, settings: dict[str, object], parts: list[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        registry.create(name, settings, shape)
    for part in parts:
        assert part in str(caught.value)
    assert "Value error" not in str(caught.value)
