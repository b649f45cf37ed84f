"""The papers' tables as studies: the cells that a declared table needs, and how they are laid out again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from triptych.errors import UsageError
from triptych.methods.ablations import ablations
from triptych.studies.cells import Cell, NoiseLevel
from triptych.studies.declared_tables import DataKind, PaperTable
from triptych.studies.layout import Layout, Line, Printed


@dataclass(frozen=True)
class Choice:
    """What the cells of a study are made for.

    Attributes:
        data: name to kind; a study's single data set may have an empty name.
        seeds: of the trainings.
        methods: only these; empty = all of the table.
        noise: in place of the table's; empty = the table's own.
        backbones: their names; a single empty one stands for the default.
    """

    data: Mapping[str, DataKind]
    seeds: tuple[int, ...] = (0,)
    methods: tuple[str, ...] = ()
    noise: tuple[NoiseLevel, ...] = ()
    backbones: tuple[str, ...] = ("",)

    def levels(self, rates: Sequence[float]) -> tuple[NoiseLevel, ...]:
        """Return the chosen noise, or else mix noise of the rates."""
        return self.noise or tuple(NoiseLevel("mix", rate) for rate in rates)

    def line(self, cell: Cell, label: str) -> list[Line]:
        """Make the lines of a cell: one a backbone, its cells one a seed."""
        return [
            Line(
                f"{label} ({backbone})" if len(self.backbones) > 1 else label,
                tuple(replace(cell, seed=seed, backbone=backbone) for seed in self.seeds),
            )
            for backbone in self.backbones
        ]


def table_layouts(table: PaperTable, choice: Choice) -> list[Layout]:
    """Lay a paper's table out: one layout a data set; nothing where the choice leaves no line of it.

    Args:
        table: as declared.
        choice: data, seeds, and what else narrows it.
    """
    wanted = [name for name in table.wanted if not choice.methods or _method(name) in choice.methods]
    if not wanted:
        return []
    return [_layout(table, wanted, data, kind, choice) for data, kind in choice.data.items()]


def _layout(table: PaperTable, wanted: Sequence[str], data: str, kind: DataKind, choice: Choice) -> Layout:
    lines = [
        line
        for level in choice.levels(table.noise)
        for name in wanted
        for line in choice.line(_cell(name, level, data), label_of(name))
    ]
    columns = table.columns[kind]
    full = table.method if table.kind == "ablation" and len(choice.backbones) == 1 else None
    notes = list(table.notes)
    official = " and ".join(table.data)
    notes.append(f"{table.paper} table {table.number} is of {official}, with BLIP-2 ViT-g.")
    missing = [name for name in table.columns.get("cirr", ()) if name.startswith("R_sub")]
    if missing and kind != "cirr":
        notes.append(f"This data has no subsets of the gallery: no {', '.join(missing)}.")
    return Layout(
        name=table.name,
        title=f"{table.name}, {table.title}" if table.title != "Cost" else f"{table.name}, recall",
        lines=tuple(lines),
        columns=columns,
        baseline=full,
        printed=_printed(table, columns) if kind == "fashioniq" else None,
        quote=table.kind == "methods",
        notes=tuple(notes),
    )


def _printed(table: PaperTable, columns: tuple[str, ...]) -> Printed | None:
    if not table.quoted:
        return None
    skipped = 2 if table.kind == "efficiency" else 0
    figures = {label_of(_full_name(table, row)): values[skipped:] for row, values in table.quoted.items()}
    source = f"{table.paper} table {table.number}"
    return Printed(source, table.noise[0], figures, columns)


def _full_name(table: PaperTable, row: str) -> str:
    if table.kind != "ablation":
        return row
    return table.method if row == "full" else f"{table.method}.{row}"


def label_of(name: str) -> str:
    """Return what a method, or an ablation row ``METHOD.ROW``, is called in tables.

    Example:
        >>> label_of("intent"), label_of("intent.A1")
        ('intent', 'intent A1 w/o VIC')
    """
    method, dot, row = name.partition(".")
    if not dot:
        return method
    return f"{method} {row} {dict(ablations())[name].title}"


def ablation_layouts(method: str, rows: Sequence[str], choice: Choice) -> list[Layout]:
    """Lay out every ablation row of a method, or some, beside the full method, which they are compared with.

    Args:
        method: its name.
        rows: such as ``A1``; all where none is given.
        choice: data, seeds and noise; mix 0.2 where no noise is chosen.

    Raises:
        UsageError: the method has no such row, or none at all.
    """
    known = {name.partition(".")[2]: name for name, _ in ablations() if name.partition(".")[0] == method}
    if not known:
        having = ", ".join(sorted({name.partition(".")[0] for name, _ in ablations()}))
        raise UsageError(f"method {method} has no ablation rows; these have: {having}")
    if unknown := [row for row in rows if row not in known]:
        raise UsageError(f"{method} has no ablation row {unknown[0]}; it has: {', '.join(known)}")
    wanted = [*(known[row] for row in rows or known), method]
    return [
        Layout(
            name=f"ablate-{method}",
            title=f"ablation of {method}",
            lines=variant_lines(wanted, data, choice),
            baseline=method if len(choice.backbones) == 1 else None,
            quote=False,
            notes=_same_as_full(wanted),
        )
        for data in choice.data
    ]


def variant_lines(names: Sequence[str], data: str, choice: Choice) -> tuple[Line, ...]:
    """Make the lines of methods and ablation rows ``METHOD.ROW``; mix 0.2 where no noise is chosen."""
    return tuple(
        line
        for level in choice.levels((0.2,))
        for name in names
        for line in choice.line(_cell(name, level, data), label_of(name))
    )


def _same_as_full(names: Sequence[str]) -> tuple[str, ...]:
    known = dict(ablations())
    return tuple(
        f"{label_of(name)} changes nothing: {known[name].same_as_full}"
        for name in names
        if name in known and known[name].same_as_full
    )


def _cell(name: str, level: NoiseLevel, data: str) -> Cell:
    method, dot, _ = name.partition(".")
    return Cell(method, level, 0, row=name if dot else "", data=data)


def _method(name: str) -> str:
    return name.partition(".")[0]
