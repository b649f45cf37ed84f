"""``triptych audit`` on data that needs no model: rules alone, a gate, cleaning and scoring."""

import json
from pathlib import Path
from typing import Any

import pytest

from triptych.noise import inject
from triptych.triplets import read_benchmark


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Write ten triplets without pictures; one has the same reference and target, one has twins."""
    lines = ["id,reference,text,target,category,annotator"]
    lines += [f"t{n},a{n},is number {n} here,b{n},shoes,{'ab'[n % 2]}" for n in range(8)]
    lines += ["same,c,is red now,c,hats,a", "one,d,red,e,hats,b"]
    path = tmp_path / "data" / "triplets.csv"
    path.parent.mkdir()
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_whole_way_by_rules(triptych: Any, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "audit"
    done = triptych("audit", table, "-o", out, "--by", "annotator")
    assert done.code == 0
    assert "rules on texts and ids alone were applied" in done.said
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["triplets"], summary["flagged"]) == (10, 1)
    assert summary["by_source"]["a"]["flagged"] == 1
    assert "same_picture" in done.out
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    cleaned = triptych("audit", "apply", table, "--verdicts", out, "--drop", "-o", tmp_path / "clean")
    assert cleaned.code == 0
    assert "1 dropped" in cleaned.out
    rows = (tmp_path / "clean" / "triplets.csv").read_text().splitlines()
    assert len(rows) == 10
    assert not any(row.startswith("same,") for row in rows)
    assert rows[1] == "t0,a0,is number 0 here,b0,shoes,a"


@pytest.mark.parametrize(("limit", "code", "word"), [("5%", 3, "FAIL"), ("0.1", 0, "PASS")])
def test_the_gate(triptych: Any, table: Path, tmp_path: Path, limit: str, code: int, word: str) -> None:
    done = triptych("audit", "--fail-over", limit, table, "-o", tmp_path / "audit", "--no-report")
    assert done.code == code
    assert f"{word}: 10.00% of 10 triplets" in done.out
    sarif = json.loads((tmp_path / "audit" / "audit.sarif").read_text())
    assert sarif["version"] == "2.1.0"
    (result,) = sarif["runs"][0]["results"]
    assert result["ruleId"] == "same_picture"
    assert result["locations"][0]["logicalLocations"][0]["fullyQualifiedName"] == "same"
    assert sarif["runs"][0]["properties"]["passes"] is (code == 0)


def test_scores_of_an_audit_with_noise(triptych: Any, table: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "noise.json"
    inject(read_benchmark(table).train, kind="target", ratio=0.5, seed=1).write(manifest)
    out = tmp_path / "audit"
    assert triptych("audit", table, "-o", out, "--noise", manifest, "--no-report").code == 0
    done = triptych("audit", "score", out, "--manifest", manifest, "--json")
    assert done.code == 0
    assert json.loads(done.out)["triplets"] == 10
    assert "AUROC" in triptych("audit", "score", out, "--manifest", manifest).out
    refused = triptych("audit", "apply", table, "--verdicts", out, "--drop", "-o", tmp_path / "clean")
    assert refused.code == 1
    assert "--noise MANIFEST if it was audited with noise" in refused.said
    assert not (tmp_path / "clean").exists()
    kept = triptych(
        "audit", "apply", table, "--verdicts", out, "--drop", "--noise", manifest, "-o", tmp_path / "clean"
    )
    assert kept.code == 0


def test_a_manifest_of_other_data(triptych: Any, table: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "noise.json"
    inject(read_benchmark(table).train, kind="target", ratio=0.5, seed=1).write(manifest)
    text = (
        table.read_text()
        .replace("t3,", "t30,")
        .replace("t1,", "t10,")
        .replace("t5,", "t50,")
        .replace("t7,", "t70,")
    )
    table.write_text(
        text.replace("t0,", "t00,").replace("t2,", "t20,").replace("same,", "sam,").replace("one,", "on,")
    )
    done = triptych("audit", table, "-o", tmp_path / "audit", "--noise", manifest)
    assert done.code == 1
    assert "is not in the data" in done.said
    assert not (tmp_path / "audit").exists()


def test_wrong_usage_is_named(triptych: Any, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "audit"
    assert "write a share such as 2%" in triptych("audit", table, "-o", out, "--fail-over", "many").said
    assert 'unknown setting "fold"' in triptych("audit", table, "-o", out, "--set", "fold=3").said
    assert 'no triplet has "who"' in triptych("audit", table, "-o", out, "--by", "who").said
    triptych("audit", table, "-o", out, "--no-report")
    nothing = triptych("audit", "apply", table, "--verdicts", out, "-o", tmp_path / "clean")
    assert nothing.code == 2
    assert "say what to do with flagged triplets" in nothing.said
    both = triptych(
        "audit", "apply", table, "--verdicts", out, "--drop", "--weight", "-o", tmp_path / "clean"
    )
    assert "contradict" in both.said
    assert "there are no verdicts here" in triptych("audit", "score", tmp_path, "--manifest", "x.json").said


def test_the_help_needs_no_verb(triptych: Any) -> None:
    done = triptych("audit", "--help")
    assert done.code == 0
    assert "apply" in done.out
    assert "--fail-over" in triptych("audit", "run", "--help").out
