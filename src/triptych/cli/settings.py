"""Settings of a run from a recipe, options and ``--set``, the later ones winning."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from triptych.errors import DataError, UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SECTIONS = ("method", "training", "backbone", "data")
DATA_KEYS = ("path", "images", "noise", "drop_noisy", "leave_out_missing", "init", "cache")

Settings = dict[str, dict[str, Any]]


def merge(
    recipe: str | None, options: Mapping[str, Mapping[str, Any]], assignments: Iterable[str]
) -> Settings:
    """Put settings together: ``--set`` over options over the recipe; what is left out keeps its default.

    Args:
        recipe: a file or the name of one that comes with Triptych.
        options: section to key to value; None stands for an option that was not given.
        assignments: ``SECTION.KEY=VALUE`` each.

    Raises:
        UsageError: a section or a key of [data] is unknown; unknown switches are found where they are used.
        DataError: the recipe cannot be read.
    """
    settings: Settings = {section: {} for section in SECTIONS}
    if recipe is not None:
        path = find_recipe(recipe)
        for section, values in read_recipe(path).items():
            _check_section(section, str(path))
            if not isinstance(values, dict):
                raise UsageError(f"{path}: [{section}] must be a section, not a value")
            settings[section].update(values)
    for section, given in options.items():
        settings[section].update({key: value for key, value in given.items() if value is not None})
    for assignment in assignments:
        name, value = parse_assignment(assignment)
        section, dot, key = name.partition(".")
        if not dot:
            raise UsageError(f"--set {assignment}: write SECTION.KEY=VALUE; sections: {', '.join(SECTIONS)}")
        _check_section(section, f"--set {assignment}")
        settings[section][key] = value
    if unknown := sorted(set(settings["data"]) - set(DATA_KEYS)):
        raise UsageError(f'data: unknown setting "{unknown[0]}"; known here: {", ".join(DATA_KEYS)}')
    for key, value in settings["data"].items():
        if key not in ("drop_noisy", "leave_out_missing") and value is not None:
            settings["data"][key] = str(value)  # a folder may be called 2024
    return settings


def parse_assignment(text: str) -> tuple[str, Any]:
    """Split ``KEY=VALUE``; the value is a TOML or JSON literal, or else text as it stands.

    Raises:
        UsageError: there is no ``=``, or nothing before it.

    Example:
        >>> parse_assignment("method.alpha=0.6"), parse_assignment("method.sod=neglog")
        (('method.alpha', 0.6), ('method.sod', 'neglog'))
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--set {text}: write KEY=VALUE, such as method.alpha=0.6")
    return key.strip(), _literal(value.strip())


def parse_list(text: str) -> tuple[str, list[Any]]:
    """Split ``KEY=VALUE,VALUE``; each value is a literal as :func:`parse_assignment` reads it.

    Raises:
        UsageError: there is no ``=``, nothing before it, or no value.

    Example:
        >>> parse_list("method.alpha=0.2,0.4"), parse_list("method.sod=neglog,ce_scaled")
        (('method.alpha', [0.2, 0.4]), ('method.sod', ['neglog', 'ce_scaled']))
    """
    key, equals, values = text.partition("=")
    if not equals or not key.strip() or not values.strip():
        raise UsageError(f"--vary {text}: write KEY=VALUE,VALUE, such as method.alpha=0.2,0.4,0.6")
    try:
        return key.strip(), list(tomllib.loads(f"values = [{values}]")["values"])
    except tomllib.TOMLDecodeError:
        return key.strip(), [_literal(value.strip()) for value in values.split(",")]


def _literal(value: str) -> Any:
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        pass
    try:
        return json.loads(value)  # null, among others
    except ValueError:
        return value


def find_recipe(recipe: str) -> Path:
    """Return the file of a recipe: a path, or the name of one that comes with Triptych.

    Raises:
        UsageError: there is none; lists those that there are.
    """
    path = Path(recipe)
    if path.is_file():
        return path
    known = {found.stem: found for found in sorted(_recipes_folder().glob("*.toml"))}
    if recipe in known:
        return known[recipe]
    raise UsageError(f'there is no recipe "{recipe}": neither a file nor one of {", ".join(known) or "none"}')


def read_recipe(path: Path) -> dict[str, Any]:
    """Read a recipe.

    Raises:
        DataError: it cannot be read, or is no TOML.
    """
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"the recipe cannot be read ({error.strerror})", file=path) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        mend = "See recipes/intent.toml for an example."
        raise DataError(f"the recipe is not TOML: {error}", file=path, mend=mend) from error
    return values


def _recipes_folder() -> Path:
    """Find the recipes: inside the installed package, or beside ``src`` in a source folder."""
    package = Path(__file__).parents[1]
    installed = package / "recipes"
    return installed if installed.is_dir() else package.parents[1] / "recipes"


def _check_section(section: str, where: str) -> None:
    if section not in SECTIONS:
        raise UsageError(f'{where}: unknown section "{section}"; known: {", ".join(SECTIONS)}')
