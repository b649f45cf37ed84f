"""How good an audit is, against the truth of a noise manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from triptych.audit.probes import CORNERS
from triptych.audit.verdicts import Verdicts
from triptych.errors import DataError
from triptych.evaluation.detection import detection
from triptych.noise import NoiseManifest
from triptych.noise.manifest import COLUMN

Array = npt.NDArray[np.float64]

BUDGETS = (0.01, 0.05, 0.10)
BINS = 10


def check_truth(verdicts: Verdicts, manifest: NoiseManifest) -> None:
    """Raise unless the audit saw the triplets as the manifest corrupted them.

    Raises:
        DataError: the manifest is of other data, or the audit was made without it.
    """
    mend = "Audit the data with `--noise` and this manifest, or give the manifest that it was audited with."
    rows = {name: row for row, name in enumerate(verdicts.column("triplet_id"))}
    if manifest.num_triplets != len(rows):
        problem = f"the manifest is of {manifest.num_triplets} triplets, the audit of {len(rows)}"
        raise DataError(problem, file=manifest.path, mend=mend)
    columns = {field: verdicts.column(column) for field, column in COLUMN.items()}
    for corruption in manifest.corruptions:
        row = rows.get(corruption.triplet_id)
        if row is None:
            problem = f"triplet {corruption.triplet_id} is not in the audit"
            raise DataError(problem, file=manifest.path, field=corruption.field, mend=mend)
        found = columns[corruption.field][row]
        if (tuple(found) if isinstance(found, list) else found) != corruption.new:
            problem = (
                f"the audit saw another {corruption.field} at triplet {corruption.triplet_id} "
                "than the manifest put there"
            )
            raise DataError(problem, file=manifest.path, field=corruption.field, mend=mend)


def score_audit(
    verdicts: Verdicts, manifest: NoiseManifest, *, excused: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Compare verdicts with what was made wrong.

    Args:
        verdicts: of data that was corrupted by the manifest.
        manifest: the truth.
        excused: corrupted triplets that happen to be right all the same; they count as right.

    Returns:
        ``auroc``, ``average_precision``; ``precision_at`` the worst 1, 5 and 10 %; ``recall_at_90_precision``;
        ``estimated_rate``, ``true_rate`` and their difference in points; ``brier``; ``reliability`` by tenths of the
        chance to be wrong; ``corner_accuracy`` among flagged triplets that are wrong; ``by_kind`` the same for the
        wrong ones of each corner against all right ones.

    Raises:
        DataError: the manifest is of other data.
    """
    check_truth(verdicts, manifest)
    ids = verdicts.column("triplet_id")
    noisy = manifest.noisy_ids - excused
    truth = np.array([name in noisy for name in ids])
    field = [manifest.field_of(name) if name in noisy else None for name in ids]
    score = verdicts.array("score").astype(np.float64)
    flagged, corner = verdicts.array("flagged"), verdicts.column("corner")
    found = detection(ids, score, noisy)
    estimated, real = float((1 - score).mean()), float(truth.mean())
    hits = [row for row in np.flatnonzero(truth & flagged)]
    named = [corner[row] == field[row] for row in hits]
    return {
        "triplets": len(ids),
        "wrong": int(truth.sum()),
        "auroc": found.auroc,
        "average_precision": found.average_precision,
        "precision_at": {f"{budget:.0%}": _precision_at(score, truth, budget) for budget in BUDGETS},
        "recall_at_90_precision": recall_at_precision(score, truth, 0.9),
        "flagged": int(flagged.sum()),
        "flag_precision": _share(truth[flagged]),
        "flag_recall": _share(flagged[truth]),
        "estimated_rate": estimated,
        "true_rate": real,
        "rate_error_points": 100 * (estimated - real),
        "brier": float(((1 - score - truth) ** 2).mean()),
        "reliability": reliability(1 - score, truth),
        "corner_accuracy": _share(np.array(named, dtype=bool)),
        "corner_confusion": _confusion(field, corner, hits),
        "by_kind": {
            kind: _of_kind(ids, score, flagged, corner, field, kind) for kind in CORNERS if kind in field
        },
    }


def recall_at_precision(score: Array, truth: npt.NDArray[np.bool_], wanted: float) -> float:
    """Return the largest share of wrong triplets that a threshold finds at that precision; ties are taken together."""
    order = np.argsort(score, kind="stable")
    hits = np.cumsum(truth[order])
    last = np.append(np.diff(score[order]) > 0, True) if len(score) else np.zeros(0, dtype=bool)
    precise = last & (hits / np.arange(1, len(score) + 1) >= wanted)
    return float(hits[precise].max() / max(truth.sum(), 1)) if precise.any() else 0.0


def reliability(chance: Array, truth: npt.NDArray[np.bool_]) -> list[dict[str, float]]:
    """Compare the chance to be wrong with what was, by tenths of the chance; empty tenths are left out."""
    bins = np.minimum((chance * BINS).astype(int), BINS - 1)
    return [
        {
            "low": number / BINS,
            "high": (number + 1) / BINS,
            "triplets": int((bins == number).sum()),
            "said": float(chance[bins == number].mean()),
            "was": float(truth[bins == number].mean()),
        }
        for number in range(BINS)
        if (bins == number).any()
    ]


def _precision_at(score: Array, truth: npt.NDArray[np.bool_], budget: float) -> float:
    count = max(1, round(budget * len(score)))
    return float(truth[np.argsort(score, kind="stable")[:count]].mean())


def _of_kind(
    ids: list[str],
    score: Array,
    flagged: npt.NDArray[np.bool_],
    corner: Sequence[str | None],
    field: Sequence[str | None],
    kind: str,
) -> dict[str, Any]:
    rows = [row for row, name in enumerate(field) if name in (None, kind)]
    own = [row for row in rows if field[row] == kind]
    found = detection([ids[row] for row in rows], score[rows], {ids[row] for row in own})
    hits = [row for row in own if flagged[row]]
    return {
        "wrong": len(own),
        "auroc": found.auroc,
        "average_precision": found.average_precision,
        "found": _share(flagged[own]),
        "corner_accuracy": _share(np.array([corner[row] == kind for row in hits], dtype=bool)),
    }


def _confusion(
    field: Sequence[str | None], corner: Sequence[str | None], rows: list[Any]
) -> Mapping[str, Mapping[str, int]]:
    return {
        true: {named: sum(field[row] == true and corner[row] == named for row in rows) for named in CORNERS}
        for true in CORNERS
    }


def _share(values: npt.NDArray[np.bool_]) -> float | None:
    return float(values.mean()) if len(values) else None
