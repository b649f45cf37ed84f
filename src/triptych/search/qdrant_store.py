"""QdrantStore: a gallery's rows as points of a Qdrant collection, on one server or a cluster."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa

from triptych.errors import DataError, TriptychError, UsageError
from triptych.search.columns import FILTERABLE, HASH, ID, POOLED, TARGETS, Shape, kind_of
from triptych.search.filter_tree import Filter
from triptych.search.filters import FilterError
from triptych.search.qdrant_rows import HEAVY, VECTORS, point_id, to_points, to_table
from triptych.search.store import Stages

ADDRESS = re.compile(r"(qdrants?)://([^/\s:@]+)(?::(\d+))?/([A-Za-z0-9_-]{1,200})")
MARK = 0
"""The point that says whose the collection is: no vectors, so no search finds it."""

MOST_VALUES = 100_000
"""Different texts of a column that a filter by order or LIKE can choose from."""

_TYPES = {"text": pa.string(), "number": pa.float64(), "whole number": pa.int64(), "truth value": pa.bool_()}
_WRITTEN, _READ, _TIMEOUT = 32, 256, 60


class QdrantStore:
    """The rows in Qdrant. There is one version, the newest: a search sees what was written before it.

    ``targets`` is a multivector compared by MaxSim, ``pooled`` is indexed for the first stage; metadata are payload
    with an index each.

    Attributes:
        place: the address.
        client: asks the server; see ``qdrant_client.QdrantClient``.
        name: of the collection.
        shape: sizes of a row.
    """

    def __init__(self, place: str, client: Any, name: str, shape: Shape, mark: dict[str, Any]) -> None:
        self.place, self.client, self.name, self.shape = place, client, name, shape
        self._mark = mark

    @classmethod
    def create(cls, place: str, shape: Shape, owner: str) -> QdrantStore:
        """Make an empty collection.

        Raises:
            UsageError: the address is not one, or a collection of that name holds something.
            DataError: the server does not answer or refuses.
            TriptychError: the client is not installed.
        """
        client, name = connect(place)
        from qdrant_client import models

        with explained(place):
            if client.collection_exists(name):
                if client.count(name).count > 1 or not _read_mark(client, name):
                    raise UsageError(f"{place}: there is a collection of that name; choose another one")
                client.delete_collection(name)
            half = models.Datatype.FLOAT16
            client.create_collection(
                name,
                vectors_config={
                    POOLED: models.VectorParams(size=shape.dim, distance=models.Distance.DOT),
                    TARGETS: models.VectorParams(
                        size=shape.dim,
                        distance=models.Distance.DOT,
                        datatype=half,
                        multivector_config=models.MultiVectorConfig(
                            comparator=models.MultiVectorComparator.MAX_SIM
                        ),
                        hnsw_config=models.HnswConfigDiff(m=0),  # candidates come by ``pooled``
                    ),
                },
            )
            mark = {"owner": owner, **_sizes(shape), "fields": {}, "version": 1}
            store = cls(place, client, name, shape, mark)
            for column in (*FILTERABLE, HASH):
                store._index(column, shape.schema().field(column).type)
            store._write_mark()
        return store

    @classmethod
    def open(cls, place: str, shape: Shape, owner: str) -> QdrantStore:
        """Open a gallery's collection.

        Raises:
            DataError: there is none, it is not a gallery's, holds other sizes or another model's vectors, or the server
                does not answer.
        """
        client, name = connect(place)
        with explained(place):
            if not client.collection_exists(name):
                raise DataError(
                    f'there is no collection "{name}"',
                    file=place,
                    mend="`triptych index copy` makes it from another gallery, `triptych index` from pictures.",
                )
            mark = _read_mark(client, name)
        if not mark:
            raise DataError("this collection is no gallery", file=place, mend="Choose another collection.")
        if mark["owner"] != owner:
            raise DataError(
                "the collection holds another model's vectors", file=place, mend="Choose another collection."
            )
        if any(mark[key] != value for key, value in _sizes(shape).items()):
            raise DataError(
                "the collection holds rows of other sizes", file=place, mend="Choose another collection."
            )
        return cls(place, client, name, shape, mark)

    @property
    def version(self) -> int:
        """Counts the writings; of the last look."""
        return int(self._mark["version"])

    @property
    def schema(self) -> pa.Schema:
        """Of the rows, metadata included."""
        fields = [pa.field(name, _TYPES[kind]) for name, kind in self._mark["fields"].items()]
        return pa.schema([*self.shape.schema(), *fields])

    def refresh(self) -> None:
        """Look at the newest version."""
        with explained(self.place):
            self._mark = _read_mark(self.client, self.name) or self._mark

    def count(self, where: Filter | None = None) -> int:
        """Count images, all or those that pass a filter."""
        with explained(self.place):
            return int(self.client.count(self.name, count_filter=self.condition(where), exact=True).count)

    def read(self, columns: Sequence[str], where: Filter | None = None) -> pa.Table:
        """Read columns of all images, or of those that pass a filter."""
        batches = list(self._scroll(columns, where, _READ))
        schema = pa.schema([self.schema.field(name) for name in columns])
        return pa.concat_tables([schema.empty_table(), *(table for table, _ in batches)])

    def batches(self, columns: Sequence[str], size: int) -> Iterator[pa.RecordBatch]:
        """Read columns of all images, so many at a time."""
        for table, _ in self._scroll(columns, None, min(size, _READ)):
            yield from table.combine_chunks().to_batches()

    def rows(
        self, columns: Sequence[str], where: Filter | None = None, limit: int | None = None
    ) -> tuple[pa.Table, np.ndarray]:
        """Read columns and points of images, the first ``limit`` only."""
        tables, points, left = [], [], limit
        for table, ids in self._scroll(columns, where, _READ):
            tables.append(table if left is None else table.slice(0, left))
            points += ids if left is None else ids[:left]
            left = None if left is None else left - len(ids)
            if left is not None and left <= 0:
                break
        empty = pa.schema([self.schema.field(name) for name in columns]).empty_table()
        return pa.concat_tables([empty, *tables]), np.array(points, dtype=np.uint64)

    def take(self, points: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Read columns of points, in that order.

        Raises:
            DataError: a point is not there.
        """
        found: dict[int, Any] = {}
        heavy = [name for name in columns if name in VECTORS]
        with explained(self.place):
            for start in range(0, len(points), _READ):
                part = [int(point) for point in points[start : start + _READ]]
                records = self.client.retrieve(
                    self.name, part, with_payload=_payload(columns), with_vectors=heavy or False
                )
                found.update((record.id, record) for record in records)
        if gone := [point for point in points if int(point) not in found]:
            raise DataError(
                f"{len(gone)} images were removed meanwhile", file=self.place, mend="Search again."
            )
        ordered = [found[int(point)] for point in points]
        return to_table([(one.vector or {}, one.payload or {}) for one in ordered], columns, self.schema)

    def put(self, rows: pa.Table) -> None:
        """Insert images, or replace those of the same id; metadata that ``rows`` does not have stays.

        Raises:
            DataError: two ids share a point, or the server does not answer.
        """
        whole, own = POOLED in rows.column_names, self.schema.names
        with explained(self.place):
            for start in range(0, len(rows), _WRITTEN):
                part = rows.slice(start, _WRITTEN)
                there = self._payloads(part[ID].to_pylist())
                if whole:
                    self._upsert(to_points(part, self.shape), there, set(part.column_names))
                else:
                    self._describe(part, there, own)
        self._written()

    def add_columns(self, fields: Mapping[str, pa.DataType]) -> None:
        """Add metadata columns, empty for the images that are there."""
        with explained(self.place):
            for name, kind in fields.items():
                self._index(name, kind)
        self._mark["fields"] |= {name: _kind(kind) for name, kind in fields.items()}
        self._written()

    def remove(self, image_ids: Sequence[str]) -> None:
        """Remove images by id."""
        from qdrant_client import models

        with explained(self.place):
            for start in range(0, len(image_ids), _READ):
                points = [point_id(image_id) for image_id in image_ids[start : start + _READ]]
                self.client.delete(self.name, models.PointIdsList(points=points), wait=True)
        self._written()

    def compact(self, *, forget: bool) -> None:
        """Do nothing: the server looks after its pieces and its index."""

    def indexed(self) -> int:
        """Count the images that the server's index covers."""
        with explained(self.place):
            return min(len(self), int(self.client.get_collection(self.name).indexed_vectors_count or 0))

    def __len__(self) -> int:
        return self.count()

    def size(self) -> tuple[int | None, int]:
        """Return None, for the server does not say how many bytes, and its pieces."""
        with explained(self.place):
            return None, int(self.client.get_collection(self.name).segments_count or 0)

    def snapshot(self, shape: Shape, stages: Stages) -> Any:
        """Open for searching."""
        from triptych.search.qdrant_snapshot import QdrantSnapshot

        return QdrantSnapshot(QdrantStore(self.place, self.client, self.name, shape, self._newest()), stages)

    def condition(self, where: Filter | None) -> Any:
        """Write a filter in Qdrant's language; the mark never passes."""
        from qdrant_client import models

        from triptych.search.qdrant_filters import to_qdrant

        no_mark = models.HasIdCondition(has_id=[MARK])
        must = [] if where is None else [to_qdrant(where, self._distinct)]
        return models.Filter(must=must or None, must_not=[no_mark])

    def _distinct(self, column: str) -> list[str]:
        from triptych.search.qdrant_filters import key_of

        with explained(self.place):
            found = self.client.facet(self.name, key_of(column), limit=MOST_VALUES + 1, exact=True).hits
        if len(found) > MOST_VALUES:
            raise FilterError(
                f'"{column}" has more than {MOST_VALUES:,} different values; on Qdrant it can be compared by = and IN'
            )
        return [str(hit.value) for hit in found]

    def _scroll(
        self, columns: Sequence[str], where: Filter | None, size: int
    ) -> Iterator[tuple[pa.Table, list[int]]]:
        heavy, offset = [name for name in columns if name in VECTORS], None
        condition, schema = self.condition(where), self.schema
        while True:
            with explained(self.place):
                records, offset = self.client.scroll(
                    self.name,
                    scroll_filter=condition,
                    limit=size,
                    offset=offset,
                    with_payload=_payload(columns),
                    with_vectors=heavy or False,
                )
            if records:
                points = [(record.vector or {}, record.payload or {}) for record in records]
                yield to_table(points, columns, schema), [int(record.id) for record in records]
            if offset is None:
                return

    def _payloads(self, image_ids: list[str]) -> dict[int, dict[str, Any]]:
        from qdrant_client import models

        light = models.PayloadSelectorExclude(exclude=list(HEAVY))
        points = {point_id(image_id): image_id for image_id in image_ids}
        records = self.client.retrieve(self.name, list(points), with_payload=light)
        for record in records:
            if record.payload[ID] != points[record.id]:
                raise DataError(
                    f'the ids "{record.payload[ID]}" and "{points[record.id]}" share a point',
                    file=self.place,
                    mend="Rename one of them.",
                )
        return {record.id: dict(record.payload) for record in records}

    def _upsert(
        self,
        points: list[tuple[int, dict[str, Any], dict[str, Any]]],
        there: dict[int, dict[str, Any]],
        given: set[str],
    ) -> None:
        from qdrant_client import models

        structs = []
        for point, vectors, payload in points:
            kept = {name: value for name, value in there.get(point, {}).items() if name not in given}
            structs.append(models.PointStruct(id=point, vector=vectors, payload={**kept, **payload}))
        self.client.upsert(self.name, structs, wait=True)

    def _describe(self, rows: pa.Table, there: dict[int, dict[str, Any]], own: list[str]) -> None:
        for row in rows.to_pylist():
            point = point_id(row.pop(ID))
            values = {name: value for name, value in row.items() if value is not None and name in own}
            empty = [name for name, value in row.items() if value is None and name in there.get(point, {})]
            if point in there and values:
                self.client.set_payload(self.name, values, [point], wait=True)
            if point in there and empty:
                from triptych.search.qdrant_filters import key_of

                self.client.delete_payload(self.name, [key_of(name) for name in empty], [point], wait=True)

    def _index(self, column: str, kind: pa.DataType) -> None:
        from qdrant_client import models

        from triptych.search.qdrant_filters import key_of

        schema = {
            "text": models.PayloadSchemaType.KEYWORD,
            "number": models.PayloadSchemaType.FLOAT,
            "truth value": models.PayloadSchemaType.BOOL,
        }[kind_of(kind)]
        self.client.create_payload_index(self.name, key_of(column), schema, wait=True)

    def _newest(self) -> dict[str, Any]:
        self.refresh()
        return dict(self._mark)

    def _written(self) -> None:
        self._mark["version"] = int(self._mark["version"]) + 1
        with explained(self.place):
            self._write_mark()

    def _write_mark(self) -> None:
        from qdrant_client import models

        mark = models.PointStruct(id=MARK, vector={}, payload={"triptych": self._mark})
        self.client.upsert(self.name, [mark], wait=True)


