"""Recipes, options and --set."""

from pathlib import Path

import pytest

from triptych.cli.settings import find_recipe, merge, parse_assignment, read_recipe
from triptych.errors import DataError, UsageError
from triptych.methods import registry


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("method.alpha=0.6", "method.alpha", 0.6),
        ("training.epochs = 3", "training.epochs", 3),
        ("method.mask_diagonal=true", "method.mask_diagonal", True),
        ("training.betas=[0.9, 0.95]", "training.betas", [0.9, 0.95]),
        ('method.sod="neglog"', "method.sod", "neglog"),
        ("method.sod=neglog", "method.sod", "neglog"),
        ("training.captions=null", "training.captions", None),
        ("data.path=a=b.csv", "data.path", "a=b.csv"),
        ("training.learning_rate=1e-4", "training.learning_rate", 1e-4),
        ("data.init=", "data.init", ""),
    ],
)
def test_a_value_is_a_toml_or_json_literal_or_text(text: str, key: str, value: object) -> None:
    assert parse_assignment(text) == (key, value)


@pytest.mark.parametrize("text", ["method.alpha", "=3", ""])
def test_an_assignment_needs_a_key_and_an_equals_sign(text: str) -> None:
    with pytest.raises(UsageError, match="write KEY=VALUE"):
        parse_assignment(text)


def test_set_wins_over_options_and_options_over_the_recipe(tmp_path: Path) -> None:
    recipe = tmp_path / "own.toml"
    recipe.write_text(
        "[training]\nepochs = 1\nseed = 1\nbatch_size = 1\n[method]\nname = 'rcl'\n[data]\npath='d'\n"
    )
    options = {"training": {"epochs": 2, "seed": 2, "batch_size": None}, "method": {"name": None}}
    settings = merge(str(recipe), options, ["training.epochs=3", "backbone.queries=4"])
    assert settings == {
        "training": {"epochs": 3, "seed": 2, "batch_size": 1},
        "method": {"name": "rcl"},
        "backbone": {"queries": 4},
        "data": {"path": "d"},
    }


def test_paths_stay_text() -> None:
    settings = merge(None, {}, ["data.path=2024", "data.noise=null", "data.drop_noisy=true"])
    assert settings["data"] == {"path": "2024", "noise": None, "drop_noisy": True}


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("alpha=1", "write SECTION.KEY=VALUE; sections: method, training, backbone, data"),
        ("methods.alpha=1", 'unknown section "methods"; known: method, training, backbone, data'),
        ("data.paht=d", 'data: unknown setting "paht"; known here: path, images, noise'),
    ],
)
def test_what_is_unknown_is_named_with_what_is_known(assignment: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        merge(None, {}, [assignment])


@pytest.mark.parametrize("name", registry.names())
def test_each_method_has_a_recipe_of_its_name(name: str) -> None:
    assert read_recipe(find_recipe(name))["method"]["name"] == name


def test_an_unknown_recipe_is_an_error_that_lists_those_there_are() -> None:
    with pytest.raises(
        UsageError, match=r"no recipe \"intnt\": neither a file nor one of .*infonce, intent, rcl"
    ):
        find_recipe("intnt")


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("[method\n", DataError, "the recipe is not TOML"),
        ("[trainig]\nepochs = 1\n", UsageError, 'unknown section "trainig"'),
        ("method = 'rcl'\n", UsageError, r"\[method\] must be a section"),
    ],
)
def test_a_bad_recipe_is_named(text: str, kind: type[Exception], message: str, tmp_path: Path) -> None:
    recipe = tmp_path / "bad.toml"
    recipe.write_text(text)
    with pytest.raises(kind, match=message) as caught:
        merge(str(recipe), {}, [])
    assert str(recipe) in str(caught.value)
