"""LanceSnapshot: a LanceDB table at one version, searched in memory where it fits, else in the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from triptych.errors import DataError
from triptych.evaluation import rank
from triptych.objectives.similarity import similarity
from triptych.search.columns import (
    HASH,
    HEIGHT,
    ID,
    POOLED,
    SOURCE,
    TARGETS,
    WIDTH,
    Shape,
    id_filter,
    metadata_fields,
)
from triptych.search.filter_tree import Filter, to_sql
from triptych.search.first_stage import DIRECTIONS, FirstStage
from triptych.search.lance_errors import explained
from triptych.search.store import FILTERED_EXACT, Found, Stages
from triptych.training.evaluate import scorer


@dataclass(frozen=True)
class Resident:
    """What a search needs of the whole gallery, in memory, in the table's order.

    Attributes:
        details: id, content hash, source, size and metadata of each image.
        rows: ``[N]`` their row ids in the table.
        targets: ``[N, Q, D]``.
        first_stage: finds candidates; None where every image is scored.
        place: image id to its place.
        order: ``[N]`` places by rising row id.
        by_hash: content hash to the ids that have it.
    """

    details: pa.Table
    rows: np.ndarray
    targets: Tensor
    first_stage: FirstStage | None
    place: Mapping[str, int]
    order: np.ndarray
    by_hash: Mapping[str, list[str]]

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Return where rows stand."""
        return self.order[np.searchsorted(self.rows, rows, sorter=self.order)]


