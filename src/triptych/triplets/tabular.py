"""Triplets in a table: CSV, TSV, JSON lines or Parquet, read as a stream.

Columns: reference, text, target; optional id, category and split (``train`` where it is not given). A few
other names are understood, see :data:`COLUMNS`. The gallery of a split and category is the union of its
references and targets.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from triptych.errors import DataError
from triptych.triplets.benchmark import Benchmark, QuerySet
from triptych.triplets.entries import Keys, Repeats, UnknownKeys, read_entry
from triptych.triplets.fashioniq import TRAIN, needs_target
from triptych.triplets.findings import Findings, Place
from triptych.triplets.images import ImageStore
from triptych.triplets.jsonfiles import encoding_error, parse_json
from triptych.triplets.licence import licence_note
from triptych.triplets.table import Triplet, TripletTable

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "reference": ("reference", "candidate", "reference_id", "candidate_id", "query_image"),
    "text": ("text", "caption", "captions", "modification", "modification_text"),
    "target": ("target", "target_id", "target_image"),
    "id": ("id", "triplet_id"),
    "category": ("category",),
    "split": ("split",),
}
"""What each column may be called, in any case; the first name is the usual one."""

NEEDED = ("reference", "text", "target")
SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")

_CHUNK = 20_000


@dataclass(frozen=True, slots=True)
class _Row:
    """One row: where it stands, its values by column, and which column plays which part."""

    place: Place
    values: Any
    columns: Mapping[str, str]


def read_tabular(path: Path, images: ImageStore, findings: Findings) -> Benchmark:
    """Read a table of triplets.

    Args:
        path: the file; its ending says what it is.
        images: its pictures.
        findings: gets everything wrong or odd; where it is not strict, bad rows are left out.

    Returns:
        The benchmark; ``triplet_id`` is the column ``id``, or ``<category>.<split>.<number of the row>``.

    Raises:
        DataError: something is wrong and ``findings`` is strict.
    """
    groups: dict[tuple[str, str], _Group] = {}
    seen: set[str] = set()
    unknown = UnknownKeys(COLUMNS)
    number = -1
    try:
        for number, row in enumerate(_READERS[path.suffix.lower()](path, findings)):
            if isinstance(row.values, Mapping):
                unknown.see(row.values.keys() - row.columns.values(), row.place)
            found = _triplet(row, number, findings)
            if found is None:
                continue
            split, triplet = found
            if triplet.triplet_id in seen:
                message = f'the id "{triplet.triplet_id}" was used before'
                findings.add("duplicate_id", message, row.place, field="id", mend="Give each row its own id.")
                continue
            seen.add(triplet.triplet_id)
            groups.setdefault((split, triplet.category), _Group(findings)).add(triplet, row.place)
        if number < 0:
            findings.add("no_triplets", "there are no triplets in it", Place(path.name), mend="Add rows.")
    except DataError as error:
        findings.add_error("unreadable_file", error)
    unknown.report(findings)
    return _benchmark(path, images, {key: groups[key].table() for key in sorted(groups)})


@dataclass(frozen=True, slots=True)
class RawRow:
    """A row as the file has it, for what rewrites it.

    Attributes:
        triplet_id: as :func:`read_tabular` names it.
        split: of the triplet.
        values: every column or key, also those that no reader uses.
        columns: part (``reference``, ``text``, ...) to the column that plays it.
    """

    triplet_id: str
    split: str
    values: dict[str, Any]
    columns: Mapping[str, str]


def read_raw_rows(path: Path) -> Iterator[RawRow]:
    """Read a table's rows with all that they hold, in order.

    Raises:
        DataError: a row is wrong; as :func:`read_tabular`.
    """
    findings = Findings(strict=True)
    for number, row in enumerate(_READERS[path.suffix.lower()](path, findings)):
        found = _triplet(row, number, findings)
        if found is not None:
            yield RawRow(found[1].triplet_id, found[0], dict(row.values), row.columns)


def csv_delimiter(path: Path) -> str:
    """Tell which of ``,``, ``;`` and tab a CSV file's header is split at."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        first = file.readline()
    return max(",;\t", key=lambda mark: _fit(first, mark))


def _benchmark(path: Path, images: ImageStore, tables: Mapping[tuple[str, str], TripletTable]) -> Benchmark:
    splits: dict[str, tuple[QuerySet, ...]] = {}
    for (split, category), table in tables.items():
        if split != TRAIN:
            query_set = QuerySet(split, category, table, gallery=tuple(table.image_ids()))
            splits[split] = (*splits.get(split, ()), query_set)
    return Benchmark(
        name=path.resolve().parent.name if path.stem.lower() == "triplets" else path.stem,
        path=path,
        train=TripletTable.concat([table for (split, _), table in tables.items() if split == TRAIN]),
        splits=splits,
        images=images,
        licence=licence_note(path.parent),
    )


