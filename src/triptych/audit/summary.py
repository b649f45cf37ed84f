"""Summary: what share of the triplets is wrong, with an interval, by category and by source."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from triptych.audit.probes import CORNERS
from triptych.audit.rules import RULES
from triptych.audit.verdicts import Verdicts

Array = npt.NDArray[np.float64]

_WIDE = 1.96


def summarise(
    verdicts: Verdicts,
    *,
    folds: npt.NDArray[np.int64] | None = None,
    source: Sequence[str | None] | None = None,
    source_name: str | None = None,
    notes: Sequence[str] = (),
    unreadable: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Count and estimate.

    The share of wrong triplets is the mean chance to be wrong, not the share of flags. Its 95 % interval covers the
    draw of the triplets and how far the folds' models differ; it does not cover noise of a kind that the classifier
    has no idea of.

    Args:
        verdicts: of the audit.
        folds: ``[N]`` the fold of each triplet, -1 where none; None where no model was asked.
        source: who or what each triplet comes from.
        source_name: of that column.
        notes: what is to be known of the audit, a sentence each.
        unreadable: image id to why it could not be read.
    """
    wrong = 1 - verdicts.array("score").astype(np.float64)
    flagged = verdicts.array("flagged")
    groups = _groups(wrong, flagged, verdicts.column("category"), folds)
    summary: dict[str, Any] = {
        "format": "triptych-audit-summary-1",
        "data": verdicts.info.get("data"),
        "triplets": len(verdicts),
        "judged_by_models": int(verdicts.array("asked").sum()),
        "flagged": int(flagged.sum()),
        "wrong": _estimate(wrong, folds),
        "by_category": groups,
        "by_corner": {
            corner: float(verdicts.array(f"p_{corner}").mean()) if len(verdicts) else 0.0
            for corner in CORNERS
        },
        "rules": {
            rule: {"triplets": count, "weight": RULES[rule][0], "means": RULES[rule][2]}
            for rule, count in Counter(
                rule for rules in verdicts.column("rules") for rule in set(rules)
            ).most_common()
        },
        "unreadable_pictures": dict(unreadable or {}),
        "notes": list(notes),
    }
    if source is not None:
        summary["source_column"] = source_name
        summary["by_source"] = _groups(wrong, flagged, [str(name) for name in source], folds)
    return summary


def _groups(
    wrong: Array,
    flagged: npt.NDArray[np.bool_],
    keys: Sequence[Hashable],
    folds: npt.NDArray[np.int64] | None,
) -> dict[str, dict[str, Any]]:
    rows: dict[Hashable, list[int]] = defaultdict(list)
    for row, key in enumerate(keys):
        rows[key].append(row)
    return {
        str(key): {
            "triplets": len(rows[key]),
            "flagged": int(flagged[rows[key]].sum()),
            "wrong": _estimate(wrong[rows[key]], None if folds is None else folds[rows[key]]),
        }
        for key in sorted(rows, key=str)
    }


def _estimate(wrong: Array, folds: npt.NDArray[np.int64] | None) -> dict[str, float]:
    """Give the mean chance and a 95 % interval: Wilson's, wider by how far the folds differ beyond chance."""
    count = len(wrong)
    if not count:
        return {"share": 0.0, "low": 0.0, "high": 1.0}
    share = float(wrong.mean())
    extra = 0.0
    if folds is not None:
        means = [
            (wrong[folds == fold].mean(), (folds == fold).sum()) for fold in np.unique(folds[folds >= 0])
        ]
        if len(means) > 1:
            by_chance = np.mean([share * (1 - share) / size for _, size in means])
            extra = max(0.0, float(np.var([mean for mean, _ in means], ddof=1)) - float(by_chance)) / len(
                means
            )
    shrink = 1 + _WIDE**2 / count
    centre = (share + _WIDE**2 / (2 * count)) / shrink
    half = _WIDE / shrink * sqrt(share * (1 - share) / count + extra + _WIDE**2 / (4 * count**2))
    return {"share": share, "low": max(0.0, centre - half), "high": min(1.0, centre + half)}
