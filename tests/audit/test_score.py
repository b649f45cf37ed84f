"""Scores by hand on few verdicts, and a manifest of other data."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from triptych.audit.evidence import FEATURES
from triptych.audit.score import recall_at_precision, reliability, score_audit
from triptych.audit.verdicts import Judged, Verdicts, make_verdicts
from triptych.errors import DataError
from triptych.noise import Corruption, NoiseManifest
from triptych.triplets import Triplet, TripletTable


def table_of(count: int = 10) -> TripletTable:
    return TripletTable.from_triplets(
        Triplet(f"t{n}", f"r{n}", (f"text {n} here",), f"g{n}", "cat") for n in range(count)
    )


def manifest_of(table: TripletTable, **fields: Any) -> NoiseManifest:
    """Corrupt t0 (target), t1 (text), t2 (reference)."""
    return NoiseManifest(
        kind="mix",
        seed=0,
        ratio_asked=0.3,
        num_triplets=len(table),
        table_fingerprint=table.fingerprint(),
        corruptions=(
            Corruption("t0", "target", "g0", "g9"),
            Corruption("t1", "text", ("text 1 here",), ("text 8 here",)),
            Corruption("t2", "reference", "r2", "r7"),
        ),
    )


def verdicts_of(table: TripletTable, wrong: list[float], corner: list[int]) -> Verdicts:
    corners = np.zeros((len(wrong), 3))
    corners[np.arange(len(wrong)), corner] = wrong
    empty: list[Any] = [[] for _ in wrong]
    judged = Judged(
        np.arange(len(wrong)),
        np.array(wrong),
        corners,
        np.zeros((len(wrong), len(FEATURES))),
        np.zeros(len(wrong)),
        empty,
        empty,
        empty,
    )
    return make_verdicts(table, [], judged, flag_at=0.5, info={"data": "/data"})


WRONG = [0.9, 0.8, 0.3, 0.7, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]
CORNER = [2, 0, 0, 1, 0, 0, 0, 0, 0, 0]  # t0 right, t1 wrong, t2 not flagged, t3 a false alarm


def test_figures_by_hand() -> None:
    clean = table_of()
    noise = manifest_of(clean)
    found = score_audit(verdicts_of(noise.apply(clean), WRONG, CORNER), noise)
    assert found["auroc"] == pytest.approx(20 / 21)  # one of 21 pairs is the wrong way round: t2 after t3
    assert found["average_precision"] == pytest.approx((1 + 1 + 3 / 4) / 3)
    assert found["precision_at"] == {"1%": 1.0, "5%": 1.0, "10%": 1.0}
    assert found["recall_at_90_precision"] == pytest.approx(2 / 3)
    assert (found["flagged"], found["flag_precision"], found["flag_recall"]) == (
        3,
        pytest.approx(2 / 3),
        pytest.approx(2 / 3),
    )
    assert found["rate_error_points"] == pytest.approx(100 * (0.33 - 0.3), abs=1e-5)
    assert found["brier"] == pytest.approx((0.01 + 0.04 + 0.49 + 0.49 + 6 * 0.01) / 10, abs=1e-6)
    assert found["corner_accuracy"] == 0.5
    assert found["corner_confusion"]["text"] == {"reference": 1, "text": 0, "target": 0}
    assert found["by_kind"]["target"]["auroc"] == 1.0
    assert found["by_kind"]["reference"]["auroc"] == pytest.approx(6 / 7)
    assert found["by_kind"]["reference"]["found"] == 0.0


def test_excused_triplets_count_as_right() -> None:
    clean = table_of()
    noise = manifest_of(clean)
    found = score_audit(verdicts_of(noise.apply(clean), WRONG, CORNER), noise, excused=frozenset({"t2"}))
    assert (found["wrong"], found["auroc"]) == (2, 1.0)


def test_nothing_wrong_has_no_auroc() -> None:
    clean = table_of()
    noise = replace(manifest_of(clean), corruptions=())
    found = score_audit(verdicts_of(clean, WRONG, CORNER), noise)
    assert (found["auroc"], found["corner_accuracy"], found["by_kind"]) == (None, None, {})


def test_a_manifest_of_other_data_is_refused() -> None:
    clean = table_of()
    noise = manifest_of(clean)
    with pytest.raises(DataError, match="the manifest is of 9 triplets, the audit of 10"):
        score_audit(verdicts_of(noise.apply(clean), WRONG, CORNER), replace(noise, num_triplets=9))
    with pytest.raises(DataError, match="the audit saw another target at triplet t0"):
        score_audit(verdicts_of(clean, WRONG, CORNER), noise)
    other = replace(noise, corruptions=(Corruption("x", "target", "a", "b"),))
    with pytest.raises(DataError, match="triplet x is not in the audit"):
        score_audit(verdicts_of(clean, WRONG, CORNER), other)


def test_recall_takes_ties_together() -> None:
    truth = np.array([True, False, True, False])
    assert recall_at_precision(np.array([0.1, 0.1, 0.1, 0.9]), truth, 0.9) == 0.0
    assert recall_at_precision(np.array([0.1, 0.3, 0.2, 0.9]), truth, 0.9) == 1.0
    assert recall_at_precision(np.zeros(0), np.zeros(0, bool), 0.9) == 0.0


def test_reliability_bins() -> None:
    bins = reliability(np.array([0.05, 0.05, 1.0]), np.array([False, True, True]))
    assert [(b["low"], b["triplets"], b["said"], b["was"]) for b in bins] == [
        (0.0, 2, 0.05, 0.5),
        (0.9, 1, 1.0, 1.0),
    ]