class _Group:
    """The triplets of one split and category; full chunks are kept as Arrow, not as Python objects."""

    def __init__(self, findings: Findings) -> None:
        self._repeats = Repeats(findings)
        self._rows: list[Triplet] = []
        self._chunks: list[TripletTable] = []

    def add(self, triplet: Triplet, place: Place) -> None:
        self._repeats.see(triplet, place)
        self._rows.append(triplet)
        if len(self._rows) >= _CHUNK:
            self._flush()

    def table(self) -> TripletTable:
        self._flush()
        return TripletTable.concat(self._chunks)

    def _flush(self) -> None:
        self._chunks.append(TripletTable.from_triplets(self._rows))
        self._rows = []


def _triplet(row: _Row, number: int, findings: Findings) -> tuple[str, Triplet] | None:
    """Return the split and the triplet of a row, or ``None`` where it is bad (which is then a finding)."""
    values, place = row.values, row.place

    def label(part: str, default: str) -> str:
        value = values.get(row.columns.get(part)) if isinstance(values, Mapping) else None
        if value is None or (isinstance(value, str) and not value.strip()):
            return default
        if isinstance(value, bool) or not isinstance(value, str | int):
            field = row.columns[part]
            findings.add("wrong_type", f'"{field}" must be a text', place, field=field, mend="Write a name.")
            return default
        return str(value).strip()

    split, category = label("split", TRAIN), label("category", "all")
    triplet_id = label("id", f"{category}.{split}.{number}")
    keys = Keys(*(row.columns.get(part, part) for part in NEEDED))
    entry = read_entry(values, place, findings, keys, target_needed=needs_target(split), plain_text=True)
    if entry is None:
        return None
    return split, Triplet(triplet_id, entry.reference, entry.captions, entry.target, category)


def _columns(names: Sequence[str]) -> dict[str, str]:
    """Find which of ``names`` plays which part."""
    by_name = {name.strip().lower(): name for name in reversed(names)}
    found = (
        (part, next((by_name[n] for n in known if n in by_name), None)) for part, known in COLUMNS.items()
    )
    return {part: name for part, name in found if name is not None}


def _required(names: Sequence[str], place: Place) -> dict[str, str]:
    twice = [name for name in names if list(names).count(name) > 1]
    if twice:
        raise DataError(
            f'the column "{twice[0]}" is there twice', file=place.file, row=place.row, unit=place.unit
        )
    columns = _columns(names)
    missing = [part for part in NEEDED if part not in columns]
    if missing:
        raise DataError(
            f'the column "{missing[0]}" is missing; there are {", ".join(names)}',
            file=place.file,
            row=place.row,
            unit=place.unit,
            field=missing[0],
            mend=f"It may be called {' or '.join(COLUMNS[missing[0]])}.",
        )
    return columns


def _csv_rows(path: Path, findings: Findings) -> Iterator[_Row]:
    line = 1
    try:
        delimiter = csv_delimiter(path)
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            header = next(reader, [])
            if not header:
                return
            columns = _required(header, Place(path.name, 1, "line"))
            line = reader.line_num + 1
            for cells in reader:
                place = Place(path.name, line, "line")
                line = reader.line_num + 1
                if len(cells) == len(header):
                    yield _Row(place, {n: c or None for n, c in zip(header, cells, strict=True)}, columns)
                elif cells:
                    message = f"{len(cells)} cells, but the header has {len(header)} columns"
                    mend = "Fill in the missing cells; a text with a delimiter or line break needs quotes."
                    findings.add("bad_row", message, place, mend=mend)
    except UnicodeDecodeError:
        raise encoding_error(path, path.name) from None
    except csv.Error as error:
        mend = 'A text with a comma, quote or line break needs quotes; a quote in it is written twice ("").'
        raise DataError(
            f"not valid CSV: {error}", file=path.name, row=line, unit="line", mend=mend
        ) from error


def _fit(header: str, delimiter: str) -> tuple[int, int]:
    """Tell how well a header splits at ``delimiter``: parts found, then columns."""
    names = next(csv.reader([header], delimiter=delimiter), [])
    return len(_columns(names)), len(names)


def _jsonl_rows(path: Path, findings: Findings) -> Iterator[_Row]:
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, text in enumerate(file, start=1):
                if not text.strip():
                    continue
                place = Place(path.name, number, "line")
                try:
                    values = parse_json(text, path.name, line=number)
                except DataError as error:
                    findings.add_error("bad_row", error)
                    continue
                yield _Row(place, values, _columns(list(values)) if isinstance(values, dict) else {})
    except UnicodeDecodeError:
        raise encoding_error(path, path.name) from None


def _parquet_rows(path: Path, findings: Findings) -> Iterator[_Row]:
    import pyarrow.parquet as pq  # here, as it costs half as much time as all of pyarrow

    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            columns = _required(names, Place(path.name))
            number = 0
            for batch in file.iter_batches(batch_size=_CHUNK):
                for values in batch.to_pylist():
                    yield _Row(Place(path.name, number, "row"), values, columns)
                    number += 1
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"not a whole Parquet file: {error}", file=path.name, mend="Write it again."
        ) from error


_READERS: Mapping[str, Callable[[Path, Findings], Iterator[_Row]]] = {
    ".csv": _csv_rows,
    ".tsv": _csv_rows,
    ".jsonl": _jsonl_rows,
    ".ndjson": _jsonl_rows,
    ".parquet": _parquet_rows,
}