class LanceSnapshot:
    """One version of a table; it does not change, whatever is written meanwhile.

    Args:
        place: the table's address, for messages.
        table: its newest version, opened for this snapshot alone.
        shape: sizes of a row.
        stages: how it is searched. Target vectors that take more than its memory are read from the table, unless
            every image is to be scored.

    Raises:
        DataError: the table is damaged.
    """

    def __init__(self, place: str, table: Any, shape: Shape, stages: Stages) -> None:
        self.shape, self.stages, self._place, self._table = shape, stages, place, table
        with explained(place):
            self.version = int(table.version)
            self.images = int(table.count_rows())
            self.schema: pa.Schema = table.schema
            indices = table.list_indices()
        self.metadata = list(metadata_fields(self.schema))
        self.partitions = max(1, int(np.sqrt(self.images))) if indices else 0
        self.exact = stages.is_exact(self.images)
        kept = 0 if self.exact else 4 * min(DIRECTIONS, self.shape.dim)
        fits = self.images * self.shape.queries * (2 * self.shape.dim + kept) <= stages.memory
        self.resident = self._load(half=self.images >= stages.small) if fits or self.exact else None

    def find(self, vector: Tensor, wanted: int, where: Filter | None) -> Found:
        """Find the images nearest to a query vector ``[D]``."""
        sql = None if where is None else to_sql(where)
        if self.exact and self.resident:
            return _scan(self.resident, vector, wanted, self.passing(sql) if sql else None)
        if sql is not None and self.count(sql) <= FILTERED_EXACT:
            rows, exact = np.sort(self.passing(sql)), True
        else:
            rows = self.nearest(vector, self.stages.first(self.images, wanted), sql)
            exact = len(rows) == self.images
        return _best(rows, self.targets(rows), vector, wanted, exact)

    def rows_of(self, image_ids: Sequence[str]) -> dict[str, int]:
        """Return the row ids of images; those that are not there are left out."""
        if not image_ids:
            return {}
        if self.resident:
            place = self.resident.place
            return {i: int(self.resident.rows[place[i]]) for i in image_ids if i in place}
        found = self._search([ID], id_filter(image_ids))
        return dict(zip(found[ID].to_pylist(), found["_rowid"].to_pylist(), strict=True))

    def passing(self, where: str) -> np.ndarray:
        """Return the row ids of the images that pass a filter, in the table's order."""
        return np.asarray(self._search([ID], where)["_rowid"], dtype=np.uint64)

    def count(self, where: str) -> int:
        """Count the images that pass a filter."""
        with explained(self._place):
            return int(self._table.count_rows(where))

    def copies(self, image_ids: Sequence[str], hashes: set[str]) -> set[str]:
        """Return ids and the content hashes that they have, and every image of these or the given hashes."""
        if self.resident:
            gallery = self.resident
            places = [gallery.place[i] for i in image_ids if i in gallery.place]
            own = set(gallery.details[HASH].take(pa.array(places, pa.int64())).to_pylist())
            return {image_id for value in own | hashes for image_id in gallery.by_hash.get(value, ())}
        rows = self.details(list(self.rows_of(image_ids).values()), [ID, HASH])
        hashes = hashes | {row[HASH] for row in rows}
        if not hashes:
            return set()
        quoted = ", ".join(f"'{value}'" for value in sorted(hashes))
        return set(self._search([ID], f"{HASH} IN ({quoted})")[ID].to_pylist())

    def details(self, rows: Sequence[int], columns: Sequence[str]) -> list[dict[str, Any]]:
        """Read columns of rows, in that order."""
        if self.resident and set(columns) <= set(self.resident.details.column_names):
            places = self.resident.places(np.array(rows, dtype=np.uint64))
            table = self.resident.details.select(list(columns)).take(pa.array(places))
        else:
            table = self._take(rows, columns)
        found: list[dict[str, Any]] = table.to_pylist()
        return found

    def nearest(self, vector: Tensor, count: int, where: str | None) -> np.ndarray:
        """Return the row ids of about the ``count`` best images for a query vector ``[D]``.

        In memory all target vectors are looked at, roughly; in the table the pooled vectors of the index's
        nearest partitions.
        """
        if self.resident and self.resident.first_stage:
            passing = torch.from_numpy(self.resident.places(self.passing(where))) if where else None
            found = self.resident.first_stage.nearest(vector, count, passing)
            return np.asarray(self.resident.rows[found.numpy()])
        with explained(self._place):
            query = (
                self._table.search(vector.numpy(), vector_column_name=POOLED)
                .distance_type("dot")
                .limit(count)
            )
            query = query.with_row_id(True).select([ID, "_distance"])
            if self.partitions:
                query = query.nprobes(min(self.stages.probes, self.partitions))
            if where:
                query = query.where(where, prefilter=True)
            return np.asarray(query.to_arrow()["_rowid"], dtype=np.uint64)

    def targets(self, rows: np.ndarray) -> Tensor:
        """Return the target vectors of rows, ``[len(rows), Q, D]``."""
        if self.resident:
            return self.resident.targets[torch.from_numpy(self.resident.places(rows))]
        return self._vectors(self._take(rows.tolist(), [TARGETS])[TARGETS])

    def pictures(self, image_ids: Sequence[str], column: str) -> dict[str, Any]:
        """Return the tokens, or the thumbnails, of images by id."""
        rows = self.rows_of(image_ids)
        if not rows:
            return {}
        values = self._take(list(rows.values()), [column])[column]
        if pa.types.is_binary(values.type):
            return dict(zip(rows, values.to_pylist(), strict=True))
        return dict(
            zip(rows, np.asarray(values.combine_chunks().flatten()).reshape(len(rows), -1), strict=True)
        )

    def _load(self, *, half: bool) -> Resident:
        found = self._search([ID, HASH, SOURCE, WIDTH, HEIGHT, *self.metadata, TARGETS], None)
        details = found.drop_columns([TARGETS, "_rowid"])
        ids, by_hash = details[ID].to_pylist(), dict[str, list[str]]()
        for image_id, value in zip(ids, details[HASH].to_pylist(), strict=True):
            by_hash.setdefault(value, []).append(image_id)
        targets, rows = self._vectors(found[TARGETS]), np.asarray(found["_rowid"], dtype=np.uint64)
        return Resident(
            details.combine_chunks(),
            rows,
            targets if half else targets.float(),
            None if self.exact else FirstStage.of(targets),
            {image_id: place for place, image_id in enumerate(ids)},
            np.argsort(rows),
            by_hash,
        )

    def read(
        self, columns: Sequence[str], *, where: Filter | None = None, limit: int | None = None
    ) -> pa.Table:
        """Read columns and ``_rowid`` of all images, or of those that pass a filter; the first ``limit`` only."""
        return self._search(columns, None if where is None else to_sql(where), limit)

    def _search(self, columns: Sequence[str], where: str | None, limit: int | None = None) -> pa.Table:
        with explained(self._place):
            query = self._table.search().select(list(columns)).with_row_id(True)
            query = query.where(where) if where else query
            return (query.limit(limit) if limit else query).to_arrow()

    def _take(self, rows: Sequence[int], columns: Sequence[str]) -> pa.Table:
        if not rows:
            return pa.schema([self.schema.field(name) for name in columns]).empty_table()
        wanted = np.array(rows, dtype=np.uint64)
        with explained(self._place):
            query = self._table.take_row_ids(wanted.tolist()).select(list(columns)).with_row_id()
            found: pa.Table = query.to_arrow()
        own = np.asarray(found["_rowid"], dtype=np.uint64)  # LanceDB gives them in its own order
        order = np.argsort(own)
        places = (
            order[np.minimum(np.searchsorted(own, wanted, sorter=order), len(own) - 1)] if len(own) else order
        )
        if len(own) < len(wanted) or not np.array_equal(own[places], wanted):
            problem = "rows of the gallery's table are missing"
            raise DataError(problem, file=self._place, mend="Run `triptych index verify`.")
        return found.select(list(columns)).take(pa.array(places))

    def _vectors(self, column: pa.ChunkedArray) -> Tensor:
        if not len(column):
            return torch.empty(0, self.shape.queries, self.shape.dim, dtype=torch.float16)
        flat = np.array(column.combine_chunks().flatten(), dtype=np.float16)
        return torch.from_numpy(flat.reshape(-1, self.shape.queries, self.shape.dim))


def _scan(gallery: Resident, vector: Tensor, wanted: int, passing: np.ndarray | None) -> Found:
    """Score every image, or those in the rows ``passing``; ranked as evaluation does, ties in the table's order."""
    targets, rows = gallery.targets, gallery.rows
    if passing is not None:
        kept = np.flatnonzero(np.isin(rows, passing))
        targets, rows = targets[torch.from_numpy(kept)], rows[kept]
    if not len(rows):
        return Found(rows, np.empty(0, np.float32), 0, True)
    queries = targets.shape[1]
    found = rank(scorer(vector[None], targets), 1, len(rows), top_k=wanted, bytes_per_score=4 * queries)
    return Found(rows[found.indices[0]], found.scores[0], len(rows), True)


def _best(rows: np.ndarray, targets: Tensor, vector: Tensor, wanted: int, exact: bool) -> Found:
    """Score the candidates exactly; ties by row."""
    scores = similarity(vector[None], targets)[0].numpy()
    if not np.isfinite(scores).all():
        raise DataError("the gallery holds vectors that are not finite", mend="Run `triptych index verify`.")
    order = np.lexsort((rows, -scores))[:wanted]
    return Found(rows[order], scores[order], len(rows), exact)
