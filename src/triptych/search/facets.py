"""What the metadata columns of a gallery hold: kinds, common values, ranges; what a filter can be made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from triptych.search.columns import kind_of, metadata_fields
from triptych.search.store import Snapshot

MAX_VALUES, MAX_LENGTH, MAX_ROWS = 40, 80, 100_000
"""Values that are listed of a column, characters of a value that is listed, images that are looked at."""


@dataclass(frozen=True)
class Facet:
    """What a metadata column holds.

    Attributes:
        name: of the column.
        kind: ``text``, ``number`` or ``truth value``.
        values: common values and how many images have each, most common first; of numbers none.
        distinct: how many different values there are; of numbers 0.
        low: the smallest number; None where there is none.
        high: the largest number.
        missing: how many images have no value.
        looked_at: how many images were looked at.
    """

    name: str
    kind: str
    values: Sequence[tuple[str | bool, int]]
    distinct: int
    low: float | None
    high: float | None
    missing: int
    looked_at: int


def facets(snapshot: Snapshot, *, rows: int = MAX_ROWS) -> list[Facet]:
    """Describe the metadata columns, from the first ``rows`` images of the table.

    Raises:
        DataError: the table is damaged.
    """
    fields = metadata_fields(snapshot.schema)
    if not fields:
        return []
    table = snapshot.read(list(fields), limit=rows)
    return [_facet(name, kind_of(given), table[name]) for name, given in fields.items()]


def _facet(name: str, kind: str, column: pa.ChunkedArray) -> Facet:
    missing, looked_at = column.null_count, len(column)
    if kind == "number":
        bounds = pc.min_max(column.filter(pc.is_finite(column.cast(pa.float64()))))
        low, high = (_number(bounds[side].as_py()) for side in ("min", "max"))
        return Facet(name, kind, (), 0, low, high, missing, looked_at)
    counted = pc.value_counts(column.drop_null().combine_chunks())
    pairs: list[tuple[Any, int]] = [(one["values"], one["counts"]) for one in counted.to_pylist()]
    pairs.sort(key=lambda pair: (-pair[1], pair[0]))
    values = [pair for pair in pairs if isinstance(pair[0], bool) or len(pair[0]) <= MAX_LENGTH]
    return Facet(name, kind, values[:MAX_VALUES], len(pairs), None, None, missing, looked_at)


def _number(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None
