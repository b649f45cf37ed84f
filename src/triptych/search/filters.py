"""Filters on metadata: a small grammar that is parsed and checked; only what was parsed reaches the table.

::

    filter     := and ("OR" and)*
    and        := unit ("AND" unit)*
    unit       := "NOT" unit | "(" filter ")" | column test
    test       := ("=" | "!=" | "<>" | "<" | "<=" | ">" | ">=") value
                | ["NOT"] "IN" "(" value ("," value)* ")"
                | ["NOT"] "BETWEEN" value "AND" value
                | ["NOT"] "LIKE" text
                | "IS" ["NOT"] "NULL"
    column     := a name, or any name in double quotes or backticks
    value      := 'text' | number | TRUE | FALSE

Words may be in any case; a quote in a text is written twice. In LIKE, ``%`` stands for any characters and ``_``
for one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from triptych.errors import UsageError
from triptych.search.columns import describe_types, kind_of
from triptych.search.filter_tree import And, Comparison, Filter, Not, Or, Value

MAX_LENGTH = 4_000
"""Characters of a filter, at most."""

_MAX_TOKENS, _MAX_DEPTH = 500, 30
_WORDS = ("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "TRUE", "FALSE")
_COMPARISONS = ("=", "!=", "<>", "<=", ">=", "<", ">")
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>'(?:[^']|'')*')
      | (?P<quoted>"[^"]*"|`[^`]*`)
      | (?P<number>-?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
      | (?P<word>[^\W\d]\w*)
      | (?P<mark><=|>=|<>|!=|[=<>(),])
    )""",
    re.VERBOSE,
)


class FilterError(UsageError):
    """A filter that cannot be read, or names what the gallery does not have."""


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int

    @property
    def word(self) -> str:
        return self.text.upper() if self.kind == "word" else self.text if self.kind == "mark" else ""


def parse_filter(text: str, columns: Mapping[str, pa.DataType]) -> Filter:
    """Parse a filter and check it against the columns.

    Args:
        text: the filter, such as ``category = 'shoes' AND price < 50``.
        columns: what may be named, name to type.

    Returns:
        What it says; a store writes it in its own language, and quotes every name and text.

    Raises:
        FilterError: it cannot be read (says where), names an unknown column (lists the known ones), or compares
            a column with another kind of value.

    Example:
        >>> parse_filter("price < 50", {"price": pa.float64()})
        Comparison(column='price', operator='<', values=(50.0,))
    """
    if len(text) > MAX_LENGTH:
        raise FilterError(f"the filter has {len(text):,} characters; at most {MAX_LENGTH:,} are read")
    parser = _Parser(text, columns)
    tree = parser.disjunction(0)
    parser.end()
    return tree


