"""The audit from end to end, on the tiny data with a backbone so small that a model takes a second."""

from typing import Any

import numpy as np

from triptych.triplets import Benchmark


def test_every_triplet_has_a_verdict(small_audit: Any, bench: Benchmark) -> None:
    verdicts = small_audit.verdicts
    assert verdicts.column("triplet_id") == bench.train.triplet_ids
    scores = verdicts.array("score")
    assert ((scores >= 0) & (scores <= 1)).all()
    assert verdicts.array("asked").sum() > 30
    corners = sum(verdicts.array(f"p_{corner}") for corner in ("reference", "text", "target"))
    np.testing.assert_allclose(corners, 1 - scores, atol=1e-5)
    assert (verdicts.array("flagged") == (scores < 0.5)).all()
