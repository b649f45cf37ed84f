"""Cleaned data in the format that it came in: a new folder or file, with a log of each change; never in place."""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from triptych.audit.changes import Change, write_log
from triptych.errors import UsageError
from triptych.files import atomic_path, atomic_write, explain_full_disk, write_json
from triptych.noise import NoiseManifest
from triptych.noise.corruption import TripletField, Value
from triptych.triplets import Benchmark
from triptych.triplets.fashioniq import KEYS, TRAIN, has_fashioniq_layout
from triptych.triplets.images import find_images
from triptych.triplets.jsonfiles import read_json
from triptych.triplets.tabular import csv_delimiter, read_raw_rows

LOG = "changes.jsonl"
WEIGHT = "weight"

_KEYS: Mapping[TripletField, str] = {
    "reference": KEYS.reference,
    "text": KEYS.text,
    "target": KEYS.target,
}


@dataclass(frozen=True)
class Cleaned:
    """What was written.

    Attributes:
        path: the data, to be read as the input was.
        log: the changes, one JSON object a line.
        counts: how many triplets were dropped, fixed, weighted and kept.
        images: where the pictures are, if they are not beside the data.
        notes: what else was done, a sentence each.
    """

    path: Path
    log: Path
    counts: Mapping[str, int]
    images: Path | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Edit:
    """What happens to one triplet's entry."""

    drop: bool
    values: Mapping[TripletField, Value]
    weight: float | None


Edits = Callable[[str], _Edit]


def write_cleaned(
    benchmark: Benchmark, changes: Sequence[Change], out: Path, *, noise: NoiseManifest | None = None
) -> Cleaned:
    """Write the data again with the changes made; everything but training triplets is copied as it is.

    Args:
        benchmark: the data as it was read.
        changes: what happens to which triplet.
        out: a new or empty folder. A folder of data gives a folder; a table gives a table of the same name in it.
        noise: a manifest that is applied before the changes, for benchmarks.

    Raises:
        UsageError: ``out`` is not empty, or is the data itself.
        DataError: the data cannot be read, or ``out`` cannot be written.
    """
    source = benchmark.path
    if out.resolve() in (source.resolve(), source.resolve().parent) or (
        out.exists() and (not out.is_dir() or any(out.iterdir()))
    ):
        raise UsageError(f"{out} is there already and not empty: cleaned data goes into a new folder (-o)")
    edits = _edits(changes, noise)
    notes: list[str] = []
    with explain_full_disk(out):
        out.mkdir(parents=True, exist_ok=True)
        if source.is_dir() and has_fashioniq_layout(source):
            path = _write_fashioniq(source, out, edits, notes)
        else:
            table = source if source.is_file() else _table_in(source)
            path = _write_table(table, out / table.name, edits)
            path = out if source.is_dir() else path
        images = _link_pictures(benchmark, out, notes)
    write_log(out / LOG, changes)
    counts = Counter(change.action for change in changes)
    return Cleaned(path, out / LOG, {action: count for action, count in counts.items()}, images, tuple(notes))


def _edits(changes: Sequence[Change], noise: NoiseManifest | None) -> Edits:
    by_id = {change.triplet_id: change for change in changes}
    noisy: dict[str, dict[TripletField, Value]] = {}
    for corruption in noise.corruptions if noise is not None else ():
        noisy[corruption.triplet_id] = {corruption.field: corruption.new}

    def edit(triplet_id: str) -> _Edit:
        change, values = by_id.get(triplet_id), dict(noisy.get(triplet_id, {}))
        if change is None:
            return _Edit(False, values, None)
        if change.action == "fix" and change.field is not None and change.new is not None:
            values[change.field] = change.new
        return _Edit(change.action == "drop", values, change.weight)

    return edit


def _write_fashioniq(source: Path, out: Path, edits: Edits, notes: list[str]) -> Path:
    place = "captions" if (source / "captions").is_dir() else "."
    named: dict[str, set[str]] = {}
    for path in sorted((source / place).glob("cap.*.json")):
        target = out / path.relative_to(source)
        parts = path.name.removeprefix("cap.").removesuffix(".json").split(".")
        split, category = (parts[-1], ".".join(parts[:-1])) if len(parts) > 1 else (TRAIN, parts[0])
        if split != TRAIN:
            _copy(path, target)
            continue
        kept = []
        for number, entry in enumerate(read_json(path)):
            edit = edits(f"{category}.{TRAIN}.{number}")
            if not edit.drop:
                kept.append(_edited(entry, edit, _KEYS))
        _write_list(target, kept)
        named[category] = {entry[key] for entry in kept for key in (KEYS.reference, KEYS.target)}
    lists = "image_splits" if (source / "image_splits").is_dir() else "."
    for path in sorted((source / lists).glob("split.*.json")):
        target = out / path.relative_to(source)
        added = []
        for category, names in named.items():
            if path.name in (f"split.{category}.{TRAIN}.json", f"split.{category}.json"):
                listed = read_json(path)
                added = sorted(names - {str(name) for name in listed})
                if added:
                    write_json(target, [*listed, *added], indent=None)
                    notes.append(f"{len(added)} pictures of other categories were added to {path.name}")
        if not added:
            _copy(path, target)
    for path in sorted(source.iterdir()):  # what else belongs to the data; lists by row of train would be off
        if (
            path.is_file()
            and path.suffix.lower() in (".json", ".csv", ".md", ".txt")
            and not (out / path.name).exists()
        ):
            if ".train." in path.name:
                notes.append(f"{path.name} counts rows of the old data and was left out")
            else:
                _copy(path, out / path.name)
    return out