def connect(place: str) -> tuple[Any, str]:
    """Return a client of the server at an address, and the collection's name.

    The key of a server that asks for one is read from ``QDRANT_API_KEY``; ``qdrants://`` speaks TLS.

    Raises:
        UsageError: the address is not one.
        TriptychError: the client is not installed.
    """
    found = ADDRESS.fullmatch(place)
    if not found:
        raise UsageError(f'an address of Qdrant is qdrant://host:port/collection, not "{place}"')
    if find_spec("qdrant_client") is None:
        raise TriptychError('a gallery on Qdrant needs its client.\n  Run: pip install "triptych[qdrant]"')
    from qdrant_client import QdrantClient

    scheme, host, port, name = found.groups()
    client = QdrantClient(
        host=host,
        port=int(port or 6333),
        https=scheme == "qdrants",
        api_key=os.environ.get("QDRANT_API_KEY"),
        timeout=_TIMEOUT,
        check_compatibility=False,
    )
    return client, name


@contextlib.contextmanager
def explained(place: str) -> Iterator[None]:
    """Turn the client's errors about the collection at ``place`` into ours."""
    from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

    try:
        yield
    except ResponseHandlingException as error:
        raise DataError(
            f"the store does not answer ({error.source})",
            file=place,
            mend="Look at its address and whether Qdrant is running.",
        ) from error
    except UnexpectedResponse as error:
        if error.status_code in (401, 403):
            raise DataError("the store wants a key", file=place, mend="Set QDRANT_API_KEY.") from error
        raise DataError(f"the store refuses: {str(error).strip()[:300]}", file=place) from error
    except ApiException as error:
        raise DataError(f"the store cannot be used: {str(error)[:300]}", file=place) from error


def _read_mark(client: Any, name: str) -> dict[str, Any]:
    records = client.retrieve(name, [MARK], with_payload=True)
    mark = (records[0].payload or {}).get("triptych") if records else None
    return dict(mark) if isinstance(mark, dict) else {}


def _sizes(shape: Shape) -> dict[str, Any]:
    return {
        "queries": shape.queries,
        "dim": shape.dim,
        "tokens": list(shape.tokens) if shape.tokens else None,
    }


def _kind(given: pa.DataType) -> str:
    return "whole number" if pa.types.is_integer(given) else kind_of(given)


def _payload(columns: Sequence[str]) -> Any:
    from triptych.search.qdrant_filters import key_of

    wanted = [key_of(name) for name in columns if name not in VECTORS]
    return wanted or False
