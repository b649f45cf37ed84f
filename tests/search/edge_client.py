"""The part of qdrant-client that a store uses, answered by the real engine in this process (``qdrant-edge-py``)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import qdrant_edge as edge
from qdrant_client import models


class EdgeClient:
    """Collections are shards in folders of ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.shards = folder, dict[str, edge.EdgeShard]()

    def collection_exists(self, name: str) -> bool:
        return name in self.shards

    def create_collection(self, name: str, vectors_config: dict[str, models.VectorParams]) -> None:
        vectors = {}
        for key, given in vectors_config.items():
            multi = edge.MultiVectorConfig(edge.MultiVectorComparator.MaxSim)
            vectors[key] = edge.EdgeVectorParams(
                size=given.size,
                distance=edge.Distance.Dot,
                multivector_config=multi if given.multivector_config else None,
                datatype=edge.VectorStorageDatatype.Float16 if given.datatype else None,
            )
        (self.folder / name).mkdir(parents=True)
        self.shards[name] = edge.EdgeShard.create(str(self.folder / name), edge.EdgeConfig(vectors=vectors))

    def get_collection(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(indexed_vectors_count=0, segments_count=1)

    def create_payload_index(self, name: str, field: str, schema: Any, wait: bool = True) -> None:
        kinds = {
            models.PayloadSchemaType.KEYWORD: edge.PayloadSchemaType.Keyword,
            models.PayloadSchemaType.FLOAT: edge.PayloadSchemaType.Float,
            models.PayloadSchemaType.BOOL: edge.PayloadSchemaType.Bool,
        }
        self.shards[name].update(edge.UpdateOperation.create_field_index(field, kinds[schema]))

    def count(self, name: str, count_filter: Any = None, exact: bool = True) -> SimpleNamespace:
        request = edge.CountRequest(exact=exact, filter=self._filter(name, count_filter))
        return SimpleNamespace(count=self.shards[name].count(request))

    def upsert(self, name: str, points: list[models.PointStruct], wait: bool = True) -> None:
        given = [edge.Point(point.id, point.vector, point.payload) for point in points]
        self.shards[name].update(edge.UpdateOperation.upsert_points(given))

    def delete(self, name: str, selector: models.PointIdsList, wait: bool = True) -> None:
        self.shards[name].update(edge.UpdateOperation.delete_points(list(selector.points)))

    def set_payload(self, name: str, payload: dict[str, Any], points: list[int], wait: bool = True) -> None:
        self.shards[name].update(edge.UpdateOperation.set_payload(points, payload))

    def delete_payload(self, name: str, keys: list[str], points: list[int], wait: bool = True) -> None:
        self.shards[name].update(edge.UpdateOperation.delete_payload(points, keys))

    def retrieve(
        self, name: str, ids: list[int], with_payload: Any = True, with_vectors: Any = False
    ) -> list[Any]:
        return list(
            self.shards[name].retrieve(ids, with_payload=_payload(with_payload), with_vector=with_vectors)
        )

    def scroll(
        self,
        name: str,
        scroll_filter: Any,
        limit: int,
        offset: int | None,
        with_payload: Any,
        with_vectors: Any,
    ) -> tuple[list[Any], int | None]:
        request = edge.ScrollRequest(
            offset=offset,
            limit=limit,
            filter=self._filter(name, scroll_filter),
            with_payload=_payload(with_payload),
            with_vector=with_vectors,
        )
        return self.shards[name].scroll(request)

    def facet(self, name: str, key: str, limit: int, exact: bool) -> SimpleNamespace:
        found = self.shards[name].facet(edge.FacetRequest(key, limit=limit, exact=exact))
        return SimpleNamespace(hits=list(found.hits))

    def query_points(
        self,
        name: str,
        query: list[list[float]],
        using: str,
        prefetch: models.Prefetch | None,
        query_filter: Any,
        limit: int,
        search_params: models.SearchParams,
        with_payload: bool,
    ) -> SimpleNamespace:
        first = None
        if prefetch is not None:
            wanted = edge.Query.Nearest(prefetch.query, using=prefetch.using)
            first = [
                edge.Prefetch(limit=prefetch.limit, query=wanted, filter=self._filter(name, prefetch.filter))  # type: ignore[arg-type]
            ]
        request = edge.QueryRequest(
            limit=limit,
            query=edge.Query.Nearest(query, using=using),
            prefetches=first,
            filter=self._filter(name, query_filter),
            params=edge.SearchParams(exact=search_params.exact),
            with_payload=with_payload,
        )
        return SimpleNamespace(points=self.shards[name].query(request))

    def _filter(self, name: str, given: models.Filter | None) -> Any:
        if given is None:
            return None
        parts = {part: getattr(given, part) for part in ("must", "should", "must_not")}
        return edge.Filter(
            **{part: [self._condition(name, one) for one in found] for part, found in parts.items() if found}
        )

    def _condition(self, name: str, given: Any) -> Any:
        if isinstance(given, models.Filter):
            return self._filter(name, given)
        if isinstance(given, models.HasIdCondition):
            return edge.HasIdCondition(set(given.has_id))
        if isinstance(given, models.IsEmptyCondition):
            return edge.IsEmptyCondition(given.is_empty.key)
        if given.range is not None:
            bounds = {bound: getattr(given.range, bound) for bound in ("gte", "gt", "lte", "lt")}
            return edge.FieldCondition(given.key, range=edge.RangeFloat(**bounds))
        if isinstance(given.match, models.MatchAny):
            return edge.FieldCondition(given.key, match=edge.MatchAny(given.match.any))
        value = given.match.value
        if isinstance(value, bool):  # version 0.9 of the binding takes True for 1, which matches nothing
            points, _ = self.scroll(name, None, 100_000, None, True, False)
            return edge.HasIdCondition({p.id for p in points if p.payload.get(given.key) is value})
        return edge.FieldCondition(given.key, match=edge.MatchValue(value))


def _payload(given: Any) -> Any:
    if isinstance(given, models.PayloadSelectorExclude):
        return edge.PayloadSelector.Exclude(given.exclude)
    return given
