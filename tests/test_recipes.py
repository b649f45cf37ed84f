"""Every recipe names a method that there is, and only switches and settings that there are."""

import sys
from pathlib import Path

import pytest

from triptych.methods import registry
from triptych.training.config import RunConfig

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RECIPES = sorted((Path(__file__).parents[1] / "recipes").glob("*.toml"))


def test_every_method_has_a_recipe() -> None:
    assert {path.stem for path in RECIPES} >= set(registry.names())


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_a_valid_run(path: Path) -> None:
    recipe = tomllib.loads(path.read_text(encoding="utf-8"))
    config = RunConfig.parse({"data": "somewhere", **recipe})
    switches = dict(config.method)
    assert switches.pop("name") == path.stem
    registry.configure(path.stem, switches)
