"""Claims: several processes that build one cache split the work, and a killed one gives up what it had claimed."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType

_OFFSETS = 2**62


class Claims:
    """Locks on keys: each is one byte of a file at a place that the key names, held by at most one process.

    The kernel keeps these locks and drops them when a process ends, however it ends; nothing is written.

    Args:
        path: the file; made where it is missing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Claims:
        self._file = self._path.open("w")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def take(self, key: bytes) -> bool:
        """Claim a key; False where another process has it."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(key))
        except (BlockingIOError, PermissionError):
            return False
        return True

    def release(self, keys: Iterable[bytes]) -> None:
        """Give up claims."""
        for key in keys:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _place(key))

    def wait(self, key: bytes) -> None:
        """Wait until no other process has a key."""
        fcntl.lockf(self._file, fcntl.LOCK_EX, 1, _place(key))
        self.release([key])

    def chunks(
        self, left: dict[bytes, None], size: int, stored: Callable[[bytes], bool], refresh: Callable[[], None]
    ) -> Iterator[list[bytes]]:
        """Yield claimed keys, ``size`` at a time; what other processes have now stays in ``left``.

        Args:
            left: keys that are wanted; those that are yielded, and those that are stored by now, are taken out.
            size: keys a chunk.
            stored: says whether a key is stored.
            refresh: looks what other processes have stored.
        """
        free = iter(list(left))
        while chunk := _first(free, size, self.take):
            refresh()  # what was stored before it was claimed is known now
            for key in chunk:
                del left[key]
            done = [key for key in chunk if stored(key)]
            self.release(done)
            if missing := [key for key in chunk if not stored(key)]:
                yield missing


def _first(keys: Iterator[bytes], size: int, wanted: Callable[[bytes], bool]) -> list[bytes]:
    found: list[bytes] = []
    for key in keys:
        if wanted(key):
            found.append(key)
            if len(found) == size:
                break
    return found


def _place(key: bytes) -> int:
    return int.from_bytes(key[:8], "little") % _OFFSETS
