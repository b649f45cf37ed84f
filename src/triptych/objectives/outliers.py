"""Outliers: triplets whose cleanliness lies outside the batch's dense range, now and in the past (HABIT)."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from triptych.objectives.shapes import require_per_triplet

OutlierSides = Literal["two_sided", "low_side"]


def trusted_mask(
    current: Tensor,
    history: Tensor | None = None,
    *,
    remembered: Tensor | None = None,
    sides: OutlierSides = "two_sided",
    eps: float = 0.01,
    min_samples: int = 10,
) -> Tensor:
    r"""Distrust a triplet only where its cleanliness is an outlier now and was one before.

    .. math:: m_i = 0 \iff i \in \mathcal O^{(I)} \cap \mathcal O^{(I-1)}

    Args:
        current: ``[B]`` cleanliness e of now.
        history: ``[B]`` cleanliness of each triplet's last visit; ``None`` judges by now alone (HABIT
            table 3, D4).
        remembered: ``[B]`` bool, which triplets have a history; all, if not given. The others are trusted,
            and whatever stands in ``history`` for them is not looked at.
        sides: see :func:`outliers`.
        eps: radius of a neighbourhood, in units of cleanliness.
        min_samples: triplets within ``eps``, itself included, that make a dense range.

    Returns:
        ``[B]`` bool mask m, ``False`` = distrusted. In a batch of fewer than ``min_samples`` all are outliers.

    Raises:
        ValueError: the shapes do not fit, a cleanliness is not finite, or ``sides`` is unknown.

    Source: HABIT eq. 5; specification, section 9, step 5 and rows 1, 10.
    """
    require_per_triplet(len(current), current=current, history=history, remembered=remembered)
    distrusted = outliers(current, sides=sides, eps=eps, min_samples=min_samples)
    if history is not None:
        known = torch.ones_like(distrusted) if remembered is None else remembered
        before = outliers(history[known], sides=sides, eps=eps, min_samples=min_samples)
        distrusted = distrusted & torch.zeros_like(distrusted).masked_scatter(known, before)
    return ~distrusted


def outliers(
    cleanliness: Tensor, *, sides: OutlierSides = "two_sided", eps: float = 0.01, min_samples: int = 10
) -> Tensor:
    """Find the triplets that DBSCAN leaves out of every cluster.

    Args:
        cleanliness: ``[B]``.
        sides: ``two_sided`` takes all of them, the cleanest too (the paper); ``low_side`` only those below
            the median of the others, and none where there are no others.
        eps: radius of a neighbourhood.
        min_samples: triplets within ``eps``, itself included, that make a dense range.

    Returns:
        ``[B]`` bool.

    Raises:
        ValueError: ``cleanliness`` is not ``[B]`` or not finite, or ``sides`` is unknown.

    Source: HABIT section 3.3; specification, section 9, step 5 and row 10.
    """
    if sides not in ("two_sided", "low_side"):
        raise ValueError(f'sides must be "two_sided" or "low_side", got "{sides}"')
    outside = dbscan_labels(cleanliness, eps=eps, min_samples=min_samples) == -1
    if sides == "low_side":
        inside = cleanliness.detach()[~outside].double().cpu().numpy()
        middle = float(np.median(inside)) if len(inside) else -np.inf
        outside = outside & (cleanliness.detach().double() < middle)
    return outside


def dbscan_labels(values: Tensor, *, eps: float = 0.01, min_samples: int = 10) -> Tensor:
    """Cluster numbers by density with scikit-learn's DBSCAN.

    Args:
        values: ``[B]``.
        eps: radius of a neighbourhood.
        min_samples: values within ``eps``, itself included, that make a core.

    Returns:
        ``[B]`` int64 cluster of each value, -1 for outliers; on the device of ``values``.

    Raises:
        ValueError: ``values`` is not ``[B]`` or not finite.
    """
    from sklearn.cluster import DBSCAN  # takes a second to import

    if values.ndim != 1:
        raise ValueError(f"expected [B] values, got {list(values.shape)}")
    points = values.detach().double().cpu().numpy()[:, None]
    if not np.isfinite(points).all():
        raise ValueError("outliers need finite values; some are NaN or infinite")
    if not len(points):
        return torch.zeros(0, dtype=torch.int64, device=values.device)
    labels = DBSCAN(eps=eps, min_samples=min_samples, n_jobs=1).fit_predict(points)
    return torch.from_numpy(labels.astype(np.int64)).to(values.device)
