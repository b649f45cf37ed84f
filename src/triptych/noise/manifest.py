"""NoiseManifest: every corrupted triplet, its field, its old and new value, the rates asked and real."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from triptych.errors import DataError, UsageError
from triptych.files import atomic_write
from triptych.noise.corruption import Corruption, Kind, TripletField, Value
from triptych.noise.foreign import corruptions_by_row, is_by_row
from triptych.triplets.table import TripletTable

FORMAT = "triptych-noise-1"
COLUMN: Mapping[TripletField, str] = {"reference": "reference", "text": "captions", "target": "target"}
"""The column of a :class:`~triptych.triplets.table.TripletTable` that holds each field."""

OTHER_DATA = (
    "This manifest is of other data, or the data is already noisy: use the manifest that was made from it."
)


@dataclass(frozen=True)
class NoiseManifest:
    """Which training triplets were corrupted, and how; every method that is compared reads the same one.

    Attributes:
        kind: how the noise was made, see :func:`~triptych.noise.inject`.
        seed: the seed of the draw.
        ratio_asked: share of the triplets that were drawn, in ``[0, 1]``.
        num_triplets: rows of the clean table.
        table_fingerprint: :meth:`~triptych.triplets.table.TripletTable.fingerprint` of the clean table.
        corruptions: the triplets whose value really changed, at most one a triplet, in row order.
        fixed_points: triplets that were drawn but kept their value (a shuffle leaves some in place).
        path: the file it was read from or written to, for messages; no part of its content.
    """

    kind: Kind
    seed: int
    ratio_asked: float
    num_triplets: int
    table_fingerprint: str
    corruptions: tuple[Corruption, ...]
    fixed_points: int = 0
    path: Path | None = field(default=None, compare=False)

    @property
    def ratio_real(self) -> float:
        """Share of the triplets whose value differs from the original (spec 1.4: by value, not by row)."""
        return len(self.corruptions) / self.num_triplets if self.num_triplets else 0.0

    @cached_property
    def _fields(self) -> dict[str, TripletField]:
        return {corruption.triplet_id: corruption.field for corruption in self.corruptions}

    @cached_property
    def noisy_ids(self) -> frozenset[str]:
        """The ids of the triplets that are wrong."""
        return frozenset(self._fields)

    def field_of(self, triplet_id: str) -> TripletField | None:
        """Return which field of the triplet is wrong; None where it is clean."""
        return self._fields.get(triplet_id)

    def counts(self, table: TripletTable | None = None) -> Counter[tuple[str, TripletField]]:
        """Count the corruptions by (category, field); the category is ``all`` without a table."""
        category = dict(zip(table.triplet_ids, table.column("category"), strict=True)) if table else {}
        return Counter((category.get(c.triplet_id, "all"), c.field) for c in self.corruptions)

    def check(self, table: TripletTable) -> None:
        """Raise unless ``table`` is the clean data that this manifest was made from.

        Raises:
            DataError: a triplet is missing, or a field does not have the old value.
        """
        columns = {name: table.column(column) for name, column in COLUMN.items()}
        for corruption in self.corruptions:
            if corruption.triplet_id not in table:
                problem = f"triplet {corruption.triplet_id} is not in the data ({len(table)} triplets)"
                raise DataError(problem, file=self.path, field=corruption.field, mend=OTHER_DATA)
            found = columns[corruption.field][table.row_of(corruption.triplet_id)]
            if found != corruption.old:
                problem = (
                    f"the {corruption.field} of triplet {corruption.triplet_id} is {_shown(found)} "
                    f"in the data, {_shown(corruption.old)} in the manifest"
                )
                raise DataError(problem, file=self.path, field=corruption.field, mend=OTHER_DATA)

    def apply(self, table: TripletTable) -> TripletTable:
        """Return ``table`` with every corruption in place; ids, order and all other values stay.

        Raises:
            DataError: ``table`` is not the clean data that the manifest was made from.
        """
        self.check(table)
        for name, column in COLUMN.items():
            values = {c.triplet_id: c.new for c in self.corruptions if c.field == name}
            table = table.replace(column, values) if values else table
        return table

    def fingerprint(self) -> str:
        """Return a SHA-256 over the content, by which a report names the noise."""
        content = {**self._head(), "corruptions": [_item(corruption) for corruption in self.corruptions]}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def write(self, path: Path | str) -> None:
        """Write it as JSON, one corruption a line; whole or not at all.

        Raises:
            DataError: the place cannot be written, or the disk is full.
        """
        with atomic_write(Path(path)) as file:
            head = json.dumps(self._head(), indent=1, ensure_ascii=False)
            file.write(head.removesuffix("\n}") + ',\n "corruptions": [')
            for number, corruption in enumerate(self.corruptions):
                file.write(
                    (",\n  " if number else "\n  ") + json.dumps(_item(corruption), ensure_ascii=False)
                )
            file.write("\n ]\n}\n" if self.corruptions else "]\n}\n")

    @classmethod
    def read(cls, path: Path | str, table: TripletTable | None = None) -> NoiseManifest:
        """Read a manifest: our own, or one that names rows of category files (``index``, ``row``, ``value``).

        Args:
            path: the JSON file.
            table: the clean training table. Our own manifest is compared with it when it is given; a
                manifest by rows needs it, for its ids and old values.

        Raises:
            DataError: the file is damaged, an index is out of range, or it is of other data.
            UsageError: a manifest by rows, and no table.
        """
        path = Path(path)
        content = _load(path)
        if is_by_row(content):
            if table is None:
                raise UsageError(f"{path} names rows, not triplet ids: give the clean training table too")
            head, corruptions = corruptions_by_row(content, table, path)
            drawn = int(head.sigma * len(table))
            manifest = cls(
                kind=head.kind,
                seed=head.seed,
                ratio_asked=head.sigma,
                num_triplets=head.num_triplets,
                table_fingerprint=table.fingerprint(),
                corruptions=corruptions,
                fixed_points=max(0, drawn - len(corruptions)),
                path=path,
            )
        else:
            manifest = _from_own(content, path)
        _refuse_repeats(manifest.corruptions, path)
        if table is not None:
            manifest.check(table)
        return manifest

    def _head(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "kind": self.kind,
            "seed": self.seed,
            "ratio_asked": self.ratio_asked,
            "ratio_real": self.ratio_real,
            "num_triplets": self.num_triplets,
            "fixed_points": self.fixed_points,
            "table_fingerprint": self.table_fingerprint,
        }


class _Item(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    triplet_id: str
    field: TripletField
    old: str | list[str]
    new: str | list[str]


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: Literal["triptych-noise-1"]
    kind: Kind
    seed: int
    ratio_asked: float = Field(ge=0, le=1)
    ratio_real: float
    num_triplets: int = Field(ge=0)
    fixed_points: int = Field(ge=0)
    table_fingerprint: str
    corruptions: list[_Item]


def _from_own(content: Any, path: Path) -> NoiseManifest:
    try:
        file = _File.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        row = next((part for part in first["loc"] if isinstance(part, int)), None)
        name = ".".join(str(part) for part in first["loc"] if not isinstance(part, int))
        mend = "Write it again with `triptych noise inject`."
        raise DataError(first["msg"], file=path, row=row, field=name or None, mend=mend) from error
    corruptions = []
    for row, item in enumerate(file.corruptions):
        old, new = _value(item.old), _value(item.new)
        if isinstance(old, tuple) != (item.field == "text") or isinstance(new, tuple) != (
            item.field == "text"
        ):
            problem = "captions must be a list, an image id must be a string"
            raise DataError(problem, file=path, row=row, field=item.field)
        if old == new:
            raise DataError(
                "old and new are equal, so nothing is wrong", file=path, row=row, field=item.field
            )
        corruptions.append(Corruption(item.triplet_id, item.field, old, new))
    return NoiseManifest(
        kind=file.kind,
        seed=file.seed,
        ratio_asked=file.ratio_asked,
        num_triplets=file.num_triplets,
        table_fingerprint=file.table_fingerprint,
        corruptions=tuple(corruptions),
        fixed_points=file.fixed_points,
        path=path,
    )


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        mend = "Make one with `triptych noise inject DATA --kind mix --ratio 0.5 -o FILE`."
        raise DataError("there is no such noise manifest", file=path, mend=mend) from error
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", file=path) from error
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"is not JSON: {error}", file=path, mend="Write or copy it again.") from error


def _refuse_repeats(corruptions: Iterable[Corruption], path: Path) -> None:
    seen: set[str] = set()
    for row, corruption in enumerate(corruptions):
        if corruption.triplet_id in seen:
            problem = f"triplet {corruption.triplet_id} is corrupted twice"
            raise DataError(problem, file=path, row=row, mend="Each triplet has at most one wrong field.")
        seen.add(corruption.triplet_id)


def _item(corruption: Corruption) -> dict[str, Any]:
    return {
        "triplet_id": corruption.triplet_id,
        "field": corruption.field,
        "old": corruption.old,
        "new": corruption.new,
    }


def _value(value: str | list[str]) -> Value:
    return tuple(value) if isinstance(value, list) else value


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
