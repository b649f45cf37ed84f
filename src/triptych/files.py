"""Files that are whole or not there: written to a temporary name, fsynced, renamed."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from triptych.errors import DataError


@contextlib.contextmanager
def explain_full_disk(path: Path) -> Iterator[None]:
    """Turn "no space left" and "read-only" into an error that names ``path`` and the mend."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DataError(
                "the disk is full; nothing was changed", file=path, mend="Free some space and run again."
            ) from error
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise _not_writable(path) from error
        raise


def require_space(folder: Path, needed_bytes: int, what: str) -> None:
    """Refuse to begin what the disk cannot hold.

    Args:
        folder: where it would be written; it need not be there yet.
        needed_bytes: how much.
        what: names it, such as ``the tokens of 4,000 images``.

    Raises:
        DataError: the disk has less free space; names both sizes.
    """
    free = free_disk(folder)
    if needed_bytes > free:
        raise DataError(
            f"{what} need {readable_size(needed_bytes)}, and the disk has {readable_size(free)} free; "
            "nothing was written",
            file=folder,
            mend="Free some space, or choose a folder on another disk.",
        )


def free_disk(folder: Path) -> int:
    """Return the free bytes of the disk that a folder is on, or would be."""
    there = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    return shutil.disk_usage(there).free


def readable_size(count: float) -> str:
    """Write a number of bytes as people read it.

    Example:
        >>> readable_size(12_800), readable_size(40e9)
        ('12.8 kB', '40.0 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a temporary path beside ``path``; on success it is fsynced and renamed, on any error removed.

    Raises:
        DataError: the disk is full, the folder cannot be made or written, or ``path`` is a folder.
    """
    if path.is_dir():
        raise DataError("a folder is in the place of the file", file=path, mend="Choose another name.")
    with explain_full_disk(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        except (FileNotFoundError, FileExistsError, NotADirectoryError) as error:
            raise _not_writable(path) from error
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
            _sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[IO[str]]:
    """Open ``path`` for UTF-8 text that appears only when it is complete."""
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        yield file


def write_json(path: Path, value: Any, *, indent: int | None = 2) -> None:
    """Write ``value`` as JSON, whole or not at all."""
    with atomic_write(path) as file:
        json.dump(value, file, indent=indent, ensure_ascii=False)
        file.write("\n")


def _not_writable(path: Path) -> DataError:
    return DataError("cannot be written here", file=path, mend="Choose another place to write to.")


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
