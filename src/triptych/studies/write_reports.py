"""Writes a study's tables: Markdown to read, CSV and JSON to compute with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from triptych.evaluation import formats
from triptych.files import atomic_write
from triptych.studies.layout import Report

FOLDER = "tables"


def write_reports(folder: Path, name: str, reports: Sequence[Report]) -> Path:
    """Write ``tables/NAME.md``, ``.csv`` and ``.json``.

    Args:
        folder: the study's.
        name: of the table.
        reports: one a data set.

    Returns:
        The Markdown file.
    """
    target = folder / FOLDER
    parts = [formats.to_markdown(report.tables, report.notes) for report in reports]
    records = [record for report in reports for record in report.records]
    notes = list(dict.fromkeys(note for report in reports for note in report.notes))
    unfinished = [vars(each) for report in reports for each in report.unfinished]
    texts = {
        ".md": f"# {name}\n\n" + "\n".join(parts),
        ".csv": formats.to_csv(records),
        ".json": formats.to_json(records, notes, table=name, unfinished=unfinished),
    }
    for ending, text in texts.items():
        with atomic_write(target / f"{name}{ending}") as file:
            file.write(text)
    return target / f"{name}.md"
