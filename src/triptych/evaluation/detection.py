"""How well a score per triplet finds the wrong ones, against the truth of a noise manifest."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Detection:
    """Scores of finding wrong triplets, the lowest cleanliness first.

    Attributes:
        auroc: chance that a wrong triplet has a lower cleanliness than a right one, ties count half; 0.5 is
            guessing. None where all are right or all are wrong.
        average_precision: area under precision over recall of the wrong ones; guessing gives their share.
        wrong: how many of the scored triplets are wrong.
        scored: how many have a score.
    """

    auroc: float | None
    average_precision: float | None
    wrong: int
    scored: int


def detection(
    triplet_ids: Sequence[str], cleanliness: npt.ArrayLike, noisy_ids: Collection[str]
) -> Detection:
    """Compare scores with the truth.

    Args:
        triplet_ids: the scored triplets.
        cleanliness: one score each, high = clean.
        noisy_ids: the ids of the wrong triplets.

    Raises:
        ValueError: lengths differ, or a score is not finite.

    Example:
        >>> detection(["a", "b", "c", "d"], [0.9, 0.2, 0.8, 0.3], {"b", "d"})
        Detection(auroc=1.0, average_precision=1.0, wrong=2, scored=4)
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    scores = np.asarray(cleanliness, dtype=np.float64)
    if scores.shape != (len(triplet_ids),) or not np.isfinite(scores).all():
        raise ValueError(f"expected {len(triplet_ids)} finite scores, got {scores.shape}")
    known = frozenset(noisy_ids)
    wrong = np.array([name in known for name in triplet_ids], dtype=bool)
    if not 0 < wrong.sum() < len(wrong):
        return Detection(None, None, int(wrong.sum()), len(wrong))
    return Detection(
        float(roc_auc_score(wrong, -scores)),
        float(average_precision_score(wrong, -scores)),
        int(wrong.sum()),
        len(wrong),
    )