def _write_list(path: Path, entries: Sequence[Any]) -> None:
    with atomic_write(path) as file:
        lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
        file.write(f"[\n{lines}\n]\n" if entries else "[]\n")


def _write_table(source: Path, target: Path, edits: Edits) -> Path:
    suffix = source.suffix.lower()
    if suffix == ".parquet":
        _write_parquet(source, target, edits)
    elif suffix in (".csv", ".tsv"):
        _write_csv(source, target, edits)
    else:
        with atomic_write(target) as file:
            for row in read_raw_rows(source):
                edit = edits(row.triplet_id) if row.split == TRAIN else _NOTHING
                if not edit.drop:
                    file.write(json.dumps(_edited(row.values, edit, row.columns), ensure_ascii=False) + "\n")
    return target


def _write_csv(source: Path, target: Path, edits: Edits) -> None:
    rows = [(row, edits(row.triplet_id) if row.split == TRAIN else _NOTHING) for row in read_raw_rows(source)]
    weighted = any(edit.weight is not None for _, edit in rows)
    with atomic_path(target) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        names = list(rows[0][0].values) if rows else []
        header = [*names, *([WEIGHT] if weighted and WEIGHT not in names else [])]
        writer = csv.DictWriter(file, header, delimiter=csv_delimiter(source))
        writer.writeheader()
        for row, edit in rows:
            if not edit.drop:
                writer.writerow(_edited(row.values, edit, row.columns))


def _write_parquet(source: Path, target: Path, edits: Edits) -> None:
    import pyarrow.parquet as pq

    table = pq.read_table(source)
    kept: list[bool] = []
    weights: list[float | None] = []
    columns: Mapping[str, str] = {}
    changed: dict[str, dict[int, Any]] = {}
    for number, row in enumerate(read_raw_rows(source)):
        edit = edits(row.triplet_id) if row.split == TRAIN else _NOTHING
        columns = row.columns
        kept.append(not edit.drop)
        weights.append(edit.weight)
        for field, value in edit.values.items():
            changed.setdefault(columns[field], {})[number] = value
    for name, values in changed.items():
        at = table.schema.get_field_index(name)
        kind = table.schema.field(at).type
        column = table[name].to_pylist()
        for number, value in values.items():
            text = isinstance(value, tuple)
            column[number] = (
                (list(value) if pa.types.is_list(kind) else " and ".join(value)) if text else value
            )
        table = table.set_column(at, table.schema.field(at), pa.array(column, kind))
    if any(weight is not None for weight in weights):
        table = table.append_column(WEIGHT, pa.array(weights, pa.float64()))
    with atomic_path(target) as temporary:
        pq.write_table(table.filter(pa.array(kept, pa.bool_())), temporary)


def _edited(entry: Mapping[str, Any], edit: _Edit, columns: Mapping[Any, str]) -> dict[str, Any]:
    changed = dict(entry)
    for field, value in edit.values.items():
        key = columns[field]
        if isinstance(value, tuple):  # captions stay what they were, a list or one text
            changed[key] = " and ".join(value) if isinstance(entry.get(key), str) else list(value)
        else:
            changed[key] = value
    if edit.weight is not None:
        changed[WEIGHT] = edit.weight
    return changed


def _link_pictures(benchmark: Benchmark, out: Path, notes: list[str]) -> Path | None:
    """Let the pictures be found beside the cleaned data: by a link, as they may be large."""
    pictures = benchmark.images.path
    if not len(benchmark.images):
        return None
    folder = benchmark.path if benchmark.path.is_dir() else benchmark.path.parent
    if pictures in find_images(folder):
        try:
            os.symlink(pictures.resolve(), out / pictures.name)
            return None
        except OSError:  # a file system without links
            pass
    notes.append(f"the pictures stay where they are: give --images {pictures}")
    return pictures


def _table_in(folder: Path) -> Path:
    from triptych.triplets.reader import find_table

    return find_table(folder)


def _copy(source: Path, target: Path) -> None:
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)


_NOTHING = _Edit(False, {}, None)
