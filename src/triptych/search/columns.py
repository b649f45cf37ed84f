"""What a gallery's table holds of each image: the columns, by name and type."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from triptych.errors import DataError, UsageError

ID, HASH, SOURCE, WIDTH, HEIGHT = "id", "content_hash", "source", "width", "height"
THUMBNAIL, POOLED, TARGETS, TOKENS = "thumbnail", "pooled", "targets", "tokens"

RESERVED = (ID, HASH, SOURCE, WIDTH, HEIGHT, THUMBNAIL, POOLED, TARGETS, TOKENS)
"""Names that a metadata column cannot have."""

FILTERABLE = (ID, SOURCE, WIDTH, HEIGHT)
"""Columns of ours that a filter may name beside the metadata."""

MAX_ID = 512
"""Characters of an id, at most."""

_METADATA_NAME = re.compile(r"[^\W\d_][\w \-]{0,99}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class Shape:
    """The sizes of what is stored of an image.

    Attributes:
        queries: Q, target vectors.
        dim: D, width of a target vector.
        tokens: (P, V), frozen image tokens kept for queries by id; None where they are not kept.
    """

    queries: int
    dim: int
    tokens: tuple[int, int] | None

    def schema(self) -> pa.Schema:
        """Return the table's schema without metadata."""
        fields = [
            pa.field(ID, pa.string(), nullable=False),
            pa.field(HASH, pa.string(), nullable=False),
            pa.field(SOURCE, pa.string(), nullable=False),
            pa.field(WIDTH, pa.int32(), nullable=False),
            pa.field(HEIGHT, pa.int32(), nullable=False),
            pa.field(THUMBNAIL, pa.binary(), nullable=False),
            pa.field(POOLED, pa.list_(pa.float32(), self.dim), nullable=False),
            pa.field(TARGETS, pa.list_(pa.float16(), self.queries * self.dim), nullable=False),
        ]
        if self.tokens:
            size = self.tokens[0] * self.tokens[1]
            fields.append(pa.field(TOKENS, pa.list_(pa.float16(), size), nullable=False))
        return pa.schema(fields)


def metadata_fields(schema: pa.Schema) -> dict[str, pa.DataType]:
    """Return the metadata columns of a gallery's table, name to type."""
    return {field.name: field.type for field in schema if field.name not in RESERVED}


def filter_fields(schema: pa.Schema) -> dict[str, pa.DataType]:
    """Return what a filter may name, name to type."""
    own = {name: schema.field(name).type for name in FILTERABLE}
    return {**metadata_fields(schema), **own}


def check_metadata_name(name: str, file: str | None = None) -> None:
    """Refuse a column name that the table or a filter could not carry.

    Raises:
        DataError: it is taken by a column of ours, or holds characters other than letters, digits, ``_``, ``-``
            and spaces.
    """
    if name.lower() in RESERVED:
        raise DataError(
            f'a metadata column cannot be called "{name}": the gallery has one of that name',
            file=file,
            field=name,
            mend="Rename it, for example to " + f'"{name}_given".',
        )
    if not _METADATA_NAME.fullmatch(name):
        raise DataError(
            f'"{name}" cannot be a metadata column: use letters, digits, "_", "-" and spaces, at most 100,'
            " with a letter first",
            file=file,
            field=name,
            mend="Rename it.",
        )


def check_id(image_id: str) -> None:
    """Refuse an id that is empty, too long, or holds control characters.

    Raises:
        UsageError: it is.
    """
    if not image_id or len(image_id) > MAX_ID or _CONTROL.search(image_id):
        shown = repr(image_id[:60])
        raise UsageError(f"an id needs 1 to {MAX_ID} characters and no control characters, not {shown}")
    try:
        image_id.encode()
    except UnicodeEncodeError:
        raise UsageError(f"an id must be valid Unicode, not {image_id[:60]!r}") from None


def plain_type(name: str, given: pa.DataType, file: str | None = None) -> pa.DataType:
    """Return the type that a metadata column of ``given`` type has in a gallery: text, number or truth value.

    Raises:
        DataError: the column holds something else, such as lists.
    """
    if pa.types.is_dictionary(given):
        given = given.value_type
    if pa.types.is_boolean(given):
        return pa.bool_()
    if pa.types.is_integer(given):
        return pa.int64()
    if pa.types.is_floating(given) or pa.types.is_decimal(given):
        return pa.float64()
    if pa.types.is_string(given) or pa.types.is_large_string(given) or pa.types.is_null(given):
        return pa.string()
    if pa.types.is_temporal(given):
        return pa.string()  # ISO dates compare as texts do
    raise DataError(
        f'the column "{name}" holds {given}; metadata may be texts, numbers and truth values',
        file=file,
        field=name,
        mend="Leave it out, or write it as text.",
    )


def sql_string(text: str) -> str:
    """Quote a text for the table's filter language."""
    return "'" + text.replace("'", "''") + "'"


def sql_name(name: str) -> str:
    """Quote a column's name for the table's filter language."""
    return f"`{name}`"


def id_filter(ids: Sequence[str]) -> str:
    """Return the filter that these ids alone pass."""
    return f"{sql_name(ID)} IN ({', '.join(map(sql_string, ids))})"


def describe_types(fields: Mapping[str, pa.DataType]) -> str:
    """Name columns with the kind of value that they hold, for messages."""
    return ", ".join(f"{name} ({kind_of(type_)})" for name, type_ in fields.items())


def kind_of(given: pa.DataType) -> str:
    """Return what a column holds: ``text``, ``number`` or ``truth value``."""
    if pa.types.is_boolean(given):
        return "truth value"
    return "number" if pa.types.is_integer(given) or pa.types.is_floating(given) else "text"
