"""Every store gives what LanceDB in a folder gives: the same images and scores, whatever was written between."""

from __future__ import annotations

import socket
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.nn.functional import normalize

from triptych.errors import DataError, UsageError
from triptych.search.columns import HASH, ID, POOLED, SOURCE, TARGETS, THUMBNAIL, TOKENS, Shape, filter_fields
from triptych.search.filters import parse_filter
from triptych.search.indexing import pool
from triptych.search.lance_store import LanceStore
from triptych.search.store import Stages, Store, create_store, open_store

qdrant_client = pytest.importorskip("qdrant_client", reason="a gallery on Qdrant needs its client")
pytestmark = [
    pytest.mark.filterwarnings("ignore:Payload indexes have no effect:UserWarning"),
    pytest.mark.filterwarnings("ignore:Local mode performs exact:UserWarning"),
]

SHAPE = Shape(queries=3, dim=8, tokens=(2, 4))
METADATA = {"colour": pa.string(), "price": pa.float64(), "stock": pa.int64(), "new": pa.bool_()}
FIELDS = {**METADATA, "Base Colour": pa.string()}
ADDRESS = "qdrant://shop.example:6333/gallery"
EXACT = Stages(exact=True, small=100, candidates=None, probes=8, memory=2**20)
FILTERS = (
    None,
    "colour = 'red'",
    "colour != 'red'",
    "NOT (colour = 'red' OR price < 20)",
    "colour IN ('red', 'blue') AND new = true",
    "colour NOT IN ('red')",
    "price BETWEEN 10 AND 30 OR stock > 7",
    "NOT price BETWEEN 10 AND 30",
    "stock = 3",
    "stock <> 3 AND new != true",
    "new = false",
    "colour IS NULL",
    "NOT colour IS NULL AND price IS NOT NULL",
    "colour LIKE 're%'",
    "NOT colour LIKE '_lue'",
    "colour > 'c'",
    "colour BETWEEN 'a' AND 'c'",
    "`Base Colour` = 'mauve'",
    "id LIKE 'image 1%' AND id != 'image 11'",
    "width >= 64 AND height < 90",
    "colour = 'nothing'",
)


def rows(numbers: np.ndarray, seed: int) -> pa.Table:
    """Make up images, some of whose metadata are missing."""
    draw, many = np.random.default_rng(seed), len(numbers)
    targets = normalize(torch.from_numpy(draw.normal(size=(many, 3, 8))).float(), dim=-1).half()

    def some(values: list[Any]) -> list[Any]:
        return [None if draw.random() < 0.2 else value for value in values]

    def lists(values: np.ndarray) -> pa.Array:
        return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])

    columns = {
        ID: [f"image {number}" for number in numbers],
        HASH: [f"{number + 1000 * seed:064x}" for number in numbers],
        SOURCE: [f"photos/{number}.jpg" for number in numbers],
        "width": pa.array(32 + numbers % 50, pa.int32()),
        "height": pa.array(64 + numbers % 40, pa.int32()),
        THUMBNAIL: pa.array([bytes([number % 251]) * 5 for number in numbers], pa.binary()),
        POOLED: lists(pool(targets.float()).numpy()),
        TARGETS: lists(targets.flatten(1).numpy()),
        TOKENS: lists(draw.normal(size=(many, 8)).astype(np.float16)),
    }
    table = pa.table(columns, schema=SHAPE.schema())
    colours = draw.choice(["red", "blue", "rose", 'it\'s "x" %', "ärgerlich"], many).tolist()
    given = {
        "colour": pa.array(some(colours), pa.string()),
        "price": pa.array(some(draw.integers(0, 400, many).astype(float) / 10), pa.float64()),
        "stock": pa.array(some(draw.integers(0, 12, many).tolist()), pa.int64()),
        "new": pa.array(some(draw.choice([True, False], many).tolist()), pa.bool_()),
        "Base Colour": pa.array(some(["mauve" if number % 3 else "teal" for number in numbers]), pa.string()),
    }
    for name, values in given.items():
        table = table.append_column(name, values)
    return table


def local_client(_: Path) -> Any:
    return qdrant_client.QdrantClient(":memory:")


def edge_client(folder: Path) -> Any:
    pytest.importorskip("qdrant_edge", reason="Qdrant's engine in this process needs qdrant-edge-py")
    spec = spec_from_file_location("edge_client", Path(__file__).with_name("edge_client.py"))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.EdgeClient(folder)


