"""JSON files as users have them: with a byte order mark, cut off, in another encoding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from triptych.errors import DataError
from triptych.triplets.findings import Findings, Place

_Kind = TypeVar("_Kind", list[Any], dict[str, Any])


def read_json(path: Path, name: str | None = None) -> Any:
    """Read a JSON file.

    Args:
        path: the file.
        name: how errors call it; its path where not given.

    Raises:
        DataError: it is missing, not UTF-8, or not JSON; line and column are named.
    """
    name = name or str(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise encoding_error(path, name) from None
    except OSError as error:
        raise DataError(f"the file cannot be read ({error.strerror})", file=name) from error
    return parse_json(text, name)


def read_entries(path: Path, name: str, findings: Findings) -> list[Any] | None:
    """Read a JSON list; what is none, or cannot be read, is a finding and gives None."""
    return _read_as(list, "list", "[ ... ]", path, name, findings)


def read_object(path: Path, name: str, findings: Findings) -> dict[str, Any] | None:
    """Read a JSON object; what is none, or cannot be read, is a finding and gives None."""
    return _read_as(dict, "object", "{ ... }", path, name, findings)


def _read_as(
    kind: type[_Kind], word: str, shape: str, path: Path, name: str, findings: Findings
) -> _Kind | None:
    try:
        values = read_json(path, name)
    except DataError as error:
        findings.add_error("unreadable_file", error)
        return None
    if not isinstance(values, kind):
        problem = "a list is expected, not an object or a single value"
        if word == "object":
            problem = "an object is expected, not a list or a single value"
        findings.add("not_a_list", problem, Place(name), mend=f"The file must be a JSON {word}: {shape}.")
        return None
    return values


def parse_json(text: str, name: str, *, line: int | None = None) -> Any:
    """Parse JSON text; ``line`` is its line in a larger file.

    Raises:
        DataError: it is not JSON; line and column are named.
    """
    mend = "Usual causes: a comma before ] or }, a missing quote, a file that was cut off."
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        at = error.lineno if line is None else line
        problem = f"not valid JSON at column {error.colno}: {error.msg}"
        raise DataError(problem, file=name, row=at, unit="line", mend=mend) from error
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits; 100,000 brackets
        raise DataError(f"not usable JSON: {error}", file=name, row=line, unit="line", mend=mend) from error


def encoding_error(path: Path, name: str) -> DataError:
    """Make the error for a file that is not UTF-8; it names the first bad line."""
    row = None
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                row = number
                break
    return DataError(
        "the encoding is not UTF-8",
        file=name,
        row=row,
        unit="line",
        mend=f"Save it as UTF-8, such as by `iconv -f latin1 -t utf-8 {Path(name).name} > new`.",
    )
