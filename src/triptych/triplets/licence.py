"""What a data set says of its own licence."""

from __future__ import annotations

import re
from pathlib import Path

_LICENCE = re.compile(r"licen[cs]e", re.IGNORECASE)
_LONGEST = 400


def licence_note(folder: Path) -> str:
    """Return what ``folder`` says of its licence, or ``not stated``.

    The first paragraph of a ``LICENSE`` or ``LICENCE`` file; else, from a README, the first paragraph that
    speaks of a licence, or the one below a heading that does.
    """
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.stem.lower() in ("license", "licence", "copying"):
            paragraphs = _paragraphs(path)
            if paragraphs:
                return f"{path.name}: {paragraphs[0]}"
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.stem.lower() == "readme":
            paragraphs = _paragraphs(path)
            for number, paragraph in enumerate(paragraphs):
                if _LICENCE.search(paragraph):
                    is_heading = paragraph.startswith("#") and number + 1 < len(paragraphs)
                    return f"{path.name}: {paragraphs[number + 1] if is_heading else paragraph}"
    return "not stated"


def _paragraphs(path: Path) -> list[str]:
    """Return the paragraphs of a text file, each on one line and not too long; a heading is its own."""
    text = path.read_bytes()[:100_000].decode("utf-8-sig", errors="replace")
    text = re.sub(r"^(#.*)$", r"\n\1\n", text, flags=re.MULTILINE)
    joined = (" ".join(block.split()) for block in re.split(r"\n\s*\n", text))
    return [line if len(line) <= _LONGEST else line[:_LONGEST] + " ..." for line in joined if line]
