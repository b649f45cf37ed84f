"""``triptych study reproduce``, ``ablate``, ``sweep``, ``efficiency`` and ``claims``, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from triptych.cli.study import app
from triptych.errors import UsageError
from triptych.studies import efficiency, predict
from triptych.studies.measure_cost import Measured, Request, measure_cost
from triptych.studies.predict import Prediction


def call(*words: str | Path) -> str:
    result = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_a_dry_run_lists_cells_and_time_and_writes_nothing(tmp_path: Path) -> None:
    out = call("reproduce", "HABIT-1", "-o", tmp_path / "s", "--method", "rcl", "--noise", "mix:0,0.5",
               "--seed", "1", "--seed", "2", "--dry-run")  # fmt: skip
    lines = out.splitlines()
    assert lines[:4] == [
        f"drawn-rcl-mix-{rate}-seed{seed}  to run" for rate in ("0", "0.5") for seed in (1, 2)
    ]
    assert lines[4] == "4 cells, 0 of them done"
    assert lines[5].startswith("at least ")
    assert not (tmp_path / "s").exists()


def test_two_tables_share_their_cells(
    lite_weights: None, tiny_benchmark: Path, tmp_path: Path, tiny_runs: list[tuple[str, ...]]
) -> None:
    words = ["reproduce", "INTENT-2", "INTENT-6", "-o", tmp_path / "s", "--data", tiny_benchmark,
             "--method", "tme", "--noise", "mix:0.2"]  # fmt: skip
    out = call(*words)
    assert "1 cells, 0 of them done" in out
    assert len(tiny_runs) == 2  # a training and an evaluation
    table = (tmp_path / "s" / "tables" / "INTENT-2.md").read_text()
    assert "| tme | mix 20 % | 0 |" in table
    assert "plain:R@10" in table
    assert "INTENT table 2 is of FashionIQ" in table
    assert "quoted" not in table
    cost = (tmp_path / "s" / "tables" / "INTENT-6.md").read_text()
    assert "training GMAC, hooks" in cost
    assert "tiny Avg, mix 0.2" in cost
    assert "| tme |" in cost
    assert "sprc" not in cost
    assert len(json.loads((tmp_path / "s" / "tables" / "INTENT-2.json").read_text())["figures"]) > 10
    assert "1 cells, 1 of them done" in call(*words)
    assert len(tiny_runs) == 2


def test_ablations_are_compared_with_the_full_method(
    lite_weights: None, tiny_benchmark: Path, tmp_path: Path, tiny_runs: list[tuple[str, ...]]
) -> None:
    call(
        "ablate",
        "habit",
        "--row",
        "D11",
        "-o",
        tmp_path / "s",
        "--data",
        tiny_benchmark,
        "--noise",
        "mix:0.5",
    )
    table = (tmp_path / "s" / "tables" / "ablate-habit.md").read_text()
    assert "| habit D11 w/o L_rank | mix 50 % | 0 |" in table
    assert "Points above habit" in table
    for wrong, match in ((["rcl"], "no ablation rows"), (["habit", "--row", "A1"], "no ablation row A1")):
        with pytest.raises(UsageError, match=match):
            call("ablate", *wrong, "-o", tmp_path / "s")


def test_sweeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "predict", lambda study, triplets: Prediction(1.0, 0))
    where = ("-o", tmp_path / "s", "--dry-run")
    assert call("sweep", "intent.mu-alpha", *where).count("to run") == 25
    assert call("sweep", "conesep.K", *where).count("boundary_draws") == 6
    own = call("sweep", "--method", "rcl", "--vary", "method.temperature=0.05,0.1", "--vary",
               "training.epochs=1,2", *where).splitlines()  # fmt: skip
    assert own[:2] == [
        "drawn-rcl-temperature=0.05-epochs=1-mix-0.2-seed0  to run",
        "drawn-rcl-temperature=0.05-epochs=2-mix-0.2-seed0  to run",
    ]
    for wrong, match in (
        (["conesep.x"], "no sweep"),
        ([], "name a preset"),
        (["--vary", "method.alpha=1"], "needs --method"),
        (["--method", "rcl"], "goes with --vary"),
        (["--method", "intent", "--vary", "method.alpha=-1"], "alpha"),
        (["--method", "intent", "--vary", "data.path=1"], "sections"),
        (["--method", "intent", "--vary", "method.alpha"], "KEY=VALUE"),
        (["--method", "intent", "--vary", "training.seed=1"], "--seed"),
    ):
        with pytest.raises(UsageError, match=match):
            call("sweep", *wrong, *where)


def test_wrong_usage_is_named_before_anything_runs(tiny_benchmark: Path, tmp_path: Path) -> None:
    where = ("-o", tmp_path / "s")
    for wrong, match in (
        (["reproduce", "INTENT-9"], "no table"),
        (["reproduce", "INTENT-1", "--method", "habit"], "no line of INTENT-1"),
        (["reproduce", "INTENT-1", "--set", "other.x=1"], r"METHOD\.SWITCH"),
        (["reproduce", "INTENT-1", "--set", "training.epochs=0"], "epochs"),
        (["reproduce", "INTENT-1", "--backbone", "clip"], "Q-Former"),
        (["reproduce", "--data", str(tiny_benchmark), "--data", f"{tiny_benchmark}/"], "two data sets"),
        (["claims", "other"], "no claim"),
        (["claims", "backlash", "--noise", "mix:0"], "rate above 0"),
        (["efficiency", "intent.Z9"], "no ablation row"),
    ):
        with pytest.raises(UsageError, match=match):
            call(*wrong, *where)
    assert not (tmp_path / "s").exists()


def test_costs_without_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """w/o VIC saves a vision and a fusion pass; the counts are those of ``triptych plan``."""
    asked: list[str] = []

    def measured(folder: Path, variant: str, request: Request) -> Measured:
        asked.append(variant)
        return Measured(
            device="cpu", phases=(0.5, 0.25), memory_bytes=2 * 10**9, queries={"1": 0.01, "32": 0.002}
        )

    monkeypatch.setattr(efficiency, "measure", measured)
    call(
        "efficiency",
        "intent.A1",
        "intent",
        "habit.D6",
        "-o",
        tmp_path / "s",
        "--no-recall",
        "--batch-size",
        "8",
    )
    assert asked == ["intent.A1", "intent", "habit.D6"]
    text = (tmp_path / "s" / "tables" / "efficiency.md").read_text()
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ") for line in text.splitlines() if "|" in line}
    assert float(rows["intent A1 w/o VIC"][1]) < float(rows["intent"][1])
    assert rows["habit D6 w/o History"][6:11] == ["2.00", "0.5000", "0.2500", "0.0100", "0.0020 |"]
    assert "Measured on cpu" in text


def test_a_measurement(sizes: dict[str, Any], lite_weights: None, shared_towers: None) -> None:
    request = Request(method={"name": "rcl"}, backbone=sizes, batch_size=4, steps=1, queries=32, gallery=10)
    found = measure_cost(request)
    assert min(*found.phases, *found.queries.values()) > 0
    assert found.memory_bytes > 10**7


def test_a_measurement_is_kept_until_the_request_changes(
    sizes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request(method={"name": "rcl"}, backbone=sizes)
    answer = Measured(device="cpu", phases=(1, 1), memory_bytes=1, queries={"1": 1, "32": 1})
    kept = {"request": request.model_dump(mode="json"), "measured": answer.model_dump(mode="json")}
    (tmp_path / "rcl.json").write_text(json.dumps(kept))
    monkeypatch.setattr(efficiency.subprocess, "run", lambda *a, **k: pytest.fail("measured again"))
    assert efficiency.measure(tmp_path, "rcl", request) == answer
    with pytest.raises(pytest.fail.Exception, match="measured again"):
        efficiency.measure(tmp_path, "rcl", request.model_copy(update={"steps": 2}))