class _Parser:
    def __init__(self, text: str, columns: Mapping[str, pa.DataType]) -> None:
        self.text, self.columns = text, columns
        self.tokens = _tokens(text)
        self.place = 0

    @property
    def now(self) -> _Token:
        return self.tokens[self.place]

    def take(self) -> _Token:
        token = self.now
        if token.kind != "end":
            self.place += 1
        return token

    def takes(self, *words: str) -> bool:
        """Take the words if they come next."""
        coming = [token.word for token in self.tokens[self.place : self.place + len(words)]]
        if coming != list(words):
            return False
        self.place += len(words)
        return True

    def need(self, word: str) -> None:
        if not self.takes(word):
            raise self.wrong(f'"{word}"')

    def end(self) -> None:
        if self.now.kind != "end":
            raise self.wrong("AND, OR or the end")

    def wrong(self, expected: str) -> FilterError:
        token = self.now
        found = "it ends" if token.kind == "end" else f'there is "{token.text[:40]}"'
        return FilterError(
            f"the filter cannot be read: at character {token.at + 1} {found}, expected {expected}"
        )

    def disjunction(self, depth: int) -> Filter:
        parts = [self.conjunction(depth)]
        while self.takes("OR"):
            parts.append(self.conjunction(depth))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def conjunction(self, depth: int) -> Filter:
        parts = [self.unit(depth)]
        while self.takes("AND"):
            parts.append(self.unit(depth))
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def unit(self, depth: int) -> Filter:
        if depth > _MAX_DEPTH:
            raise FilterError(f"the filter is nested more than {_MAX_DEPTH} levels deep")
        if self.takes("NOT"):
            return Not(self.unit(depth + 1))
        if self.takes("("):
            inner = self.disjunction(depth + 1)
            self.need(")")
            return inner
        return self.test(self.column())

    def column(self) -> str:
        token = self.now
        if token.kind not in ("word", "quoted") or token.word in _WORDS:
            raise self.wrong("a column")
        name = token.text[1:-1] if token.kind == "quoted" else token.text
        if name not in self.columns:
            raise FilterError(
                f'the gallery has no column "{name[:60]}"; a filter may name: {describe_types(self.columns)}'
            )
        self.take()
        return name

    def test(self, name: str) -> Comparison:
        if self.now.kind == "mark" and self.now.text in _COMPARISONS:
            mark = self.take().text
            if kind_of(self.columns[name]) == "truth value" and mark not in ("=", "!=", "<>"):
                raise FilterError(f'the column "{name}" holds truth values: compare it with = or !=')
            return Comparison(name, mark, (self.value(name),))
        if self.takes("IS"):
            negated = "NOT " if self.takes("NOT") else ""
            self.need("NULL")
            return Comparison(name, f"IS {negated}NULL")
        negated = "NOT " if self.takes("NOT") else ""
        if self.takes("IN"):
            self.need("(")
            values = [self.value(name)]
            while self.takes(","):
                values.append(self.value(name))
            self.need(")")
            return Comparison(name, f"{negated}IN", tuple(values))
        if self.takes("BETWEEN"):
            low = self.value(name)
            self.need("AND")
            return Comparison(name, f"{negated}BETWEEN", (low, self.value(name)))
        if self.takes("LIKE"):
            if kind_of(self.columns[name]) != "text":
                raise FilterError(
                    f'the column "{name}" holds {kind_of(self.columns[name])}s: LIKE needs texts'
                )
            return Comparison(name, f"{negated}LIKE", (self.value(name),))
        raise self.wrong("=, !=, <, <=, >, >=, IN, BETWEEN, LIKE or IS NULL")

    def value(self, name: str) -> Value:
        written: Value
        token, kind = self.now, kind_of(self.columns[name])
        if token.kind == "text":
            given, written = "text", token.text[1:-1].replace("''", "'")
        elif token.kind == "number":
            given, written = "number", self.number(token.text, self.columns[name])
        elif token.word in ("TRUE", "FALSE"):
            given, written = "truth value", token.word == "TRUE"
        else:
            raise self.wrong("a 'text', a number, TRUE or FALSE")
        if given != kind:
            raise FilterError(
                f'the column "{name}" holds {kind}s, but is compared with the {given} {token.text[:40]}'
            )
        self.take()
        return written

    def number(self, text: str, given: pa.DataType) -> int | float:
        if re.fullmatch(r"-?\d+", text) and not pa.types.is_floating(given):
            whole = int(text) if len(text) < 25 else 2**63
            if not -(2**63) <= whole < 2**63:
                raise FilterError(f"the number {text[:40]} is too large")
            return whole
        value = float(text)
        if not math.isfinite(value):
            raise FilterError(f"the number {text[:40]} is too large")
        return value


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if not match or "\0" in match.group():
            start = at + len(text[at:]) - len(text[at:].lstrip())
            raise FilterError(
                f"the filter cannot be read: at character {start + 1} there is {text[start : start + 10]!r}."
                "\n  Write it like: category = 'shoes' AND price < 50"
            )
        kind = str(match.lastgroup)
        tokens.append(_Token(kind, match.group(kind), match.start(kind)))
        at = match.end()
        if len(tokens) > _MAX_TOKENS:
            raise FilterError(f"the filter has more than {_MAX_TOKENS} words")
    if not tokens:
        raise FilterError("the filter is empty.\n  Write it like: category = 'shoes' AND price < 50")
    return [*tokens, _Token("end", "", len(text))]
