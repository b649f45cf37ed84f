"""QdrantSnapshot: a gallery on Qdrant, as a search reads it; the server finds and scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from triptych.objectives.similarity import similarity
from triptych.search.columns import HASH, ID, POOLED, TARGETS, metadata_fields
from triptych.search.filter_tree import Comparison, Filter
from triptych.search.qdrant_rows import point_id
from triptych.search.store import FILTERED_EXACT, Found, Stages

_MARGIN = 10
"""Images beyond those wanted that are scored anew here: the server rounds the query to half precision too."""

if TYPE_CHECKING:
    from triptych.search.qdrant_store import QdrantStore


class QdrantSnapshot:
    """The newest version, at the time of each question.

    Args:
        store: the collection, of its own.
        stages: how it is searched: all images by MaxSim, or the nearest by the pooled vector and then these by MaxSim.

    Raises:
        DataError: the server does not answer.
    """

    def __init__(self, store: QdrantStore, stages: Stages) -> None:
        self._store, self.stages = store, stages
        self.version, self.images, self.schema = store.version, len(store), store.schema
        self.metadata = list(metadata_fields(self.schema))
        self.exact = stages.is_exact(self.images)

    def find(self, vector: Tensor, wanted: int, where: Filter | None) -> Found:
        """Find the images nearest to a query vector ``[D]``."""
        from qdrant_client import models

        from triptych.search.qdrant_store import explained

        passing = self.images if where is None else self._store.count(where)
        exact = self.exact or (where is not None and passing <= FILTERED_EXACT)
        condition, numbers = self._store.condition(where), vector.float().tolist()
        count = passing if exact else self.stages.first(self.images, wanted)
        first = models.Prefetch(query=numbers, using=POOLED, limit=count, filter=condition)
        with explained(self._store.place):
            points = self._store.client.query_points(
                self._store.name,
                query=[numbers],
                using=TARGETS,
                prefetch=None if exact else first,
                query_filter=condition,
                limit=max(1, min(wanted + _MARGIN, count)),
                search_params=models.SearchParams(exact=True),
                with_payload=False,
            ).points
        rows = np.array([int(point.id) for point in points], dtype=np.uint64)
        scores = similarity(vector[None].float(), self.targets(rows).float())[0].numpy()
        order = np.argsort(-scores, kind="stable")[:wanted]
        return Found(rows[order], scores[order], min(count, passing), exact)

    def rows_of(self, image_ids: Sequence[str]) -> dict[str, int]:
        """Return the points of images; those that are not there are left out."""
        if not image_ids:
            return {}
        found, points = self._store.rows([ID], Comparison(ID, "IN", tuple(image_ids)))
        there = dict(zip(found[ID].to_pylist(), points.tolist(), strict=True))
        return {image_id: there[image_id] for image_id in image_ids if image_id in there}

    def copies(self, image_ids: Sequence[str], hashes: set[str]) -> set[str]:
        """Return ids and the content hashes that they have, and every image of these or the given hashes."""
        if image_ids:
            own, _ = self._store.rows([HASH], Comparison(ID, "IN", tuple(image_ids)))
            hashes = hashes | set(own[HASH].to_pylist())
        if not hashes:
            return set()
        found, _ = self._store.rows([ID], Comparison(HASH, "IN", tuple(sorted(hashes))))
        return set(found[ID].to_pylist())

    def details(self, rows: Sequence[int], columns: Sequence[str]) -> list[dict[str, Any]]:
        """Read columns of points, in that order."""
        found: list[dict[str, Any]] = self._store.take(rows, columns).to_pylist()
        return found

    def targets(self, rows: np.ndarray) -> Tensor:
        """Return the target vectors of points, ``[len(rows), Q, D]``."""
        shape = self._store.shape
        column = self._store.take(rows.tolist(), [TARGETS])[TARGETS]
        flat = np.array(column.combine_chunks().flatten(), dtype=np.float16)
        return torch.from_numpy(flat.reshape(-1, shape.queries, shape.dim))

    def pictures(self, image_ids: Sequence[str], column: str) -> dict[str, Any]:
        """Return the tokens, or the thumbnails, of images by id."""
        there = list(self.rows_of(image_ids))
        values = self._store.take([point_id(image_id) for image_id in there], [column])[column]
        if pa.types.is_binary(values.type):
            return dict(zip(there, values.to_pylist(), strict=True))
        flat = np.asarray(values.combine_chunks().flatten())
        return dict(zip(there, flat.reshape(len(there), -1), strict=True)) if there else {}

    def read(
        self, columns: Sequence[str], *, where: Filter | None = None, limit: int | None = None
    ) -> pa.Table:
        """Read columns and ``_rowid`` of all images, or of those that pass a filter; the first ``limit`` only."""
        found, points = self._store.rows(columns, where, limit)
        return found.append_column("_rowid", pa.array(points))
