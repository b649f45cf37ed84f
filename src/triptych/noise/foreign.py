"""Manifests that name rows of category files, such as those shipped with a data set, in our terms."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from triptych.errors import DataError
from triptych.noise.corruption import Corruption, Kind, TripletField, Value
from triptych.triplets.table import Triplet, TripletTable

FIELD: dict[str, TripletField] = {"candidate": "reference", "captions": "text", "target": "target"}


class ByRow(BaseModel):
    """The head of such a file: the categories in order, where each starts, and how the noise was made."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    categories: list[str]
    offsets: dict[str, int]
    num_triplets: int = Field(ge=0)
    seed: int
    kind: Kind
    sigma: float = Field(ge=0, le=1)
    corrupted: list[dict[str, Any]]


class _Item(BaseModel):
    model_config = ConfigDict(frozen=True, populate_by_name=True, strict=True)

    index: int
    category: str
    row: int
    field: Literal["candidate", "captions", "target"]
    source: int | None = Field(default=None, alias="from")
    value: str | list[str]


def is_by_row(content: object) -> bool:
    """Say whether parsed JSON is a manifest by rows."""
    return isinstance(content, dict) and "corrupted" in content and "format" not in content


def corruptions_by_row(
    content: object, table: TripletTable, path: Path
) -> tuple[ByRow, tuple[Corruption, ...]]:
    """Translate rows to ids and fill in the old values.

    Row ``r`` of category ``c`` is the triplet ``c.train.r`` of ``table``.

    Returns:
        The head, and a corruption for every row whose value really changes.

    Raises:
        DataError: a key is missing, an index or row is out of range, or the values are of other data.
    """
    other = "This manifest is of other data: use one that was made for it."
    try:
        head = ByRow.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError(first["msg"], file=path, field=".".join(map(str, first["loc"]))) from error
    changes: list[Corruption] = []
    for number, raw in enumerate(head.corrupted):
        try:
            item = _Item.model_validate(raw)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0]) if first["loc"] else None
            raise DataError(first["msg"], file=path, row=number, field=name) from error
        for name, index in (("index", item.index), ("from", item.source)):
            if index is not None and not 0 <= index < head.num_triplets:
                problem = f'"{name}" is {index}, but there are only {head.num_triplets} triplets'
                raise DataError(problem, file=path, row=number, field=name, mend=other)
        triplet = _triplet(head, item.category, item.row, table, path, number, other)
        if head.offsets.get(item.category, 0) + item.row != item.index:
            problem = f'"index" is {item.index}, but row {item.row} of {item.category} is another one'
            raise DataError(problem, file=path, row=number, field="index")
        if isinstance(item.value, list) != (item.field == "captions"):
            raise DataError(
                "captions must be a list, an image id a string", file=path, row=number, field="value"
            )
        old = _value_of(triplet, item.field)
        new: Value = tuple(item.value) if isinstance(item.value, list) else item.value
        source = None if item.source is None else _nth(head, item.source, table)
        if source is not None and _value_of(source, item.field) != new:
            problem = f'"value" is not the {item.field} of triplet {source.triplet_id}, which "from" names'
            raise DataError(problem, file=path, row=number, field="value", mend=other)
        if old != new:
            changes.append(Corruption(triplet.triplet_id, FIELD[item.field], old, new))
    if head.num_triplets != len(table):
        problem = f"made for {head.num_triplets} triplets, but the data has {len(table)}"
        raise DataError(problem, file=path, field="num_triplets", mend=other)
    return head, tuple(changes)


def _triplet(
    head: ByRow, category: str, row: int, table: TripletTable, path: Path, number: int, mend: str
) -> Triplet:
    triplet_id = f"{category}.train.{row}"
    if category not in head.categories or triplet_id not in table:
        problem = f"row {row} of category {category} is not in the data"
        raise DataError(problem, file=path, row=number, field="row", mend=mend)
    return table[table.row_of(triplet_id)]


def _nth(head: ByRow, index: int, table: TripletTable) -> Triplet | None:
    category = max(
        (c for c in head.categories if head.offsets.get(c, 0) <= index), key=head.offsets.__getitem__
    )
    triplet_id = f"{category}.train.{index - head.offsets[category]}"
    return table[table.row_of(triplet_id)] if triplet_id in table else None


def _value_of(triplet: Triplet, field: str) -> Value:
    if field == "captions":
        return triplet.captions
    return triplet.reference if field == "candidate" else triplet.target or ""
