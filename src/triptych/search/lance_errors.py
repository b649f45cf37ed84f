"""What LanceDB's errors mean, in our words: a full disk, no permission, no answer, a damaged table."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from triptych.errors import DataError, TriptychError

_FULL = ("no space left", "os error 28", "disk quota", "os error 122")
_SILENT = ("connect error", "dns error", "connection refused", "timed out", "error sending request")
_CLOSED = (
    "permission denied",
    "read-only file system",
    "os error 13",
    "os error 30",
    "accessdenied",
    "403 forbidden",
)


@contextlib.contextmanager
def explained(place: str | Path) -> Iterator[None]:
    """Turn LanceDB's errors about the store at ``place`` into ours."""
    try:
        yield
    except (TriptychError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        panic = type(error).__name__ == "PanicException"  # a panic of the Rust side is no Exception
        if not panic and not isinstance(error, OSError | RuntimeError | ValueError | pa.ArrowException):
            raise
        raise _in_our_words(place, error) from error


def _in_our_words(place: str | Path, error: BaseException) -> DataError:
    text = str(error)
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.ENOSPC, errno.EDQUOT) or any(sign in text.lower() for sign in _FULL):
        return DataError(
            "the disk is full; what was finished before is kept",
            file=place,
            mend="Free some space and run again.",
        )
    if number in (errno.EROFS, errno.EACCES, errno.EPERM) or any(sign in text.lower() for sign in _CLOSED):
        return DataError("cannot be read or written here", file=place, mend="Mend the permissions.")
    if any(sign in text.lower() for sign in _SILENT):
        return DataError(
            "the store does not answer",
            file=place,
            mend="Look at its address (AWS_ENDPOINT, AWS_REGION) and whether it is running.",
        )
    first = text.strip().splitlines()[0][:300] if text.strip() else type(error).__name__
    return DataError(
        f"the gallery's table is missing or damaged: {first}",
        file=place,
        mend="Restore it from a copy, or make the gallery again with `triptych index`.",
    )
