"""Shard: one part of a feature store on disk, appended entry by entry, every entry with its checksum.

``00007.keys`` lists the entries (32-byte key, rows, checksum), ``00007.f16`` or ``00007.i8`` holds their rows, and int8
has ``00007.scales`` besides: one float32 a channel and entry, so that what is stored of an entry does not depend on what
stands beside it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from triptych.errors import DataError
from triptych.files import atomic_path

Dtype: TypeAlias = Literal["float16", "int8"]
DTYPES: tuple[str, ...] = get_args(Dtype)
SUFFIXES = {"float16": "f16", "int8": "i8"}
RECORD = np.dtype([("key", "V32"), ("rows", "<u4"), ("checksum", "<u8")])
_LARGEST = 127
FloatArray = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Stored:
    """An entry as it lies on disk: ``[rows, width]`` values, and ``[width]`` float32 scales where they are int8."""

    values: npt.NDArray[Any]
    scales: npt.NDArray[np.float32] | None = None

    @property
    def nbytes(self) -> int:
        """What it takes on disk, its place in the list of keys included."""
        scales = 0 if self.scales is None else self.scales.nbytes
        return self.values.nbytes + scales + RECORD.itemsize

    @property
    def finite(self) -> bool:
        """Whether every value is a number."""
        return bool(np.isfinite(self.values if self.scales is None else self.scales).all())

    def checksum(self) -> int:
        """Return 64 bits of the BLAKE2b of what is stored."""
        digest = hashlib.blake2b(np.ascontiguousarray(self.values), digest_size=8)
        if self.scales is not None:
            digest.update(np.ascontiguousarray(self.scales))
        return int.from_bytes(digest.digest(), "little")

    def restored(self) -> FloatArray:
        """Return the features: float16 as they are, int8 times its scales as float32."""
        return self.values if self.scales is None else restore(self.values, self.scales)


def store_as(entry: FloatArray, dtype: str) -> Stored:
    """Make of ``[rows, width]`` features what is stored; values out of range become infinite."""
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return Stored(entry.astype(np.float16))
    entry = entry.astype(np.float32)
    scales = np.abs(entry).max(axis=0, initial=0) / np.float32(_LARGEST)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where(scales > 0, np.rint(entry / scales), 0)
    return Stored(np.nan_to_num(values).clip(-_LARGEST, _LARGEST).astype(np.int8), scales)


def restore(values: npt.NDArray[Any], scales: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Turn int8 ``[..., rows, width]`` with scales ``[..., width]`` into float32."""
    restored: npt.NDArray[np.float32] = values.astype(np.float32) * scales[..., None, :]
    return restored


def entry_bytes(rows: int, width: int, dtype: str) -> int:
    """Return what an entry of ``[rows, width]`` takes on disk, its place in the list of keys included."""
    values = rows * width * (2 if dtype == "float16" else 1)
    return values + (4 * width if dtype == "int8" else 0) + RECORD.itemsize


