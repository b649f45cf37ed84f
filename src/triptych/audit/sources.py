"""A column of the data that no reader uses, such as who annotated each triplet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from triptych.errors import DataError
from triptych.triplets.fashioniq import TRAIN, has_fashioniq_layout
from triptych.triplets.jsonfiles import read_json
from triptych.triplets.reader import find_table
from triptych.triplets.tabular import read_raw_rows


def read_column(path: Path, name: str) -> dict[str, str]:
    """Read a column of the training triplets.

    Args:
        path: the data, a folder or a table.
        name: of the column, or of the key of the entries.

    Returns:
        Triplet id to value; triplets without a value are left out.

    Raises:
        DataError: no triplet has such a column; names those that there are.
    """
    values, known = {}, dict[str, None]()
    for triplet_id, entry in _entries(path):
        known.update(dict.fromkeys(entry))
        if entry.get(name) is not None:
            values[triplet_id] = str(entry[name])
    if name not in known:
        mend = f"It has: {', '.join(known)}."
        raise DataError(f'no triplet has "{name}"', file=path, field=name, mend=mend)
    return values


def _entries(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if path.is_dir() and has_fashioniq_layout(path):
        folder = path / "captions" if (path / "captions").is_dir() else path
        for file in sorted(folder.glob("cap.*.json")):
            parts = file.name.removeprefix("cap.").removesuffix(".json").split(".")
            if len(parts) > 1 and parts[-1] != TRAIN:
                continue
            category = ".".join(parts[:-1]) if len(parts) > 1 else parts[0]
            for number, entry in enumerate(read_json(file)):
                yield f"{category}.{TRAIN}.{number}", entry
        return
    for row in read_raw_rows(find_table(path) if path.is_dir() else path):
        if row.split == TRAIN:
            yield row.triplet_id, row.values
