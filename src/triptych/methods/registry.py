"""Registry of methods: name to class, and settings to a checked configuration.

A method is found by being there: any module of this package that defines a
:class:`~triptych.methods.base.Method` with a ``name``.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import triptych.methods
from triptych.backbones import registry as backbones
from triptych.backbones.base import BackboneShape
from triptych.errors import UsageError, explain_validation
from triptych.methods.base import Method
from triptych.methods.config import MethodConfig


def names() -> tuple[str, ...]:
    """List the names of all methods, sorted."""
    return tuple(sorted(_classes()))


def get(name: str) -> type[Method]:
    """Return the class of a method.

    Raises:
        UsageError: there is none; names those that there are.
    """
    classes = _classes()
    if name not in classes:
        raise UsageError(f'unknown method "{name}"{_hint(name, classes)}\n  Methods: {", ".join(names())}.')
    return classes[name]


def configure(name: str, settings: Mapping[str, Any] | None = None) -> MethodConfig:
    """Check the switches of a method and fill in the defaults.

    Raises:
        UsageError: the method, a switch or a value is unknown; names it and what is allowed.
    """
    return explain_validation(get(name).Config, dict(settings or {}), f"method {name}")


def create(name: str, settings: Mapping[str, Any] | None, shape: BackboneShape, *, seed: int = 0) -> Method:
    """Make a method.

    Args:
        name: as :func:`names` lists it.
        settings: its switches by name; those left out keep their defaults.
        shape: sizes of the backbone that it will be used with.
        seed: seeds the random start of its own layers.

    Raises:
        UsageError: the method, a switch or a value is unknown, or it needs a Q-Former and the backbone has none.
    """
    if get(name).qformer and not shape.qformer:
        raise _no_qformer(name, "this backbone")
    return get(name)(configure(name, settings), shape, seed=seed)


def refuse_unfit(name: str, backbone: str) -> None:
    """Refuse a method that needs a Q-Former on a backbone without one, before either is built.

    Raises:
        UsageError: says which backbones fit the method and which methods the backbone.
    """
    if get(name).qformer and not backbones.entry(backbone).qformer:
        raise _no_qformer(name, f'backbone "{backbone}"')


def _no_qformer(name: str, what: str) -> UsageError:
    fitting = ", ".join(known for known, entry in backbones.ENTRIES.items() if entry.qformer)
    others = ", ".join(other for other in names() if not get(other).qformer)
    return UsageError(
        f'method "{name}" needs a Q-Former, which {what} has not.\n'
        f"  Backbones that fit it: {fitting}. Methods that fit this backbone: {others}."
    )


@cache
def _classes() -> dict[str, type[Method]]:
    found: dict[str, type[Method]] = {}
    for module in pkgutil.iter_modules(triptych.methods.__path__, "triptych.methods."):
        for value in vars(importlib.import_module(module.name)).values():
            if not (isinstance(value, type) and issubclass(value, Method) and "name" in vars(value)):
                continue
            if found.setdefault(value.name, value) is not value:
                raise RuntimeError(f'two methods are named "{value.name}"')
    return found


def _hint(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f'; did you mean "{close[0]}"?' if close else ""
