"""The one place that opens LanceDB, and says in our words what can go wrong there."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyarrow as pa

from triptych.errors import DataError, TriptychError

TABLE = "images"

_FULL = ("no space left", "os error 28", "disk quota", "os error 122")
_CLOSED = ("permission denied", "read-only file system", "os error 13", "os error 30")


def create_table(folder: Path, schema: pa.Schema) -> Any:
    """Make an empty table in ``folder``.

    Raises:
        DataError: the disk is full or cannot be written.
        TriptychError: LanceDB is not installed.
    """
    with explained(folder):
        rmtree(folder, ignore_errors=True)  # what a creation that was killed left
        return _connect(folder).create_table(TABLE, schema=schema)


def open_table(folder: Path) -> Any:
    """Open the table in ``folder``; it follows what others write when ``checkout_latest`` is called.

    Raises:
        DataError: there is none, or it is damaged.
        TriptychError: LanceDB is not installed.
    """
    with explained(folder):
        return _connect(folder).open_table(TABLE)


@contextlib.contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn LanceDB's errors into ours: a full disk, no permission, or a damaged table."""
    try:
        yield
    except (TriptychError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        panic = type(error).__name__ == "PanicException"  # a panic of the Rust side is no Exception
        if not panic and not isinstance(error, OSError | RuntimeError | ValueError | pa.ArrowException):
            raise
        raise _in_our_words(folder, error) from error


def _in_our_words(folder: Path, error: BaseException) -> DataError:
    text = str(error)
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.ENOSPC, errno.EDQUOT) or any(sign in text.lower() for sign in _FULL):
        return DataError(
            "the disk is full; what was finished before is kept",
            file=folder,
            mend="Free some space and run again.",
        )
    if number in (errno.EROFS, errno.EACCES, errno.EPERM) or any(sign in text.lower() for sign in _CLOSED):
        return DataError("cannot be read or written here", file=folder, mend="Mend the permissions.")
    first = text.strip().splitlines()[0][:300] if text.strip() else type(error).__name__
    return DataError(
        f"the gallery's table is missing or damaged: {first}",
        file=folder,
        mend="Restore it from a copy, or make the gallery again with `triptych index`.",
    )


def _connect(folder: Path) -> Any:
    if find_spec("lancedb") is None:
        raise TriptychError('a gallery needs LanceDB.\n  Run: pip install "triptych[search]"')
    import lancedb

    return lancedb.connect(str(folder))
