"""Metadata of images (category, price, ...) from a table, made fit for a gallery."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from triptych.errors import DataError, UsageError
from triptych.search.columns import check_metadata_name, plain_type
from triptych.triplets.archives import canonical, is_picture_name
from triptych.triplets.jsonfiles import encoding_error

ID_NAMES = ("id", "image_id", "image", "file", "file_name", "filename", "path")
"""What the column of image ids may be called; a file's name is cut to its id."""


@dataclass(frozen=True)
class Metadata:
    """A table of metadata, and the row of each image.

    Attributes:
        data: text, number and truth value columns.
        rows: image id to row of ``data``.
        path: the file it came from, for messages.
    """

    data: pa.Table
    rows: Mapping[str, int]
    path: Path

    @property
    def fields(self) -> dict[str, pa.DataType]:
        """The columns, name to type."""
        return {field.name: field.type for field in self.data.schema}

    def of(self, image_ids: Sequence[str]) -> pa.Table:
        """Return the rows of images in that order; empty values where an image has none."""
        places = pa.array([self.rows.get(image_id) for image_id in image_ids], pa.int64())
        return self.data.take(places).combine_chunks()


def read_metadata(path: str | Path) -> Metadata:
    """Read a CSV, TSV, JSON lines or Parquet table with a column of image ids.

    Raises:
        UsageError: there is nothing at ``path``.
        DataError: the table cannot be read, has no column of ids, or names an image twice.
    """
    path = Path(path)
    table = read_table(path)
    named = {name.lower(): name for name in reversed(table.column_names)}
    key = next((named[name] for name in ID_NAMES if name in named), None)
    if key is None:
        raise DataError(
            f"there is no column of image ids; there are {', '.join(table.column_names) or 'none'}",
            file=path,
            field="id",
            mend='Call it "id".',
        )
    rows: dict[str, int] = {}
    for row, value in enumerate(table[key].to_pylist()):
        if value is None or not str(value).strip():
            raise DataError("the row has no image id", file=path, row=row, unit="row", field=key)
        image_id = _id_of(str(value).strip())
        if image_id in rows:
            raise DataError(
                f'the image "{image_id}" was named before, in row {rows[image_id]}',
                file=path,
                row=row,
                unit="row",
                field=key,
                mend="Give each image one row.",
            )
        rows[image_id] = row
    data = metadata_columns(table.select([name for name in table.column_names if name != key]), path)
    return Metadata(data, rows, path)


def metadata_columns(table: pa.Table, path: Path) -> pa.Table:
    """Cast columns to what a gallery holds, and check their names.

    Raises:
        DataError: a name or a type does not fit.
    """
    columns = {}
    for name in table.column_names:
        check_metadata_name(name, str(path))
        given = table.schema.field(name).type
        try:
            columns[name] = table[name].cast(plain_type(name, given, str(path)))
        except pa.ArrowException as error:
            raise DataError(f'the column "{name}" cannot be kept: {error}', file=path, field=name) from error
    return pa.table(columns) if columns else pa.table({"_": pa.nulls(table.num_rows)}).select([])


def read_table(path: Path) -> pa.Table:
    """Read a whole table by its ending.

    Raises:
        UsageError: there is nothing at ``path``, or its ending is unknown.
        DataError: it is damaged, or a column is there twice.
    """
    if not path.is_file():
        raise UsageError(f"{path}: there is no such table")
    suffix = path.suffix.lower()
    try:
        if suffix == ".parquet":
            from pyarrow import parquet

            table = parquet.read_table(path)
        elif suffix in (".csv", ".tsv"):
            table = _read_csv(path)
        elif suffix in (".jsonl", ".ndjson"):
            from pyarrow import json

            table = json.read_json(path)
        else:
            raise UsageError(f"{path}: a table ends in .csv, .tsv, .jsonl, .ndjson or .parquet")
    except UnicodeDecodeError:
        raise encoding_error(path, path.name) from None
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"the table cannot be read: {error}", file=path, mend="Write it again.") from error
    twice = [name for name in table.column_names if table.column_names.count(name) > 1]
    if twice:
        raise DataError(f'the column "{twice[0]}" is there twice', file=path, field=twice[0])
    return table


def _read_csv(path: Path) -> pa.Table:
    from pyarrow import csv

    data = path.read_bytes()
    data.decode("utf-8-sig")
    header = data.split(b"\n", 1)[0]
    delimiter = max(",;\t", key=lambda mark: header.count(mark.encode()))
    convert = csv.ConvertOptions(
        strings_can_be_null=True,
        null_values=["", "null", "NULL", "NaN"],
        column_types={name: pa.string() for name in ID_NAMES},  # 000731 is no number
    )
    parse = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    return csv.read_csv(io.BytesIO(data), parse_options=parse, convert_options=convert)


def _id_of(name: str) -> str:
    last = name.replace("\\", "/").rpartition("/")[2] if is_picture_name(name) else name
    return canonical(last[: last.rindex(".")] if is_picture_name(last) else last)
