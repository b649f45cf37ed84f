"""One writer at a time: a lock on a gallery that ends with the process, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from triptych.errors import DataError
from triptych.files import explain_full_disk


class BusyError(DataError):
    """Another process, or another thread of this one, is writing to the gallery."""


@contextlib.contextmanager
def writing(folder: Path, *, wait: float = 0.0) -> Iterator[None]:
    """Hold the gallery's lock for writing.

    Args:
        folder: the gallery.
        wait: seconds to wait for another writer to end.

    Raises:
        BusyError: somebody else is writing, and did not end in time.
        DataError: the gallery cannot be written.
    """
    with explain_full_disk(folder):
        lock = (folder / "lock").open("a+")
    with lock:
        deadline = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise _busy(folder) from None
                time.sleep(0.02)
        with contextlib.suppress(
            OSError
        ):  # who writes is said for people only; a full disk must not stop a removal
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
        yield


def _busy(folder: Path) -> BusyError:
    with contextlib.suppress(OSError):
        owner = (folder / "lock").read_text(encoding="utf-8").strip()
        if owner.isdigit():
            return BusyError(
                f"process {owner} is writing to this gallery",
                file=folder,
                mend="Wait until it has finished, then run again.",
            )
    return BusyError("another process is writing to this gallery", file=folder, mend="Wait, then run again.")
