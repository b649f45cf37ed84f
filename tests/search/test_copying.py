"""A gallery is copied between stores, whole, and gone on with where it was stopped."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from triptych.errors import DataError, UsageError
from triptych.search import Gallery, Query, find_pictures, index_images
from triptych.search.columns import ID
from triptych.search.copying import copy_gallery
from triptych.search.verify import verify

QUERIES = [
    Query.of(image="plain-large-red-circle", text="make it blue", top=10),
    Query.of(text="a green square", where="large = true AND colour != 'red'", top=10),
    Query.of(
        image="plain-large-red-circle", text="square", where="price IS NULL OR colour LIKE 'b%'", top=10
    ),
]
QDRANT = "qdrant://shop.example:6333/shop"


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """An S3-compatible server in a process of its own, with a bucket."""
    pytest.importorskip("moto.server", reason="object storage is tested on moto's server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"AWS_ENDPOINT": url, "AWS_ALLOW_HTTP": "true", **keys}.items():
            patch.setenv(name, value)
        for _ in range(300):
            try:
                urllib.request.urlopen(urllib.request.Request(f"{url}/shop", method="PUT"), timeout=5)
                break
            except OSError:
                time.sleep(0.1)
        yield "s3://shop"
    server.kill()
    server.wait()


@pytest.fixture
def qdrant(monkeypatch: pytest.MonkeyPatch) -> str:
    """An address that Qdrant's client answers in this process."""
    client = pytest.importorskip("qdrant_client", reason="a gallery on Qdrant needs its client").QdrantClient(
        ":memory:"
    )
    monkeypatch.setattr(
        "triptych.search.qdrant_store.connect", lambda place: (client, place.rsplit("/", 1)[1])
    )
    return QDRANT


pytestmark = [
    pytest.mark.filterwarnings("ignore:Payload indexes have no effect:UserWarning"),
    pytest.mark.filterwarnings("ignore:Local mode performs exact:UserWarning"),
]


@pytest.mark.parametrize("kind", ["folder", "bucket", "qdrant"])
def test_a_copy_answers_as_its_source(
    kind: str,
    request: pytest.FixtureRequest,
    own_gallery: Path,
    engine_of: Callable[..., Any],
    tmp_path: Path,
) -> None:
    store = None if kind == "folder" else request.getfixturevalue(kind)
    store = f"{store}/copies/one" if kind == "bucket" else store
    source = Gallery.open(own_gallery)
    (own_gallery / "feedback.jsonl").write_text('{"id": "1"}\n')
    seen: list[tuple[int, int]] = []
    copy = copy_gallery(source, tmp_path / "copy", store=store, progress=lambda *at: seen.append(at))
    assert seen[-1] == (48, 48)
    assert (tmp_path / "copy" / "store").exists() == (store is None)
    assert (tmp_path / "copy" / "feedback.jsonl").read_text() == '{"id": "1"}\n'
    same_rows(source, copy)
    same_answers(engine_of(own_gallery), engine_of(tmp_path / "copy"))
    assert verify(Gallery.open(tmp_path / "copy")).clean
    assert dict(copy.status().metadata) == dict(source.status().metadata)

    with source.writing():  # what has changed since is brought over by the same call
        source.remove(["plain-large-red-circle"])
        source.put(pa.table({ID: ["plain-large-red-square"], "colour": ["mauve"]}))
    again = copy_gallery(source, tmp_path / "copy", store=store)
    assert len(again) == 47
    same_rows(source, again)
    if store is not None:
        with pytest.raises(UsageError, match="choose another"):
            copy_gallery(source, tmp_path / "third", store=store)


def same_rows(one: Gallery, two: Gallery) -> None:
    names = one.schema.names
    assert sorted(two.schema.names) == sorted(names)
    rows = [sorted(found.read(names).to_pylist(), key=lambda row: str(row[ID])) for found in (one, two)]
    assert rows[0] == rows[1]


def same_answers(one: Any, two: Any) -> None:
    for query in QUERIES:
        found, same = one.search(query), two.search(query)
        assert [hit.image_id for hit in found.hits] == [hit.image_id for hit in same.hits]
        assert [hit.score for hit in found.hits] == pytest.approx([hit.score for hit in same.hits], abs=1e-3)
        assert [hit.metadata for hit in found.hits] == [hit.metadata for hit in same.hits]
        assert (found.method, found.scored) == (same.method, same.scored)


def test_what_cannot_be_copied(own_gallery: Path, tmp_path: Path) -> None:
    source = Gallery.open(own_gallery)
    with pytest.raises(UsageError, match="onto itself"):
        copy_gallery(source, own_gallery)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.txt").write_text("a")
    with pytest.raises(UsageError, match="there is something else here"):
        copy_gallery(source, tmp_path / "full")
    copy_gallery(source, tmp_path / "copy")
    with pytest.raises(UsageError, match="are at the folder itself, not at s3://shop/g"):
        copy_gallery(source, tmp_path / "copy", store="s3://shop/g")
    config = tmp_path / "copy" / "gallery.json"
    found = json.loads(config.read_text())
    config.write_text(json.dumps({**found, "model": {"name": "x", "fingerprint": "0" * 64}}))
    with pytest.raises(DataError, match='was made by another model, "x"'):
        copy_gallery(source, tmp_path / "copy")


def test_pictures_are_indexed_into_a_bucket(
    bucket: str,
    model: Any,
    tiny_benchmark: Path,
    engine_of: Callable[..., Any],
    gallery_folder: Path,
    tmp_path: Path,
) -> None:
    from triptych.search.sharding import Part, index_shard

    store = f"{bucket}/indexed/here"
    gallery = Gallery.create(tmp_path / "g", model, "tiny", store=store)
    pictures = find_pictures(tiny_benchmark / "images").items
    assert index_images(gallery, model, pictures).added == 48
    assert index_images(Gallery.open(tmp_path / "g"), model, pictures).same == 48
    query = Query.of(image="plain-large-red-circle", text="make it blue", top=10)
    ids = [
        [hit.image_id for hit in engine_of(folder).search(query).hits]
        for folder in (tmp_path / "g", gallery_folder)
    ]
    assert ids[0] == ids[1]
    with gallery.writing():
        gallery.compact(forget=True)
    assert gallery.status().bytes
    with pytest.raises(UsageError, match="its rows are at s3://"):
        index_shard(gallery, model, pictures, Part(1, 2))


def test_a_bucket_that_does_not_answer_is_named(
    own_gallery: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "AWS_ENDPOINT": "http://127.0.0.1:9",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(DataError, match="the store does not answer"):
        copy_gallery(Gallery.open(own_gallery), tmp_path / "copy", store="s3://shop/g")
    assert not (tmp_path / "copy" / "gallery.json").exists()
