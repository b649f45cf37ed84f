"""Training dynamics: how early, how firmly and how steadily runs believed each triplet that they were trained on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pyarrow.parquet as pq

from triptych.errors import DataError

Array = npt.NDArray[np.float64]

DYNAMICS: dict[str, str] = {
    "believed": "mean place of the triplet's cleanliness among all, over epochs and runs, 0 to 1",
    "believed_early": "the same in the first third of the epochs",
    "believed_steadily": "1 minus how much its place changes between epochs",
}
"""The figures of a triplet's training; places are compared, since methods give cleanliness on scales of their own."""


def read_dynamics(files: Iterable[Path], triplet_ids: Sequence[str]) -> Array:
    """Read what runs recorded of the triplets.

    Args:
        files: ``cleanliness.parquet`` of some runs, each of some of the triplets.
        triplet_ids: the N audited triplets.

    Returns:
        ``[N, 3]`` in the order of :data:`DYNAMICS`; NaN where no run was trained on the triplet.

    Raises:
        DataError: a file is damaged.
    """
    row_of = {name: row for row, name in enumerate(triplet_ids)}
    total = np.zeros((len(triplet_ids), len(DYNAMICS)))
    runs = np.zeros(len(triplet_ids))
    for file in files:
        places = _places(file, row_of)
        if not places.size:
            continue
        early = places[:, : max(1, places.shape[1] // 3)]
        seen = np.isfinite(early).any(axis=1)
        values = np.stack(
            [_mean(places), _mean(early), 1 - np.sqrt(_mean((places - _mean(places)[:, None]) ** 2))], axis=1
        )
        total[seen] += values[seen]
        runs += seen
    with np.errstate(invalid="ignore"):
        return np.where(runs[:, None] > 0, total / runs[:, None], np.nan)


def view(figures: Array, wrong: Array) -> Array:
    """Say by the dynamics alone how likely each triplet is wrong, in log odds against the mean.

    A logistic curve over :data:`DYNAMICS` is fitted to what the other evidence says, so it has no opinion of its own of
    how many are wrong.

    Args:
        figures: ``[N, 3]`` of :func:`read_dynamics`.
        wrong: ``[N]`` chance to be wrong by the other evidence.

    Returns:
        ``[N]``, 0 where there are no dynamics.
    """
    from sklearn.linear_model import LogisticRegression

    known = np.isfinite(figures).all(axis=1)
    found = np.zeros(len(figures))
    if known.sum() < 2 or not 0 < wrong[known].mean() < 1:
        return found
    inputs = figures[known]
    inputs = (inputs - inputs.mean(axis=0)) / (inputs.std(axis=0) + 1e-12)
    labels = np.repeat([0, 1], len(inputs))
    weights = np.concatenate([1 - wrong[known], wrong[known]])
    model = LogisticRegression(C=1.0).fit(np.concatenate([inputs, inputs]), labels, sample_weight=weights)
    share = float(np.clip(wrong[known].mean(), 1e-6, 1 - 1e-6))
    found[known] = model.decision_function(inputs) - np.log(share / (1 - share))
    return found


def combine(wrong: Array, log_odds: Array, weight: float) -> Array:
    """Add a second view to chances, counted with a weight, and shift all so that their mean stays as it was.

    Two views that come from the same kind of model are no independent witnesses, hence a weight below 1.
    """
    chances = np.clip(wrong, 1e-6, 1 - 1e-6)
    logits = np.log(chances / (1 - chances)) + weight * log_odds
    low, high, wanted = -50.0, 50.0, float(wrong.mean())
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _sigmoid(logits + middle).mean() < wanted else (low, middle)
    return _sigmoid(logits + (low + high) / 2)


def _places(file: Path, row_of: dict[str, int]) -> Array:
    """Read a run: ``[N, E]`` the place in [0, 1] of each triplet's cleanliness among those of its epoch."""
    try:
        table = pq.read_table(file, columns=["triplet_id", "epoch", "cleanliness"])
    except Exception as error:  # Arrow has no one class for what can be wrong with a file
        mend = "It is what `triptych train` writes as RUN/cleanliness.parquet."
        raise DataError(f"the cleanliness cannot be read: {error}", file=file, mend=mend) from error
    epochs = sorted(pc.unique(table["epoch"]).to_pylist())
    places = np.full((len(row_of), len(epochs)), np.nan)
    for column, epoch in enumerate(epochs):
        of_epoch = table.filter(pc.equal(table["epoch"], epoch))
        values = of_epoch["cleanliness"].to_numpy()
        order = np.argsort(np.argsort(values, kind="stable"), kind="stable") / max(len(values) - 1, 1)
        for name, place in zip(of_epoch["triplet_id"].to_pylist(), order.tolist(), strict=True):
            if name in row_of:
                places[row_of[name], column] = place
    return places


def _mean(values: Array) -> Array:
    """Average over the columns that are known; NaN where none is."""
    known = np.isfinite(values)
    count = known.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > 0, np.where(known, values, 0).sum(axis=1) / count, np.nan)


def _sigmoid(values: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-np.clip(values, -60, 60))))
