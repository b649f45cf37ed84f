"""The papers' tables as declared in ``paper_tables/*.toml``: which trainings each needs, and what its columns are."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from triptych.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAPERS = {"INTENT": "intent.toml", "ConeSep": "conesep.toml", "HABIT": "habit.toml"}
"""Each paper and the file of its tables."""

DataKind = Literal["fashioniq", "cirr"]
"""What the columns go by: whether queries have subsets (CIRR), or not."""


class PaperTable(BaseModel):
    """One table of a paper.

    Attributes:
        paper: as ``INTENT``.
        number: of the table.
        title: what it shows.
        kind: ``methods`` by noise, ``ablation`` rows of one method, or ``efficiency``: cost beside recall.
        data: what the paper measured it on.
        methods: the rows of ``methods``.
        method: whose rows an ablation has.
        rows: of the ablation, such as ``A1``; the full method comes last.
        variants: the rows of ``efficiency``: methods, or ``METHOD.ROW``.
        noise: rates of mix noise.
        columns: by kind of data: a metric, or ``*:METRIC`` for one column a category.
        quoted: row to printed figures of FashionIQ, in the order of the columns (for ``efficiency`` FLOPs in 10^9
            and parameters in 10^6 come first).
        notes: what a reader must know of the print.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    paper: str
    number: int
    title: str
    kind: Literal["methods", "ablation", "efficiency"]
    data: tuple[str, ...]
    methods: tuple[str, ...] = ()
    method: str = ""
    rows: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    noise: tuple[float, ...]
    columns: Mapping[DataKind, tuple[str, ...]]
    quoted: Mapping[str, tuple[float, ...]] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What it is called on the command line and in files, such as ``INTENT-3``."""
        return f"{self.paper}-{self.number}"

    @property
    def wanted(self) -> tuple[str, ...]:
        """Its trainings: methods, or ablation rows as ``METHOD.ROW``; the full method last."""
        if self.kind == "ablation":
            return (*(f"{self.method}.{row}" for row in self.rows), self.method)
        return self.methods or self.variants


@cache
def paper_tables() -> tuple[PaperTable, ...]:
    """Read the 16 tables: INTENT 1 to 6, ConeSep 1 to 6, HABIT 1 to 4."""
    found = []
    for paper, name in PAPERS.items():
        text = files("triptych.studies").joinpath("paper_tables").joinpath(name).read_text(encoding="utf-8")
        tables: dict[str, dict[str, Any]] = tomllib.loads(text)
        found += [PaperTable(paper=paper, number=int(number), **values) for number, values in tables.items()]
    return tuple(found)


def find_tables(names: Iterable[str]) -> tuple[PaperTable, ...]:
    """Return tables by name: ``INTENT-3``, ``intent3``, or a paper for all of its tables; all for no name.

    Raises:
        UsageError: there is no such table; lists those that there are.

    Example:
        >>> [table.name for table in find_tables(["habit 4", "INTENT-1"])]
        ['HABIT-4', 'INTENT-1']
    """
    known = paper_tables()
    if not (wanted := list(names)):
        return known
    found: list[PaperTable] = []
    for name in wanted:
        own = [table for table in known if _plain(name) in (_plain(table.name), _plain(table.paper))]
        if not own:
            each = ", ".join(table.name for table in known)
            raise UsageError(
                f'there is no table "{name}"; there are: {each}; a paper\'s name stands for all of its'
            )
        found += [table for table in own if table not in found]
    return tuple(found)


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
