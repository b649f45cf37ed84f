"""Manifests that name rows of category files, such as those shipped with a data set, in our terms."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from triptych.errors import DataError
from triptych.noise.corruption import Corruption, Kind, TripletField, Value
from triptych.triplets.table import Triplet, TripletTable

FIELD: dict[str, TripletField] = {"candidate": "reference", "captions": "text", "target": "target"}

OTHER = "This manifest is of other data: use one that was made for it."


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
    try:
        head = ByRow.model_validate(content)
    except ValidationError as error:
        raise _named(error, path, None) from error
    if missing := sorted(set(head.categories) ^ set(head.offsets)):
        raise DataError(f"categories and offsets differ: {', '.join(missing)}", file=path, field="offsets")

    triplets = {triplet.triplet_id: triplet for triplet in table}
    changes: list[Corruption] = []
    for number, raw in enumerate(head.corrupted):
        try:
            item = _Item.model_validate(raw)
        except ValidationError as error:
            raise _named(error, path, number) from error
        triplet = triplets.get(f"{item.category}.train.{item.row}")
        source = None if item.source is None else triplets.get(_nth(head, item.source))
        field, problem = _problem(head, item, triplet, source)
        if problem or triplet is None:
            raise DataError(problem, file=path, row=number, field=field, mend=OTHER)
        old, new = _value_of(triplet, item.field), _frozen(item.value)
        if old != new:
            changes.append(Corruption(triplet.triplet_id, FIELD[item.field], old, new))
    if head.num_triplets != len(table):
        problem = f"made for {head.num_triplets} triplets, but the data has {len(table)}"
        raise DataError(problem, file=path, field="num_triplets", mend=OTHER)
    return head, tuple(changes)


def _problem(head: ByRow, item: _Item, triplet: Triplet | None, source: Triplet | None) -> tuple[str, str]:
    """Return (field, what is wrong with it); empty where nothing is."""
    for name, index in (("index", item.index), ("from", item.source or 0)):
        if not 0 <= index < head.num_triplets:
            return name, f'"{name}" is {index}, but there are only {head.num_triplets} triplets'
    if item.category not in head.offsets or triplet is None:
        return "row", f"row {item.row} of category {item.category} is not in the data"
    if head.offsets[item.category] + item.row != item.index:
        return "index", f'"index" is {item.index}, but row {item.row} of {item.category} is another one'
    if isinstance(item.value, list) != (item.field == "captions"):
        return "value", "captions must be a list, an image id must be a string"
    if source is not None and _value_of(source, item.field) != _frozen(item.value):
        return "value", f'"value" is not the {item.field} of triplet {source.triplet_id}, which "from" names'
    return "", ""


def _nth(head: ByRow, index: int) -> str:
    """Return the id of the triplet at an index that runs through all categories."""
    begun = [name for name, offset in head.offsets.items() if offset <= index]
    category = max(begun, key=lambda name: head.offsets[name], default="")
    return f"{category}.train.{index - head.offsets.get(category, 0)}"


def _named(error: ValidationError, path: Path, row: int | None) -> DataError:
    first = error.errors()[0]
    return DataError(first["msg"], file=path, row=row, field=".".join(map(str, first["loc"])) or None)


def _value_of(triplet: Triplet, field: str) -> Value:
    if field == "captions":
        return triplet.captions
    return triplet.reference if field == "candidate" else triplet.target or ""


def _frozen(value: str | list[str]) -> Value:
    return tuple(value) if isinstance(value, list) else value
