"""Feedback: what people chose becomes a table of triplets that ``triptych train`` reads."""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from pathlib import Path

from triptych.errors import DataError
from triptych.files import explain_full_disk


class FeedbackFullError(DataError):
    """The file of feedback has reached its largest size."""


def append_triplet(
    path: Path,
    *,
    reference: str,
    text: str,
    target: str,
    category: str | None = None,
    most_bytes: int | None = None,
) -> str:
    """Append a triplet to a JSON lines file; on return it is on disk.

    A line that a killed process left unfinished is cut off first, so that the file can always be read.

    Args:
        path: the file, such as ``GALLERY/feedback.jsonl``.
        reference: id of the picture that was started from.
        text: what was to change.
        target: id of the picture that was chosen.
        category: of the triplet; optional.
        most_bytes: what the file may hold.

    Returns:
        The id of the triplet.

    Raises:
        FeedbackFullError: the file would grow beyond ``most_bytes``.
        DataError: the disk is full or cannot be written.
    """
    triplet = {"id": uuid.uuid4().hex, "reference": reference, "text": text, "target": target}
    if category is not None:
        triplet["category"] = category
    line = (json.dumps(triplet, ensure_ascii=False) + "\n").encode()
    with explain_full_disk(path), path.open("ab+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        end = _whole(file.fileno())
        if most_bytes is not None and end + len(line) > most_bytes:
            raise FeedbackFullError(f"the file has reached its {most_bytes:,} bytes", file=path)
        try:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            os.ftruncate(file.fileno(), end)
            raise
    return triplet["id"]


def _whole(descriptor: int) -> int:
    """Cut an unfinished last line off, and return where the file then ends."""
    end = os.fstat(descriptor).st_size
    step = 4096
    at = end
    while at > 0:
        start = max(0, at - step)
        newline = os.pread(descriptor, at - start, start).rfind(b"\n")
        if newline >= 0:
            at = start + newline + 1
            break
        at = start
    if at != end:
        os.ftruncate(descriptor, at)
    return at
