"""LanceStore: a gallery's rows in a LanceDB table, in a folder or on object storage."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
import pyarrow as pa

from triptych.errors import TriptychError, UsageError
from triptych.search.columns import ID, POOLED, Shape, id_filter
from triptych.search.filter_tree import Filter, to_sql
from triptych.search.lance_errors import explained
from triptych.search.lance_snapshot import LanceSnapshot
from triptych.search.store import APPROXIMATE_FROM, Stages

TABLE = "images"

_DELETE_CHUNK = 500


class LanceStore:
    """The rows in LanceDB; every writing makes a version, and older ones stay readable until they are cleaned up.

    Args:
        place: a folder, or an address on object storage. LanceDB reads keys, region and endpoint of the latter from
            ``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``, ``AWS_REGION``, ``AWS_ENDPOINT``, ``AWS_ALLOW_HTTP``.

    Raises:
        DataError: there is none, it is damaged, or does not answer.
        TriptychError: LanceDB is not installed.
    """

    def __init__(self, place: str | Path) -> None:
        self.folder = place if isinstance(place, Path) else None
        self.place = str(place)
        with explained(self.place):
            self.table: Any = _connect(self.place).open_table(TABLE)

    @classmethod
    def create(cls, place: str | Path, shape: Shape) -> LanceStore:
        """Make an empty table.

        Raises:
            UsageError: there is a gallery's table on the object storage.
            DataError: the disk is full, cannot be written, or the storage does not answer.
            TriptychError: LanceDB is not installed.
        """
        with explained(place):
            if isinstance(place, Path):
                rmtree(place, ignore_errors=True)  # what a creation that was killed left
            connection = _connect(str(place))
            if not isinstance(place, Path) and TABLE in connection.list_tables().tables:
                if connection.open_table(TABLE).count_rows():
                    raise UsageError(f"{place}: there is a gallery here; choose another path")
                connection.drop_table(TABLE)
            connection.create_table(TABLE, schema=shape.schema())
        return cls(place)

    @property
    def version(self) -> int:
        """The version of the table that is open."""
        with explained(self.place):
            return int(self.table.version)

    @property
    def schema(self) -> pa.Schema:
        """The table's schema, metadata included."""
        with explained(self.place):
            return self.table.schema

    def refresh(self) -> None:
        """Go to the newest version."""
        with explained(self.place):
            self.table.checkout_latest()

    def count(self, where: Filter | None = None) -> int:
        """Count images, all or those that pass a filter."""
        with explained(self.place):
            return int(self.table.count_rows(None if where is None else to_sql(where)))

    def read(self, columns: Sequence[str], where: Filter | None = None) -> pa.Table:
        """Read columns of all images, or of those that pass a filter, in the table's order."""
        with explained(self.place):
            query = self.table.search().select(list(columns))
            return (query if where is None else query.where(to_sql(where))).to_arrow()

    def batches(self, columns: Sequence[str], size: int) -> Iterator[pa.RecordBatch]:
        """Read columns of all images, so many at a time."""
        with explained(self.place):
            yield from self.table.search().select(list(columns)).to_batches(size)

    def put(self, rows: pa.Table) -> None:
        """Insert images, or replace those of the same id, in one version."""
        with explained(self.place):
            merge = self.table.merge_insert(ID).when_matched_update_all()
            if POOLED in rows.column_names:
                merge = merge.when_not_matched_insert_all()
            merge.execute(rows)

    def add_columns(self, fields: Mapping[str, pa.DataType]) -> None:
        """Add metadata columns, empty for the images that are there."""
        with explained(self.place):
            self.table.add_columns(pa.schema([pa.field(name, given) for name, given in fields.items()]))

    def remove(self, image_ids: Sequence[str]) -> None:
        """Remove images by id."""
        with explained(self.place):
            for start in range(0, len(image_ids), _DELETE_CHUNK):
                self.table.delete(id_filter(image_ids[start : start + _DELETE_CHUNK]))

    def compact(self, *, forget: bool) -> None:
        """Merge small pieces, and bring the approximate index up to date."""
        with explained(self.place):
            with warnings.catch_warnings():  # LanceDB warns of what ``forget`` says
                warnings.simplefilter("ignore", UserWarning)
                self.table.optimize(cleanup_older_than=timedelta(0) if forget else None)
            rows = int(self.table.count_rows())
            if rows < APPROXIMATE_FROM or self.table.list_indices():
                return
            from lancedb.index import IvfFlat

            partitions = max(1, int(np.sqrt(rows)))
            self.table.create_index(POOLED, config=IvfFlat(distance_type="dot", num_partitions=partitions))

    def indexed(self) -> int:
        """Count the images that the approximate index covers."""
        with explained(self.place):
            names = [index.name for index in self.table.list_indices()]
            stats = self.table.index_stats(names[0]) if names else None
        return int(stats.num_indexed_rows) if stats else 0

    def size(self) -> tuple[int, int]:
        """Return bytes (of a folder: older versions included) and pieces that the rows lie in."""
        with explained(self.place):
            stats = self.table.stats()
        if self.folder is None:
            return int(stats["total_bytes"]), int(stats["fragment_stats"]["num_fragments"])
        size = sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())
        return size, int(stats["fragment_stats"]["num_fragments"])

    def snapshot(self, shape: Shape, stages: Stages) -> LanceSnapshot:
        """Open the newest version for searching; it does not change."""
        with explained(self.place):
            table = _connect(self.place).open_table(TABLE)
        return LanceSnapshot(self.place, table, shape, stages)


def _connect(place: str) -> Any:
    if find_spec("lancedb") is None:
        raise TriptychError('a gallery needs LanceDB.\n  Run: pip install "triptych[search]"')
    import lancedb

    return lancedb.connect(place)
