"""Rows of a gallery as points of Qdrant and back: vectors named ``pooled`` and ``targets``, the rest as payload."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from triptych.search.columns import ID, POOLED, TARGETS, THUMBNAIL, TOKENS, Shape

VECTORS = (POOLED, TARGETS)
HEAVY = (THUMBNAIL, TOKENS)
"""Columns of the payload that are bytes, kept as base64."""


def point_id(image_id: str) -> int:
    """Return the point of an image: 64 bits of the SHA-256 of its id, never 0."""
    return max(1, int.from_bytes(hashlib.sha256(image_id.encode()).digest()[:8], "big"))


def to_points(rows: pa.Table, shape: Shape) -> list[tuple[int, dict[str, Any], dict[str, Any]]]:
    """Turn whole rows into (point id, vectors, payload); a value that is missing is left out of the payload."""
    count = len(rows)
    pooled = np.asarray(rows[POOLED].combine_chunks().flatten(), np.float32).reshape(count, shape.dim)
    targets = np.asarray(rows[TARGETS].combine_chunks().flatten(), np.float32)
    targets = targets.reshape(count, shape.queries, shape.dim)
    tokens = None
    if TOKENS in rows.column_names:
        tokens = np.asarray(rows[TOKENS].combine_chunks().flatten(), np.float16).reshape(count, -1)
    plain = rows.drop_columns([name for name in (*VECTORS, TOKENS) if name in rows.column_names])
    points = []
    for place, row in enumerate(plain.to_pylist()):
        payload = {name: value for name, value in row.items() if value is not None}
        payload[THUMBNAIL] = base64.b64encode(payload[THUMBNAIL]).decode()
        if tokens is not None:
            payload[TOKENS] = base64.b64encode(tokens[place].tobytes()).decode()
        vectors = {POOLED: pooled[place].tolist(), TARGETS: targets[place].tolist()}
        points.append((point_id(row[ID]), vectors, payload))
    return points


def to_table(
    points: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], columns: Sequence[str], schema: pa.Schema
) -> pa.Table:
    """Turn (vectors, payload) of points into rows with some columns."""
    arrays = []
    for name in columns:
        kind = schema.field(name).type
        if name in VECTORS:
            values = [np.asarray(vectors[name], np.float32).reshape(-1) for vectors, _ in points]
        elif name == TOKENS:
            values = [np.frombuffer(base64.b64decode(payload[name]), np.float16) for _, payload in points]
        elif name == THUMBNAIL:
            arrays.append(pa.array([base64.b64decode(payload[name]) for _, payload in points], kind))
            continue
        else:
            arrays.append(pa.array([payload.get(name) for _, payload in points], kind))
            continue
        flat = np.concatenate(values) if values else np.empty(0, np.float32)
        numbers = pa.array(flat.astype(kind.value_type.to_pandas_dtype()), kind.value_type)
        arrays.append(pa.FixedSizeListArray.from_arrays(numbers, kind.list_size))
    return pa.Table.from_arrays(arrays, schema=pa.schema([schema.field(name) for name in columns]))
