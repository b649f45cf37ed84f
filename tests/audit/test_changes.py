"""What flags and decisions do, and cleaned data in each format."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from triptych.audit.changes import Decision, apply_changes, check_modes, plan_changes, read_decisions
from triptych.audit.clean import write_cleaned
from triptych.audit.evidence import FEATURES
from triptych.audit.verdicts import Judged, Verdicts, make_verdicts
from triptych.errors import DataError, UsageError
from triptych.triplets import Benchmark, TripletTable, read_benchmark


def verdicts_on(table: TripletTable, flagged: dict[int, int]) -> Verdicts:
    """Flag some rows, each in a corner, with another row's value as the best proposal."""
    count = len(table)
    wrong, corners = np.full(count, 0.1), np.full((count, 3), 0.1 / 3)
    for row, corner in flagged.items():
        wrong[row], corners[row] = 0.9, 0.05
        corners[row, corner] = 0.8
    images = table.image_ids()
    proposals = {
        "targets": [[images[-1]] if row in flagged else [] for row in range(count)],
        "texts": [[("is proposed", "is better")] if row in flagged else [] for row in range(count)],
        "references": [[images[0]] if flagged.get(row) == 1 else [] for row in range(count)],
    }
    judged = Judged(
        np.arange(count), wrong, corners, np.zeros((count, len(FEATURES))), np.zeros(count), **proposals
    )
    return make_verdicts(table, [], judged, flag_at=0.5, info={"data": "data"})


FLAGGED = {1: 2, 3: 1, 5: 0}  # a target and a text that can be fixed, a reference that cannot


def test_each_mode(bench: Benchmark) -> None:
    table, verdicts = bench.train, verdicts_on(bench.train, FLAGGED)
    ids = table.triplet_ids

    def actions(*modes: str) -> list[tuple[str, str]]:
        return [(change.triplet_id, change.action) for change in plan_changes(verdicts, check_modes(modes))]

    one, three, five = ids[1], ids[3], ids[5]
    assert actions("drop") == [(one, "drop"), (three, "drop"), (five, "drop")]
    assert actions("fix") == [(one, "fix"), (three, "fix"), (five, "keep")]
    assert actions("fix", "drop") == [(one, "fix"), (three, "fix"), (five, "drop")]
    weights = plan_changes(verdicts, check_modes(["weight"]))
    assert len(weights) == len(table)
    assert [change.weight for change in weights[:2]] == [0.9, 0.1]
    cleaned = apply_changes(table, plan_changes(verdicts, check_modes(["fix", "drop"])))
    assert len(cleaned) == len(table) - 1
    assert cleaned[3].captions == ("is proposed", "is better")
    assert cleaned[1].target == table.image_ids()[-1]


def test_modes_that_contradict_each_other() -> None:
    with pytest.raises(UsageError, match="contradict"):
        check_modes(["drop", "weight"])
    with pytest.raises(UsageError, match='unknown way to clean "mend"'):
        check_modes(["mend"])


def test_a_decision_wins_over_the_mode(bench: Benchmark) -> None:
    verdicts, ids = verdicts_on(bench.train, FLAGGED), bench.train.triplet_ids
    decisions = {
        ids[0]: Decision("drop"),
        ids[1]: Decision("keep"),
        ids[3]: Decision("skip"),
        ids[5]: Decision("fix", "reference", bench.train.image_ids()[2]),
    }
    made = {c.triplet_id: (c.action, c.why) for c in plan_changes(verdicts, check_modes(["drop"]), decisions)}
    assert made[ids[0]] == ("drop", "decision")
    assert made[ids[1]] == ("keep", "decision")
    assert made[ids[3]] == ("drop", "flagged: text")
    assert made[ids[5]] == ("fix", "decision")
    assert plan_changes(verdicts, frozenset(), {ids[0]: Decision("drop")})[0].triplet_id == ids[0]
    with pytest.raises(DataError, match="triplets that the verdicts do not have, such as nobody"):
        plan_changes(verdicts, frozenset(), {"nobody": Decision("drop")})


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[1", "cannot be read"),
        ("{}", '"format" should be'),
        ('{"format": "triptych-decisions-1", "decisions": []}', "object by triplet id"),
        (
            '{"format": "triptych-decisions-1", "decisions": {"t": {"decision": "burn"}}}',
            "the decision on t is 'burn'",
        ),
        (
            '{"format": "triptych-decisions-1", "decisions": '
            '{"t": {"decision": "fix", "fix": {"field": "text", "value": "x"}}}}',
            "the fix of t",
        ),
    ],
)
def test_damaged_decisions_are_named(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "decisions.json"
    path.write_text(content)
    with pytest.raises(DataError, match=problem):
        read_decisions(path)


def test_the_fashioniq_layout_comes_back(tiny_benchmark: Path, bench: Benchmark, tmp_path: Path) -> None:
    verdicts = verdicts_on(bench.train, FLAGGED)
    changes = plan_changes(verdicts, check_modes(["fix", "drop"]))
    before = {path: path.read_bytes() for path in tiny_benchmark.rglob("*.json")}
    cleaned = write_cleaned(bench, changes, tmp_path / "clean")
    assert {path: path.read_bytes() for path in tiny_benchmark.rglob("*.json")} == before
    again = read_benchmark(cleaned.path)
    expected = apply_changes(bench.train, changes)
    rows = ["reference", "captions", "target", "category"]
    assert [again.train.column(name) for name in rows] == [expected.column(name) for name in rows]
    assert again.splits["val"][0].answers == bench.splits["val"][0].answers
    assert len(again.images) == len(bench.images)
    log = [json.loads(line) for line in cleaned.log.read_text().splitlines()]
    assert [line["action"] for line in log] == ["fix", "fix", "drop"]
    assert log[0]["old"] == bench.train[1].target
    assert cleaned.counts == {"fix": 2, "drop": 1}


def test_never_in_place(bench: Benchmark, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="new folder"):
        write_cleaned(bench, [], bench.path)


ROWS = [
    {
        "id": f"t{n}",
        "reference": f"r{n}",
        "text": f"is number {n}, yes",
        "target": f"g{n}",
        "split": "train",
        "who": "ab"[n % 2],
    }
    for n in range(6)
] + [{"id": "v", "reference": "r0", "text": "is val", "target": "g1", "split": "val", "who": "a"}]


def write_rows(path: Path) -> None:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(ROWS[0]), delimiter=";")
            writer.writeheader()
            writer.writerows(ROWS)


def read_rows(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        return list(pq.read_table(path).to_pylist())
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter=";"))


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@pytest.mark.filterwarnings("ignore")
def test_tables_keep_their_format_and_other_columns(suffix: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / f"triplets{suffix}"
    write_rows(path)
    bench = read_benchmark(path)
    verdicts = verdicts_on(bench.train, {1: 2, 3: 1, 5: 0})
    cleaned = write_cleaned(bench, plan_changes(verdicts, check_modes(["fix", "drop"])), tmp_path / "clean")
    rows = read_rows(cleaned.path)
    assert [row["id"] for row in rows] == ["t0", "t1", "t2", "t3", "t4", "v"]
    assert rows[1]["target"] == bench.train.image_ids()[-1]
    assert rows[3]["text"] == "is proposed and is better"
    assert [row["who"] for row in rows] == ["a", "b", "a", "b", "a", "a"]
    weighted = write_cleaned(bench, plan_changes(verdicts, check_modes(["weight"])), tmp_path / "weights")
    found = read_rows(weighted.path)
    assert [float(row["weight"]) for row in found[:2]] == [0.9, 0.1]
    assert found[-1].get("weight") in (None, "")
