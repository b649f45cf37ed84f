"""The audit from end to end, on the tiny data with a backbone so small that a model takes a second."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import triptych
from triptych.audit import audit, open_audit
from triptych.audit.evidence import FEATURES
from triptych.audit.score_folder import score_folder
from triptych.errors import DataError, UsageError
from triptych.noise import inject
from triptych.triplets import Benchmark, ImageStore, Triplet, TripletTable


def test_every_triplet_has_a_verdict(small_audit: Any, bench: Benchmark) -> None:
    verdicts = small_audit.verdicts
    assert verdicts.column("triplet_id") == bench.train.triplet_ids
    scores = verdicts.array("score")
    assert ((scores >= 0) & (scores <= 1)).all()
    assert verdicts.array("asked").sum() > 30
    corners = sum(verdicts.array(f"p_{corner}") for corner in ("reference", "text", "target"))
    np.testing.assert_allclose(corners, 1 - scores, atol=1e-5)
    assert (verdicts.array("flagged") == (scores < 0.5)).all()
    asked = [row for row, yes in enumerate(verdicts.column("asked")) if yes]
    figures = [verdicts.column("evidence")[row] for row in asked]
    assert all(np.isfinite(list(line.values())).all() and set(line) == set(FEATURES) for line in figures)
    for row, names in enumerate(verdicts.column("better_targets")):
        assert len(names) == len(set(names)) <= 5
        assert verdicts.column("target")[row] not in names


def test_what_lies_in_the_folder(small_audit: Any) -> None:
    folder = small_audit.folder
    assert len(list((folder / "evidence").glob("round?-infonce-seed0-fold?.parquet"))) == 4
    again = open_audit(folder)
    assert again.summary == small_audit.summary
    judged = [
        name for name in again.verdicts.data.schema.names if name not in ("evidence", "disagreement")
    ]  # may be NaN
    assert [again.verdicts.column(name) for name in judged] == [
        small_audit.verdicts.column(name) for name in judged
    ]
    assert again.table.fingerprint() == small_audit.table.fingerprint()
    assert "corruptions" not in (folder / "audit.json").read_text()


def test_an_audit_goes_on_where_it_was(
    small_audit: Any, bench: Benchmark, settings: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "audit"
    shutil.copytree(small_audit.folder, folder)
    lost = folder / "evidence" / "round2-infonce-seed0-fold1.parquet"
    lost.unlink()
    kept = folder / "evidence" / "round2-infonce-seed0-fold0.parquet"
    stamp = kept.stat().st_mtime_ns
    noise = inject(bench.train, kind="mix", ratio=0.5, seed=42)
    again = audit(bench, folder=folder, noise=noise, settings=settings)
    assert kept.stat().st_mtime_ns == stamp
    assert lost.is_file()
    np.testing.assert_allclose(again.verdicts.array("score"), small_audit.verdicts.array("score"), atol=1e-4)


def test_a_folder_of_other_data_or_settings_is_refused(
    small_audit: Any, bench: Benchmark, settings: Any
) -> None:
    with pytest.raises(UsageError, match="holds an audit with other triplets, corrupted on purpose"):
        audit(bench, folder=small_audit.folder, settings=settings)
    noise = inject(bench.train, kind="mix", ratio=0.5, seed=42)
    with pytest.raises(UsageError, match="other settings"):
        audit(bench, folder=small_audit.folder, noise=noise, settings={**settings, "epochs": 2})


def test_scores_against_the_manifest_that_was_given(small_audit: Any) -> None:
    figures = score_folder(small_audit.folder, small_audit.folder.parent / "noise.json")
    assert figures["true_rate"] == pytest.approx(figures["wrong"] / 40)
    assert 0 <= figures["auroc"] <= 1


def test_the_audited_triplets_can_be_cleaned(small_audit: Any) -> None:
    flagged = set(np.array(small_audit.table.triplet_ids)[small_audit.verdicts.array("flagged")])
    assert set(small_audit.apply("drop").triplet_ids) == set(small_audit.table.triplet_ids) - flagged
    with pytest.raises(UsageError, match="say what to do"):
        small_audit.apply()


def rows(count: int, **fixed: Any) -> list[Triplet]:
    made = [
        {"reference": f"a{n}", "captions": (f"is number {n}",), "target": f"b{n}", "category": "all", **fixed}
        for n in range(count)
    ]
    return [Triplet(f"t{n}", **values) for n, values in enumerate(made)]


def test_rules_alone_without_pictures() -> None:
    table = TripletTable.from_triplets([*rows(3), Triplet("same", "a", ("is red",), "a")])
    found = triptych.audit(table)
    assert found.verdicts.array("score").tolist() == [1, 1, 1, 0]
    assert found.verdicts.column("corner") == [None, None, None, "target"]
    assert "no pictures" in found.summary["notes"][0]
    assert found.summary["judged_by_models"] == 0


@pytest.mark.parametrize("case", ["fewer than folds", "all identical"])
def test_too_little_to_train_on_is_said_and_nothing_is_lost(case: str, bench: Benchmark) -> None:
    one = bench.train[0]
    few = [bench.train[row] for row in range(3)]
    many = [Triplet(f"t{n}", one.reference, one.captions, one.target) for n in range(50)]
    table = TripletTable.from_triplets(few if case == "fewer than folds" else many)
    found = triptych.audit(table, bench.images)
    assert len(found.verdicts) == len(table)
    assert found.summary["judged_by_models"] == 0
    assert any("too few to train on" in note for note in found.summary["notes"])


def test_unreadable_pictures_are_audited_as_such(tmp_path: Path, bench: Benchmark) -> None:
    for name in bench.train.image_ids():
        (tmp_path / f"{name}.png").write_bytes(bench.images.read(name))
    first = bench.train[0]
    (tmp_path / f"{first.target}.png").write_bytes(b"broken")
    table = TripletTable.from_triplets([bench.train[row] for row in range(5)])
    found = triptych.audit(table, ImageStore.open(tmp_path))
    assert found.verdicts.column("rules")[0] == ["unreadable_target"]
    assert (found.verdicts.column("score")[0], found.verdicts.column("corner")[0]) == (0.0, "target")
    assert list(found.summary["unreadable_pictures"]) == [first.target]
    assert len(found.verdicts) == 5


def test_sources_are_counted_apart() -> None:
    table = TripletTable.from_triplets([*rows(3), Triplet("same", "a", ("is red",), "a")])
    found = triptych.audit(table, source=["ann", "ann", "bob", "bob"])
    assert {name: group["flagged"] for name, group in found.summary["by_source"].items()} == {
        "ann": 0,
        "bob": 1,
    }
    with pytest.raises(UsageError, match="source names 1 triplets"):
        triptych.audit(table, source=["ann"])


def test_bad_settings_and_bad_data() -> None:
    table = TripletTable.from_triplets(rows(3))
    with pytest.raises(UsageError, match='unknown setting "fold"'):
        audit(table, settings={"fold": 3})
    with pytest.raises(DataError, match="no training triplets"):
        audit(TripletTable.from_triplets([]))
