"""Evidence: what a model that never saw a triplet says of it, as a table of figures; no model is needed to read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from triptych.errors import DataError
from triptych.files import atomic_path

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]

FEATURES: dict[str, str] = {
    "fit": "log of the target's softmax share among its category's pictures, over that of a guess",
    "rank": "log share of these pictures that the query likes better than the target",
    "gap": "how much better the query likes its best picture than the target",
    "reverse_rank": "log share of the category's queries that like the target better than this one",
    "text_rank": "as rank, by the text alone",
    "text_reference_rank": "log share of pictures that the text alone likes better than the reference",
    "text_margin": "how much better the text alone likes the target than the reference",
    "mean_rank": "as rank, with the average picture as reference",
    "mean_reference_rank": "as text_reference_rank, with the average picture as reference",
    "image_rank": "as rank, by the reference alone",
    "image_similarity": "cosine of reference and target",
    "near_target": "cosine of the target and those of the neighbours in reference and text",
    "near_text": "cosine of the text and those of the neighbours in reference and target",
    "near_reference": "cosine of the reference and those of the neighbours in text and target",
    "home_reference": "share of pictures like the reference that are of this category",
    "home_target": "share of pictures like the target that are of this category",
    "home_text": "share of texts like this one that are of this category",
    "gain_reference": "gain of fit with the best of other references",
    "gain_text": "gain of fit with the best of other texts",
}
"""Every figure of a triplet; each is the mean over the models that never saw it."""

CANDIDATES = ("targets", "references", "texts")


@dataclass(frozen=True)
class Evidence:
    """Figures and candidates of some triplets, by one model or the mean of several.

    Attributes:
        rows: ``[M]`` the triplet's row in the audited table, or the number of a probe.
        is_probe: ``[M]`` which of the two ``rows`` counts.
        figures: ``[M, F]`` float32 in the order of :data:`FEATURES`; NaN where a figure was not measured.
        candidates: for each of :data:`CANDIDATES` ``[M, K]`` numbers of pictures (targets, references) or rows (whose
            text it is), -1 where there are fewer.
        scores: for each ``[M, K]`` their fit.
    """

    rows: IntArray
    is_probe: npt.NDArray[np.bool_]
    figures: FloatArray
    candidates: dict[str, IntArray]
    scores: dict[str, FloatArray]

    def __len__(self) -> int:
        return len(self.rows)

    def write(self, path: Path) -> None:
        """Write it as Parquet, whole or not at all."""
        columns: dict[str, pa.Array] = {"row": pa.array(self.rows), "probe": pa.array(self.is_probe)}
        for number, name in enumerate(FEATURES):
            columns[name] = pa.array(self.figures[:, number])
        for name in CANDIDATES:
            columns[name] = _lists(self.candidates[name], pa.int64())
            columns[f"{name}_fit"] = _lists(self.scores[name], pa.float32())
        with atomic_path(path) as temporary:
            pq.write_table(pa.table(columns), temporary)

    @classmethod
    def read(cls, path: Path) -> Evidence:
        """Read what :meth:`write` wrote.

        Raises:
            DataError: the file is damaged, or of another version.
        """
        mend = "Delete it and run the audit again; only this part is repeated."
        try:
            table = pq.read_table(path)
            figures = np.stack([table[name].to_numpy() for name in FEATURES], axis=1)
            return cls(
                table["row"].to_numpy(),
                table["probe"].to_numpy(),
                figures.astype(np.float32),
                {name: _matrix(table[name]) for name in CANDIDATES},
                {name: _matrix(table[f"{name}_fit"]) for name in CANDIDATES},
            )
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            raise DataError(f"the evidence cannot be read: {error}", file=path, mend=mend) from error


def concat(parts: Sequence[Evidence]) -> Evidence:
    """Put the folds of one model together, triplets in order of their rows, probes behind them."""
    rows = np.concatenate([part.rows for part in parts])
    is_probe = np.concatenate([part.is_probe for part in parts])
    order = np.lexsort((rows, is_probe))
    return Evidence(
        rows[order],
        is_probe[order],
        np.concatenate([part.figures for part in parts])[order],
        {name: np.concatenate([part.candidates[name] for part in parts])[order] for name in CANDIDATES},
        {name: np.concatenate([part.scores[name] for part in parts])[order] for name in CANDIDATES},
    )


def average(models: Sequence[Evidence]) -> tuple[Evidence, FloatArray]:
    """Average several models' figures of the same triplets.

    Candidates are ranked by the sum of what the models gave them; a model that did not name one gives it its own
    lowest fit.

    Returns:
        The average, and ``[M]`` how far the models disagree: the standard deviation of ``fit`` between them.

    Raises:
        ValueError: the models judged different triplets.
    """
    first = models[0]
    if any(not np.array_equal(first.rows, other.rows) for other in models):
        raise ValueError("the models judged different triplets")
    if len(models) == 1:
        return first, np.zeros(len(first), dtype=np.float32)
    figures = np.stack([model.figures for model in models])
    candidates, scores = {}, {}
    for name in CANDIDATES:
        candidates[name], scores[name] = _merge(
            [model.candidates[name] for model in models], [model.scores[name] for model in models]
        )
    spread = figures[:, :, list(FEATURES).index("fit")].std(axis=0)
    return Evidence(first.rows, first.is_probe, figures.mean(axis=0), candidates, scores), spread


def _merge(names: Sequence[IntArray], scores: Sequence[FloatArray]) -> tuple[IntArray, FloatArray]:
    width = max(part.shape[1] for part in names)
    merged = np.full((len(names[0]), width), -1, dtype=np.int64)
    values = np.full(merged.shape, np.nan, dtype=np.float32)
    for row in range(len(merged)):
        total: dict[int, float] = {}
        lowest = [
            float(np.nanmin(part[row])) if (ids[row] >= 0).any() else 0.0
            for ids, part in zip(names, scores, strict=True)
        ]
        every = {int(name) for ids in names for name in ids[row] if name >= 0}
        for name in every:
            total[name] = 0.0
        for ids, part, low in zip(names, scores, lowest, strict=True):
            given = {int(n): float(s) for n, s in zip(ids[row], part[row], strict=True) if n >= 0}
            for name in every:
                total[name] += given.get(name, low)
        best = sorted(every, key=lambda name: (-total[name], name))[:width]
        merged[row, : len(best)] = best
        values[row, : len(best)] = [total[name] / len(names) for name in best]
    return merged, values


def _lists(matrix: npt.NDArray[np.generic], kind: pa.DataType) -> pa.Array:
    width = matrix.shape[1]
    offsets = pa.array(np.arange(len(matrix) + 1, dtype=np.int32) * np.int32(width))
    return pa.ListArray.from_arrays(offsets, pa.array(matrix.reshape(-1), kind))


def _matrix(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    values = column.combine_chunks()
    flat = np.asarray(values.flatten().to_numpy(zero_copy_only=False))
    return flat.reshape(len(values), -1) if len(values) else flat.reshape(0, 0)
