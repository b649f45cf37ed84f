"""TripletTable: rows of (reference, captions, target), each with a stable id."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

SCHEMA = pa.schema(
    [
        pa.field("triplet_id", pa.string(), nullable=False),
        pa.field("reference", pa.string(), nullable=False),
        pa.field("captions", pa.list_(pa.string()), nullable=False),
        pa.field("target", pa.string()),
        pa.field("category", pa.string(), nullable=False),
        pa.field("group", pa.list_(pa.string())),
    ]
)
"""``target`` is null where the truth is not known (test splits); ``group`` holds CIRR's subset, else null."""


@dataclass(frozen=True, slots=True)
class Triplet:
    """One training or validation example: a reference picture, what to change, the picture that is meant."""

    triplet_id: str
    reference: str
    captions: tuple[str, ...]
    target: str | None
    category: str = "all"
    group: tuple[str, ...] | None = None


class TripletTable:
    """An immutable Arrow table of triplets, keyed by ``triplet_id``.

    Whatever remembers something about a triplet (noise manifest, history, verdict) is keyed by that id, never by a
    position in a batch.

    Args:
        data: a table with the columns of :data:`SCHEMA`.

    Raises:
        ValueError: a column is missing or of another type, or two rows share an id.

    Example:
        >>> table = TripletTable.from_triplets([Triplet("t0", "a", ("make it red",), "b")])
        >>> len(table), table[0].target
        (1, 'b')
    """

    def __init__(self, data: pa.Table) -> None:
        self.data: pa.Table = data.select(SCHEMA.names).cast(SCHEMA).combine_chunks()
        ids = self.data["triplet_id"].to_pylist()
        self._row_of = {triplet_id: row for row, triplet_id in enumerate(ids)}
        if len(self._row_of) != len(ids):
            repeated = sorted({i for i in ids if ids.count(i) > 1})[:3] if len(ids) < 1000 else []
            raise ValueError(f"triplet ids must be unique; repeated: {repeated or 'some'}")

    @classmethod
    def from_triplets(cls, triplets: Iterable[Triplet]) -> TripletTable:
        """Build a table from :class:`Triplet` rows."""
        rows = list(triplets)
        columns: dict[str, list[Any]] = {name: [getattr(row, name) for row in rows] for name in SCHEMA.names}
        return cls(pa.table(columns, schema=SCHEMA))

    @classmethod
    def concat(cls, tables: Sequence[TripletTable]) -> TripletTable:
        """Put tables one after the other."""
        return cls(pa.concat_tables([table.data for table in tables])) if tables else cls.from_triplets([])

    def __len__(self) -> int:
        return int(self.data.num_rows)

    def __getitem__(self, row: int) -> Triplet:
        values = self.data.slice(row % len(self), 1).to_pylist()[0]
        return _triplet(values)

    def __iter__(self) -> Iterator[Triplet]:
        for batch in self.data.to_batches(max_chunksize=4096):
            for values in batch.to_pylist():
                yield _triplet(values)

    def __contains__(self, triplet_id: object) -> bool:
        return triplet_id in self._row_of

    def row_of(self, triplet_id: str) -> int:
        """Return the row of an id; ``KeyError`` where it is not in the table."""
        return self._row_of[triplet_id]

    def column(self, name: str) -> list[Any]:
        """Return a column as a Python list (``captions`` and ``group`` as tuples)."""
        values = self.data[name].to_pylist()
        return [tuple(v) if isinstance(v, list) else v for v in values]

    @property
    def triplet_ids(self) -> list[str]:
        """The ids, in row order."""
        return list(self._row_of)

    @property
    def categories(self) -> list[str]:
        """The category names, in order of first appearance."""
        return list(dict.fromkeys(self.data["category"].to_pylist()))

    def take(self, rows: Sequence[int] | np.ndarray) -> TripletTable:
        """Return the given rows, in that order."""
        return TripletTable(self.data.take(pa.array(np.asarray(rows, dtype=np.int64))))

    def without(self, triplet_ids: Iterable[str]) -> TripletTable:
        """Return the table without these ids."""
        dropped = set(triplet_ids)
        return self.take(
            [row for row, triplet_id in enumerate(self.triplet_ids) if triplet_id not in dropped]
        )

    def replace(self, field: str, values: dict[str, Any]) -> TripletTable:
        """Return a table in which ``field`` of each named triplet has the given value."""
        column = self.column(field)
        for triplet_id, value in values.items():
            column[self.row_of(triplet_id)] = value
        position = SCHEMA.get_field_index(field)
        return TripletTable(
            self.data.set_column(
                position, SCHEMA.field(field), pa.array(column, type=SCHEMA.field(field).type)
            )
        )

    def image_ids(self) -> list[str]:
        """Return every image that a triplet names, once, in order of first appearance."""
        pairs = zip(self.data["reference"].to_pylist(), self.data["target"].to_pylist(), strict=True)
        return list(dict.fromkeys(image for pair in pairs for image in pair if image is not None))

    def fingerprint(self) -> str:
        """Return a SHA-256 over all rows: two tables with the same rows in the same order share it."""
        digest = hashlib.sha256()
        for triplet in self:
            digest.update(repr(triplet).encode())
        return digest.hexdigest()


def _triplet(values: dict[str, Any]) -> Triplet:
    group = values["group"]
    return Triplet(
        triplet_id=values["triplet_id"],
        reference=values["reference"],
        captions=tuple(values["captions"]),
        target=values["target"],
        category=values["category"],
        group=None if group is None else tuple(group),
    )