@pytest.fixture(params=[local_client, edge_client], ids=["local", "edge"])
def qdrant(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    make: Callable[[Path], Any] = request.param
    client = make(tmp_path / "qdrant")
    monkeypatch.setattr(
        "triptych.search.qdrant_store.connect", lambda place: (client, place.rsplit("/", 1)[1])
    )
    return client


@pytest.fixture
def lance_store(lance: None, tmp_path: Path) -> Store:
    return LanceStore.create(tmp_path / "store", SHAPE)


def test_the_same_images_and_scores(qdrant: Any, lance_store: Store, tmp_path: Path) -> None:
    other = create_store(tmp_path, ADDRESS, SHAPE, "a model")
    for store in (lance_store, other):
        store.add_columns(FIELDS)
    steps: list[Callable[[Store], None]] = [
        lambda store: store.put(rows(np.arange(120), 1)),
        lambda store: store.put(rows(np.arange(100, 140), 2)),  # 20 changed, 20 new
        lambda store: store.remove([f"image {number}" for number in range(0, 60, 3)]),
        lambda store: store.put(described(store)),
    ]
    draw, asked = np.random.default_rng(0), 0
    for step in steps:
        for store in (lance_store, other):
            step(store)
        one, two = (store.snapshot(SHAPE, EXACT) for store in (lance_store, other))
        assert one.images == two.images
        assert dict(zip(one.schema.names, one.schema.types, strict=True)) == dict(
            zip(two.schema.names, two.schema.types, strict=True)
        )
        for text in FILTERS:
            where = None if text is None else parse_filter(text, filter_fields(one.schema))
            assert lance_store.count(where) == other.count(where), text
            for vector in torch.from_numpy(draw.normal(size=(3, 8))).float():
                asked += 1
                found, same = one.find(vector, 10, where), two.find(vector, 10, where)
                ids = [[row[ID] for row in s.details(f.rows, [ID])] for s, f in ((one, found), (two, same))]
                assert ids[0] == ids[1], text
                assert np.allclose(found.scores, same.scores, atol=1e-5)
                assert (found.scored, found.exact) == (same.scored, same.exact)
    assert asked >= 200
    assert everything(lance_store) == everything(other)


def described(store: Store) -> pa.Table:
    """Give images that are there other metadata, and none for some."""
    there = sorted(store.read([ID])[ID].to_pylist())[:30]
    return pa.table(
        {ID: there, "colour": pa.array([None, "red", "blue"] * 10), "price": pa.array([1.5] * 30)}
    )


def everything(store: Store) -> list[dict[str, Any]]:
    names = store.schema.names
    found = [row for batch in store.batches(names, 50) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: str(row[ID]))


def test_two_stages_find_the_same_where_all_are_candidates(
    qdrant: Any, lance_store: Store, tmp_path: Path
) -> None:
    other = create_store(tmp_path, ADDRESS, SHAPE, "a model")
    for store in (lance_store, other):
        store.add_columns(FIELDS)
        store.put(rows(np.arange(90), 4))
    stages = Stages(exact=False, small=10, candidates=200, probes=8, memory=2**20)
    one, two = (store.snapshot(SHAPE, stages) for store in (lance_store, other))
    for vector in torch.from_numpy(np.random.default_rng(0).normal(size=(20, 8))).float():
        found, same = one.find(vector, 5, None), two.find(vector, 5, None)
        ids = [[row[ID] for row in s.details(f.rows, [ID])] for s, f in ((one, found), (two, same))]
        assert ids[0] == ids[1]
    names = ["image 3", "image 5", "gone"]
    assert set(one.rows_of(names)) == set(two.rows_of(names)) == {"image 3", "image 5"}
    assert one.copies(["image 3"], set()) == two.copies(["image 3"], set()) == {"image 3"}
    for column in (THUMBNAIL, TOKENS):
        here, there = one.pictures(names, column), two.pictures(names, column)
        assert set(here) == set(there) == {"image 3", "image 5"}
        assert all(np.array_equal(here[name], there[name]) for name in here)


def test_a_collection_of_others_is_refused(qdrant: Any, tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(DataError, match='there is no collection "gallery"'):
        open_store(tmp_path, ADDRESS, SHAPE, "a model")
    store = create_store(tmp_path, ADDRESS, SHAPE, "a model")
    store.put(rows(np.arange(5), 1).select(SHAPE.schema().names))
    with pytest.raises(UsageError, match="there is a collection of that name"):
        create_store(tmp_path, ADDRESS, SHAPE, "a model")
    with pytest.raises(DataError, match="another model's vectors"):
        open_store(tmp_path, ADDRESS, SHAPE, "another")
    with pytest.raises(DataError, match="rows of other sizes"):
        open_store(tmp_path, ADDRESS, Shape(3, 16, None), "a model")
    monkeypatch.setattr("triptych.search.qdrant_rows.point_id", lambda _: 7)
    monkeypatch.setattr("triptych.search.qdrant_store.point_id", lambda _: 7)
    store.put(rows(np.arange(1), 1).select(SHAPE.schema().names))
    with pytest.raises(DataError, match='"image 0" and "image 1" share a point'):
        store.put(rows(np.arange(1, 2), 1).select(SHAPE.schema().names))


@pytest.mark.parametrize(
    "address",
    ["qdrant://", "qdrant://host", "qdrant://host:6333", "qdrant://host:6333/a/b", "qdrant://u:p@host/c"],
)
def test_wrong_addresses_of_qdrant(address: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="an address of Qdrant is"):
        open_store(tmp_path, address, SHAPE, "a model")


@pytest.mark.parametrize("address", ["http://host", "elsewhere", "/srv/store", ""])
def test_other_addresses_are_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a store is s3://"):
        create_store(tmp_path, address, SHAPE, "a model")


def test_a_server_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        unused_port = free.getsockname()[1]
    with pytest.raises(DataError, match="the store does not answer") as caught:
        open_store(tmp_path, f"qdrant://127.0.0.1:{unused_port}/gallery", SHAPE, "a model")
    assert f"127.0.0.1:{unused_port}" in str(caught.value)
