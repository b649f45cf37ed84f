"""Tables of cells: means over seeds, both conventions, and what is not finished is said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from triptych.evaluation import REFERENCE_REMOVED, ModelInfo, QueryRanks, assemble
from triptych.evaluation.quoted import quoted_rows
from triptych.evaluation.report import NoiseInfo
from triptych.studies.cells import Cell, NoiseLevel, Study
from triptych.studies.layout import Layout, Line, Printed, lay_out, recall_columns
from triptych.studies.write_reports import write_reports

FIFTH = NoiseLevel("mix", 0.2)
OFFICIAL = next(row.gallery_hash for row in quoted_rows() if row.data == "fashioniq")


def finish(study: Study, cell: Cell, target: list[int], gallery_hash: str = "g") -> None:
    """Write a finished cell whose targets stand at these ranks in both of two categories; references stand first."""
    ids = tuple(map(str, range(len(target))))
    none = tuple(np.empty(0, dtype=np.int64) for _ in target)
    parts = [
        QueryRanks("val", category, 100, ids, np.array(target), np.zeros(len(target), dtype=np.int64), none)
        for category in ("dress", "shirt")
    ]
    noise = NoiseInfo(name="n", fingerprint="f", kind="mix", ratio=0.19, asked=0.2)
    report = assemble(
        {"composed": parts, "image-only": parts, "text-only": parts},
        REFERENCE_REMOVED,
        data="x",
        gallery_hash=gallery_hash,
        model=ModelInfo(name=cell.name, method=cell.method, backbone="lite", seed=cell.seed),
        noise=noise if cell.noise.ratio else None,
        samples=20,
    )
    report.write(study.folder / cell.name / "evaluation-best.json")
    study.note(cell, seconds=1.0, detection=None)


@pytest.fixture
def study(tmp_path: Path) -> Study:
    cells = tuple(Cell("intent", FIFTH, seed, row=row) for row in ("intent.A1", "") for seed in (0, 1))
    return Study({"": tmp_path}, tmp_path / "s", cells)


def lines(study: Study) -> tuple[Line, ...]:
    return Line("intent A1 w/o VIC", study.cells[:2]), Line("intent", study.cells[2:])


def test_means_over_seeds_by_hand(study: Study) -> None:
    """Removed, ranks 1..10 count for R@10: 1 of 2 and 2 of 2 queries, so 75 ± 35.4; kept, 9 of the ranks do."""
    ranks = ([5, 60], [5, 10], [60, 60], [5, 60])
    for cell, target in zip(study.cells, ranks, strict=True):
        finish(study, cell, target)
    layout = Layout("t", "title", lines(study), ("*:R@10", "R@10"), baseline="intent")
    report = lay_out(study, layout, samples=50)
    removed, kept = report.tables[:2]
    assert removed.header == ("method", "noise", "seeds", "dress:R@10", "shirt:R@10", "R@10")
    assert removed.rows[0] == ("intent A1 w/o VIC", "mix 20 %", "0, 1", *["75.0 ± 35.4"] * 3)
    assert removed.rows[1][3] == "25.0 ± 35.4"
    assert kept.rows[0][3] == "50.0 ± 0.0"
    difference = next(table for table in report.tables if table.title.startswith("Points above intent"))
    assert difference.rows[0][1].startswith("+50.0 [")
    assert report.unfinished == ()
    text = " ".join(cell for table in report.tables for row in (table.header, *table.rows) for cell in row)
    for honest in ("image-only", "text-only", "effective noise", "19.0 %"):
        assert honest in text


def test_what_is_not_finished_is_named_counted_and_in_no_mean(study: Study, tmp_path: Path) -> None:
    finish(study, study.cells[0], [5, 60])
    (study.folder / study.cells[1].name).mkdir()
    (study.folder / study.cells[1].name / "config.json").write_text("{}")
    report = lay_out(study, Layout("t", "title", lines(study), ("R@10",)))
    assert report.tables[0].rows[0] == ("intent A1 w/o VIC", "mix 20 %", "0; 1 of 2 not finished", "50.0")
    assert report.tables[0].rows[1] == ("intent", "mix 0.2", "2 of 2 not finished", "–")
    note = next(note for note in report.notes if note.startswith("3 runs are not finished"))
    assert f"{study.cells[1].name} (begun, not finished)" in note
    assert f"{study.cells[2].name} (not run)" in note
    path = write_reports(tmp_path, "t", [report])
    assert "3 runs are not finished" in path.read_text()
    stored = json.loads(path.with_suffix(".json").read_text())
    assert [each["name"] for each in stored["unfinished"]] == [cell.name for cell in study.cells[1:]]
    assert all(figure["runs"] == 1 for figure in stored["figures"] if figure["kind"] == "measured")
    assert "table,kind,method" in path.with_suffix(".csv").read_text()


def test_nothing_finished_is_said(study: Study) -> None:
    report = lay_out(study, Layout("t", "title", lines(study)))
    assert report.tables[0].title == "title: nothing is finished"
    assert report.notes[0].startswith("4 runs are not finished")


@pytest.mark.parametrize(
    ("gallery", "ratio", "shown"), [(OFFICIAL, 0.2, 1), ("g", 0.2, 0), (OFFICIAL, 0.5, 0)]
)
def test_printed_figures_only_where_the_setting_is_the_same(
    study: Study, gallery: str, ratio: float, shown: int
) -> None:
    finish(study, study.cells[0], [5, 60], gallery)
    printed = Printed("INTENT table 3", ratio, {"intent A1 w/o VIC": (53.05, 72.98)}, ("R@10", "R@50"))
    layout = Layout("t", "title", lines(study), ("R@10", "R@50"), printed=printed, quote=False)
    removed, kept = lay_out(study, layout).tables[:2]
    quoted = [row for at, row in enumerate(removed.rows) if removed.is_quoted(at)]
    assert quoted == [("intent A1 w/o VIC (quoted)", "mix 20 %", "", "53.05", "72.98")][:shown]
    assert not any(
        kept.is_quoted(at) for at in range(len(kept.rows))
    )  # the paper's code removes the reference


def test_recall_columns_count_their_seeds(study: Study) -> None:
    finish(study, study.cells[0], [5, 60])
    found = recall_columns(study, [Layout("t", "title", lines(study))])
    assert found == {"intent.A1": {"x Avg, mix 0.2": "50.0 (1 of 2 seeds)"}}
