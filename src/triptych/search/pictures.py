"""Where the pictures of a gallery come from: a folder, a zip or tar, or a table or list of files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from triptych.errors import DataError, UsageError
from triptych.search.metadata import Metadata, metadata_columns, read_table
from triptych.triplets.archives import SUFFIXES, PlainFile, canonical
from triptych.triplets.images import ImageStore

TABLES = (".parquet", ".csv", ".tsv", ".jsonl", ".ndjson")
LISTS = (".txt", ".lst")

_BYTES, _PATH = ("image", "bytes", "picture"), ("path", "file", "file_name", "filename")
_ID = ("id", "image_id")


@dataclass(frozen=True)
class Picture:
    """A picture to index.

    Attributes:
        id: its name in the gallery.
        source: where it is, for people.
        read: returns its bytes; may raise anything where that fails.
        row: of the table or list that it came from.
    """

    id: str
    source: str
    read: Callable[[], bytes]
    row: int = 0


@dataclass(frozen=True)
class Pictures:
    """The pictures that were found.

    Attributes:
        path: where.
        items: the pictures, in order of id or of the list.
        metadata: what came along in a table; None where there is none.
        warnings: what was odd or left out, one sentence each, with counts.
    """

    path: Path
    items: Sequence[Picture]
    metadata: Metadata | None = None
    warnings: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.items)


def find_pictures(path: str | Path) -> Pictures:
    """Find pictures in a folder, a ``.zip`` or ``.tar``, a table with bytes or paths, or a text file of paths.

    A table (Parquet, CSV, TSV, JSON lines) has a column ``image`` (Parquet: bytes, or a struct that has them) or
    ``path``, and may have ``id``; its other columns are metadata. Paths are relative to the file that names them.

    Raises:
        UsageError: there is nothing at ``path``.
        DataError: nothing that is there can be read, or it holds no picture.
    """
    path = Path(path)
    if not path.exists():
        raise UsageError(f"{path}: there is no such folder, archive, table or list of pictures")
    suffix = path.suffix.lower()
    if path.is_file() and suffix in TABLES:
        found = _from_table(path)
    elif path.is_file() and suffix in LISTS:
        found = _from_list(path)
    elif path.is_file() and suffix in SUFFIXES:
        found = _from_paths(path, [path.name], None)
    else:
        found = _from_store(path)
    if not found.items:
        raise DataError(
            "there is no picture in it", file=path, mend=f"Pictures end in {', '.join(SUFFIXES)}."
        )
    return found


def _from_store(path: Path) -> Pictures:
    store = ImageStore.open(path)
    items = [Picture(image, store.source(image), partial(store.read, image)) for image in store.ids]
    return Pictures(path, items, None, store.warnings)


def _from_list(path: Path) -> Pictures:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"is not UTF-8 text ({error.reason})", file=path, mend="Save it as UTF-8.") from error
    return _from_paths(path, [line.strip() for line in lines if line.strip()], None)


def _from_table(path: Path) -> Pictures:
    table = read_table(path)
    named = {name.lower(): name for name in reversed(table.column_names)}
    of_bytes = next((named[n] for n in _BYTES if n in named and _holds_bytes(table, named[n])), None)
    of_path = next((named[n] for n in (*_PATH, *_BYTES) if n in named and _holds_text(table, named[n])), None)
    of_id = next((named[n] for n in _ID if n in named), None)
    if of_bytes is None and of_path is None:
        raise DataError(
            f"there is no column of pictures; there are {', '.join(table.column_names) or 'none'}",
            file=path,
            mend='Give a column "path" with the files\' names, or (Parquet) "image" with their bytes.',
        )
    ids = None if of_id is None else [None if v is None else str(v) for v in table[of_id].to_pylist()]
    left = [name for name in table.column_names if name not in (of_bytes, of_path, of_id)]
    if of_bytes is None:
        found = _from_paths(path, [str(v or "") for v in table[of_path].to_pylist()], ids)
    else:
        found = _from_bytes(path, table[of_bytes], ids)
    if not left:
        return found
    data = metadata_columns(table.select(left), path)
    metadata = Metadata(data, {item.id: item.row for item in found.items}, path)
    return Pictures(path, found.items, metadata, found.warnings)


def _from_bytes(path: Path, column: pa.ChunkedArray, ids: list[str | None] | None) -> Pictures:
    def read(row: int) -> bytes:
        value: Any = column[row].as_py()
        data = value.get("bytes") if isinstance(value, dict) else value
        if not isinstance(data, bytes):
            raise ValueError("the row has no picture")
        return data

    names = ids or [f"{path.stem}-{row}" for row in range(len(column))]
    return _unique(path, [(name, f"{path.name}#{row}", partial(read, row)) for row, name in enumerate(names)])


def _from_paths(path: Path, names: Sequence[str], ids: list[str | None] | None) -> Pictures:
    rows: list[tuple[str | None, str, Callable[[], bytes]]] = []
    for row, name in enumerate(names):
        stem = name.replace("\\", "/").rpartition("/")[2]
        image_id = ids[row] if ids else (stem[: stem.rfind(".")] if stem.lower().endswith(SUFFIXES) else stem)
        rows.append((image_id if name else None, name, PlainFile(name, str(path.parent / name)).read))
    return _unique(path, rows)


def _unique(path: Path, rows: Sequence[tuple[str | None, str, Callable[[], bytes]]]) -> Pictures:
    items: dict[str, Picture] = {}
    left_out: Counter[str] = Counter()
    for row, (name, source, read) in enumerate(rows):
        image_id = canonical(name) if name else ""
        if not image_id:
            left_out["have neither an id nor a name"] += 1
        elif image_id in items:
            left_out["repeat an id"] += 1
        else:
            items[image_id] = Picture(image_id, source, read, row)
    warnings = [f"{count} rows of {path.name} {why} and were left out" for why, count in left_out.items()]
    return Pictures(path, list(items.values()), None, tuple(warnings))


def _holds_bytes(table: pa.Table, name: str) -> bool:
    given = table.schema.field(name).type
    if pa.types.is_struct(given):
        return bool(given.get_field_index("bytes") >= 0)
    return bool(pa.types.is_binary(given) or pa.types.is_large_binary(given))


def _holds_text(table: pa.Table, name: str) -> bool:
    given = table.schema.field(name).type
    return bool(pa.types.is_string(given) or pa.types.is_large_string(given))
