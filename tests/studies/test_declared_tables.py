"""The declared tables: all 16, with cells that can run and figures that agree with those quoted elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from triptych.errors import UsageError
from triptych.evaluation.protocols import CIRR, FASHIONIQ
from triptych.methods.ablations import ablations
from triptych.studies.cells import Study
from triptych.studies.check_cells import check_cells
from triptych.studies.declared_tables import PaperTable, find_tables, paper_tables
from triptych.studies.reproduce import Choice, table_layouts

BOTH = Choice({"FashionIQ": "fashioniq", "CIRR": "cirr"}, seeds=(0, 1))


def test_there_are_sixteen_and_they_are_found_by_name() -> None:
    names = [table.name for table in paper_tables()]
    assert names == [f"{paper}-{n}" for paper, last in (("INTENT", 6), ("ConeSep", 6), ("HABIT", 4)) for n in
                     range(1, last + 1)]  # fmt: skip
    assert find_tables([]) == paper_tables()
    assert [table.name for table in find_tables(["habit 4", "conesep-2"])] == ["HABIT-4", "ConeSep-2"]
    assert len(find_tables(["INTENT", "INTENT-3"])) == 6
    with pytest.raises(UsageError, match=r'no table "INTENT-7".*INTENT-6'):
        find_tables(["INTENT-7"])


@pytest.mark.parametrize("table", paper_tables(), ids=lambda table: table.name)
def test_every_table_can_run(table: PaperTable, tmp_path: Path) -> None:
    layouts = table_layouts(table, BOTH)
    assert len(layouts) == 2
    cells = [cell for layout in layouts for line in layout.lines for cell in line.cells]
    assert len(set(cells)) == len(cells) == 2 * 2 * len(table.noise) * len(table.wanted)
    check_cells(Study(dict.fromkeys(BOTH.data, tmp_path), tmp_path, tuple(cells)))
    for layout, protocol in zip(layouts, (FASHIONIQ, CIRR), strict=True):
        known = (
            {f"R@{k}" for k in protocol.ks}
            | {f"R_sub@{k}" for k in protocol.subset_ks}
            | set(protocol.averages)
        )
        assert {column.removeprefix("*:") for column in layout.columns} <= known


@pytest.mark.parametrize(
    "table", [table for table in paper_tables() if table.kind == "ablation"], ids=lambda table: table.name
)
def test_ablation_tables_have_their_rows(table: PaperTable) -> None:
    """Each row is one that the method says to stand in this table, and none is left out."""
    own = [
        name
        for name, ablation in ablations()
        if ablation.table in (f"{table.paper} table {table.number}", f"{table.paper} tables 5 and 6")
        and name.startswith(table.method + ".")
        and (ablation.table.endswith("tables 5 and 6")) == (table.name in ("ConeSep-5", "ConeSep-6"))
    ]
    assert sorted(own) == sorted(f"{table.method}.{row}" for row in table.rows)
    if "FashionIQ" in table.data:
        assert set(table.quoted) == {*table.rows, "full"}
        assert len({len(values) for values in table.quoted.values()}) == 1


def test_quoted_averages_follow_from_their_cells() -> None:
    (table,) = find_tables(["ConeSep-5"])
    for ten, fifty, average in table.quoted.values():
        assert average == pytest.approx((ten + fifty) / 2, abs=0.0151)


def test_a_choice_narrows_a_table() -> None:
    (table,) = find_tables(["INTENT-1"])
    chosen = table_layouts(table, Choice({"d": "fashioniq"}, methods=("rcl",)))
    assert [line.label for line in chosen[0].lines] == ["rcl"] * 4
    assert table_layouts(table, Choice({"d": "fashioniq"}, methods=("habit",))) == []
    two = table_layouts(table, Choice({"d": "fashioniq"}, methods=("rcl",), backbones=("lite", "clip")))
    assert [line.label for line in two[0].lines][:2] == ["rcl (lite)", "rcl (clip)"]