class Shard:
    """The files of one number; readable while another process appends to them.

    Args:
        folder: the store's.
        number: of the shard.
        width: values a row.
        dtype: ``float16`` or ``int8``.

    Raises:
        DataError: a file of the shard is missing.
    """

    def __init__(self, folder: Path, number: int, width: int, dtype: str) -> None:
        self.folder, self.number, self.width, self.dtype = folder, number, width, dtype
        stem = f"{number:05d}"
        self.keys_file = folder / f"{stem}.keys"
        self.values_file = folder / f"{stem}.{SUFFIXES[dtype]}"
        self.scales_file = folder / f"{stem}.scales"
        self.row_bytes = width * np.dtype(dtype).itemsize
        self.keys: list[bytes] = []
        self.lengths = np.zeros(0, dtype=np.int64)
        self.starts = np.zeros(0, dtype=np.int64)
        self.checksums = np.zeros(0, dtype=np.uint64)
        self._mapped: tuple[int, npt.NDArray[Any], npt.NDArray[np.float32] | None] | None = None

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files, the list of keys first: without it the others are nothing."""
        return (self.keys_file, self.values_file, *((self.scales_file,) if self.dtype == "int8" else ()))

    @property
    def rows(self) -> int:
        """How many rows all entries have."""
        return int(self.starts[-1] + self.lengths[-1]) if self.keys else 0

    @property
    def bytes(self) -> int:
        """What the entries take on disk."""
        scales = 4 * self.width * len(self) if self.dtype == "int8" else 0
        return self.rows * self.row_bytes + scales + len(self) * RECORD.itemsize

    def create(self) -> None:
        """Make the empty files, the list of keys last."""
        for path in reversed(self.files):
            path.touch()

    def identity(self) -> int:
        """Say which file this is: a shard that was dropped and built again has another."""
        with self._missing_files():
            return self.values_file.stat().st_ino

    def load(self) -> list[bytes]:
        """Read the entries that were appended since the last time, and return their keys.

        An entry that is listed before its rows are all there is the rest of an interrupted build and is left out.
        """
        with self._missing_files():
            with self.keys_file.open("rb") as file:
                file.seek(len(self) * RECORD.itemsize)
                raw = file.read()
            rows = self.values_file.stat().st_size // self.row_bytes
            entries = self.scales_file.stat().st_size // (4 * self.width) if self.dtype == "int8" else None
        records = np.frombuffer(raw[: len(raw) // RECORD.itemsize * RECORD.itemsize], dtype=RECORD)
        if entries is not None:
            records = records[: max(entries - len(self), 0)]
        ends = self.rows + np.cumsum(records["rows"], dtype=np.int64)
        records = records[: int(np.searchsorted(ends, rows, side="right"))]
        keys: list[bytes] = [key.tobytes() for key in records["key"]]
        self.starts = np.append(self.starts, ends[: len(records)] - records["rows"])
        self.lengths = np.append(self.lengths, records["rows"].astype(np.int64))
        self.checksums = np.append(self.checksums, records["checksum"])
        self.keys += keys
        return keys

    def read(self, places: npt.NDArray[np.int64], rows: int) -> FloatArray:
        """Read entries of ``rows`` rows each: ``[N]`` places to ``[N, rows, width]``."""
        values, scales = self._mapping()
        found = values[self.starts[places][:, None] + np.arange(rows)]
        return found if scales is None else restore(found, scales[places])

    def stored(self, place: int) -> Stored:
        """Return an entry as it lies on disk."""
        values, scales = self._mapping()
        start = int(self.starts[place])
        return Stored(
            values[start : start + int(self.lengths[place])], None if scales is None else scales[place]
        )

    def damaged_entries(self) -> list[int]:
        """Read everything and return the places of the entries that are not what was written."""
        return [place for place in range(len(self)) if self.stored(place).checksum() != self.checksums[place]]

    def cut(self) -> None:
        """Cut off what an interrupted build left behind the last whole entry."""
        os.truncate(self.values_file, self.rows * self.row_bytes)
        if self.dtype == "int8":
            os.truncate(self.scales_file, 4 * self.width * len(self))
        os.truncate(self.keys_file, len(self) * RECORD.itemsize)

    def append(self, keys: Sequence[bytes], entries: Sequence[Stored]) -> None:
        """Append entries: their rows are on the disk before they are listed."""
        _write(self.values_file, b"".join(entry.values.tobytes() for entry in entries))
        if self.dtype == "int8":
            _write(self.scales_file, b"".join(e.scales.tobytes() for e in entries if e.scales is not None))
        records = np.zeros(len(keys), dtype=RECORD)
        records["key"] = np.frombuffer(b"".join(keys), dtype="V32")
        records["rows"] = [len(entry.values) for entry in entries]
        records["checksum"] = [entry.checksum() for entry in entries]
        _write(self.keys_file, records.tobytes())

    def _mapping(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32] | None]:
        """Map the files; anew where they have grown."""
        if self._mapped is None or self._mapped[0] != len(self):
            values: npt.NDArray[Any] = np.empty((0, self.width), dtype=self.dtype)
            scales: npt.NDArray[np.float32] | None = None
            with self._missing_files():
                if self.rows:
                    shape = (self.rows, self.width)
                    values = np.memmap(self.values_file, dtype=self.dtype, mode="r", shape=shape)
                if self.dtype == "int8":
                    shape = (len(self), self.width)
                    scales = np.memmap(self.scales_file, dtype=np.float32, mode="r", shape=shape)
            self._mapped = (len(self), values, scales)
        return self._mapped[1:]

    @contextlib.contextmanager
    def _missing_files(self) -> Iterator[None]:
        """Turn a file that is not there into an error that names the mend."""
        try:
            yield
        except FileNotFoundError as error:
            raise damaged(self.folder, f"{Path(error.filename).name} is missing") from error


def damaged(folder: Path, how: str) -> DataError:
    """Make the error of a damaged cache."""
    mend = (
        f"`triptych cache verify --cache {folder} --repair` drops what is damaged; it is computed again. "
        "Or delete this folder."
    )
    return DataError(f"this cache is damaged: {how}", file=folder, mend=mend)


def import_format_1(folder: Path, width: int) -> None:
    """Turn ``features.f16`` and ``keys.bin`` of an older version into shard 0; a killed import goes on where it was.

    The caller writes the new ``meta.json``; only then may ``keys.bin`` go.

    Raises:
        DataError: a file is missing.
    """
    shard = Shard(folder, 0, width, "float16")
    old_keys, old_values = folder / "keys.bin", folder / "features.f16"
    with shard._missing_files():
        records = np.fromfile(old_keys, dtype=np.dtype([("key", "V32"), ("rows", "<u4")]))
        values = old_values if old_values.exists() else shard.values_file
        whole = values.stat().st_size // shard.row_bytes
    ends = np.cumsum(records["rows"], dtype=np.int64)
    records = records[: int(np.searchsorted(ends, whole, side="right"))]
    shape = (whole, width)
    rows = (
        np.memmap(values, dtype=np.float16, mode="r", shape=shape) if whole else np.empty(shape, np.float16)
    )
    ends = ends[: len(records)]
    new = np.zeros(len(records), dtype=RECORD)
    new["key"], new["rows"] = records["key"], records["rows"]
    new["checksum"] = [
        Stored(rows[end - length : end]).checksum()
        for end, length in zip(ends.tolist(), records["rows"].tolist(), strict=True)
    ]
    if old_values.exists():
        os.replace(old_values, shard.values_file)
    with atomic_path(shard.keys_file) as temporary:
        new.tofile(temporary)


def _write(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
