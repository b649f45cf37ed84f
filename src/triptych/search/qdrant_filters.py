"""A filter in Qdrant's language, with the meaning that it has in SQL: what has no value passes no comparison."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from typing import Any

from qdrant_client import models

from triptych.search.filter_tree import And, Comparison, Filter, Not, Or, Value

Distinct = Callable[[str], Iterable[str]]

_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_RANGES = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def to_qdrant(tree: Filter, distinct: Distinct) -> models.Filter:
    """Write a filter for Qdrant.

    Qdrant cannot order texts nor match a part of one exactly; such a comparison becomes a list of the values that pass.

    Args:
        tree: the filter.
        distinct: gives all values of a column of texts.

    Example:
        >>> found = to_qdrant(Comparison("colour", "LIKE", ("r%",)), lambda column: ["red", "rose", "blue"])
        >>> found.must[0].match.any
        ['red', 'rose']
    """
    return _written(tree, True, distinct)


def key_of(column: str) -> str:
    """Return a column's name as a path into a payload."""
    return column if _PLAIN_KEY.fullmatch(column) else f'"{column}"'


def _written(tree: Filter, wanted: bool, distinct: Distinct) -> models.Filter:
    """Write what passes a filter, or what fails it for another reason than that a value is missing."""
    if isinstance(tree, Not):
        return _written(tree.part, not wanted, distinct)
    if isinstance(tree, Comparison):
        return _comparison(tree, wanted, distinct)
    parts: list[models.Condition] = [_written(part, wanted, distinct) for part in tree.parts]
    both = isinstance(tree, And) if wanted else isinstance(tree, Or)
    return models.Filter(must=parts) if both else models.Filter(should=parts)


def _comparison(test: Comparison, wanted: bool, distinct: Distinct) -> models.Filter:
    key, word = key_of(test.column), test.operator.upper()
    missing = models.IsEmptyCondition(is_empty=models.PayloadField(key=key))
    if word.endswith("NULL"):
        empty = ("NOT" not in word) == wanted
        return models.Filter(must=[missing]) if empty else models.Filter(must_not=[missing])
    negated = word.startswith("NOT ") or word in ("!=", "<>")
    word = "=" if word in ("!=", "<>") else word.removeprefix("NOT ")
    passing = _passing(key, test.column, word, test.values, distinct)
    if negated == wanted:
        return models.Filter(must_not=[missing, passing])
    return models.Filter(must=[passing])


def _passing(
    key: str, column: str, word: str, values: tuple[Value, ...], distinct: Distinct
) -> models.Condition:
    first = values[0]
    if isinstance(first, bool):
        chosen: list[models.Condition] = [
            models.FieldCondition(key=key, match=models.MatchValue(value=value))
            for value in (True, False)
            if _passes(value, word, values)
        ]
        return models.Filter(should=chosen) if chosen else _any(key, [])
    if isinstance(first, str):
        if word in ("=", "IN"):
            return _any(key, [str(value) for value in values])
        return _any(key, [value for value in distinct(column) if _passes(value, word, values)])
    if word == "BETWEEN":
        return _range(key, gte=values[0], lte=values[1])
    if word in ("=", "IN"):
        return models.Filter(should=[_range(key, gte=value, lte=value) for value in values])
    return _range(key, **{_RANGES[word]: first})


def _any(key: str, values: list[str]) -> models.FieldCondition:
    return models.FieldCondition(key=key, match=models.MatchAny(any=values))


def _range(key: str, **bounds: Value) -> models.FieldCondition:
    limits = {name: float(value) for name, value in bounds.items()}
    return models.FieldCondition(key=key, range=models.Range(**limits))


def _passes(value: Any, word: str, values: tuple[Value, ...]) -> bool:
    if word == "IN":
        return value in values
    if word == "BETWEEN":
        return bool(values[0] <= value <= values[1])
    if word == "LIKE":
        marks = {"%": ".*", "_": "."}
        pattern = "".join(marks.get(mark, re.escape(mark)) for mark in str(values[0]))
        return re.fullmatch(pattern, value, re.DOTALL) is not None
    return _ORDER[word](value, values[0])
