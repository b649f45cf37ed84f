"""``compat`` and the ablation rows: sets of switches that have a name, and what they refuse."""

import pytest

from triptych.errors import UsageError
from triptych.methods import registry
from triptych.methods.ablations import ablations, apply_ablations

PRESETS = {name: registry.get(name).Config.presets for name in registry.names()}


@pytest.mark.parametrize(
    ("name", "compat"), [(name, compat) for name, presets in PRESETS.items() for compat in presets]
)
def test_compat_sets_its_switches(name: str, compat: str) -> None:
    fixed = registry.get(name).Config.presets[compat]
    config = registry.configure(name, {"compat": compat})
    assert fixed
    assert {switch: getattr(config, switch) for switch in fixed} == dict(fixed)
    assert registry.configure(name, config.model_dump()) == config


@pytest.mark.parametrize("name", [name for name, presets in PRESETS.items() if presets])
def test_the_released_preset_differs(name: str) -> None:
    """A method without a preset of its paper is in print what is recommended, as far as the switches go."""
    assert set(PRESETS[name]) in ({"released"}, {"released", "paper"})
    made = [registry.configure(name, {"compat": c}) for c in ("recommended", "released", "paper")]
    switches = [config.model_dump(exclude={"compat"}) for config in made]
    assert switches[0] != switches[1]
    assert switches[1] != switches[2]


def test_compat_with_a_switch_that_it_fixes_names_both() -> None:
    with pytest.raises(UsageError, match=r"compat.*released.*mu = 0\.5.*mu = 0\.2"):
        registry.configure("intent", {"compat": "released", "mu": 0.2})
    with pytest.raises(UsageError, match="compat"):
        registry.configure("intent", {"compat": "published"})


@pytest.mark.parametrize("row", [name for name, _ in ablations()])
def test_a_row_is_a_valid_configuration(row: str) -> None:
    settings = apply_ablations([row], {})
    name = settings.pop("name")
    assert row.startswith(f"{name}.")
    assert registry.configure(name, settings) != registry.configure(name, {})


def test_rows_add_up() -> None:
    assert apply_ablations(["intent.A3", "intent.B4"], {"scale": 5.0}) == {
        "name": "intent",
        "scale": 5.0,
        "positive_weight_reward": False,
        "caco": "mse",
    }


@pytest.mark.parametrize(
    ("rows", "settings", "match"),
    [
        (["intent.B4", "intent.B5"], {}, "intent.B5 sets caco = 'l1'.*intent.B4"),
        (["intent.A1"], {"alpha": 0.5}, "intent.A1 sets alpha = 0.0.*alpha = 0.5"),
        (["intent.A1"], {"name": "rcl"}, "intent.A1 sets name = 'intent'.*name = 'rcl'"),
        (["intent.Z9"], {}, 'no ablation row "intent.Z9"'),
    ],
)
def test_what_contradicts_is_named(rows: list[str], settings: dict[str, object], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        apply_ablations(rows, settings)
