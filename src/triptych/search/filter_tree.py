"""What a filter says, parsed and checked; each store writes it in its own language, LanceDB's is here."""

from __future__ import annotations

from dataclasses import dataclass

from triptych.search.columns import sql_name, sql_string

Value = str | int | float | bool


@dataclass(frozen=True)
class Comparison:
    """A comparison of one column with values.

    Attributes:
        column: its name.
        operator: ``=``, ``!=``, ``<>``, ``<``, ``<=``, ``>``, ``>=``; ``IN``, ``BETWEEN`` or ``LIKE``, with ``NOT``
            before it or not; ``IS NULL`` or ``IS NOT NULL``.
        values: what it is compared with: any number for ``IN``, low and high for ``BETWEEN``, none for ``NULL``.
    """

    column: str
    operator: str
    values: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Not:
    """What fails a filter."""

    part: Filter


@dataclass(frozen=True)
class And:
    """What passes all of several filters."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True)
class Or:
    """What passes any of several filters."""

    parts: tuple[Filter, ...]


Filter = Comparison | Not | And | Or


def to_sql(tree: Filter) -> str:
    """Write a filter for LanceDB; every name and text is quoted.

    Example:
        >>> to_sql(And((Comparison("price", "<", (50.0,)), Not(Comparison("kind", "IN", ("a", "b"))))))
        "(`price` < 50.0 AND (NOT `kind` IN ('a', 'b')))"
    """
    if isinstance(tree, Not):
        return f"(NOT {to_sql(tree.part)})"
    if isinstance(tree, And):
        return f"({' AND '.join(map(to_sql, tree.parts))})"
    if isinstance(tree, Or):
        return f"({' OR '.join(map(to_sql, tree.parts))})"
    column, values = sql_name(tree.column), [_literal(value) for value in tree.values]
    if tree.operator.endswith("NULL"):
        return f"{column} {tree.operator}"
    if tree.operator.endswith("IN"):
        return f"{column} {tree.operator} ({', '.join(values)})"
    if tree.operator.endswith("BETWEEN"):
        return f"({column} {tree.operator} {values[0]} AND {values[1]})"
    return f"{column} {tree.operator} {values[0]}"


def _literal(value: Value) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return sql_string(value) if isinstance(value, str) else repr(value)
