"""The service over HTTP: the same answers as the engine, and a good reason for every refusal."""

import io
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from triptych.search import GalleryEngine, Query
from triptych.triplets import read_benchmark

CIRCLE, SQUARE = "plain-large-red-circle", "plain-large-blue-square"


def by_id(image_id: str = CIRCLE, text: str = "make it blue", **rest: Any) -> dict[str, Any]:
    return {"images": [{"id": image_id}], "texts": [{"text": text}], **rest}


def found(response: Any) -> list[str]:
    assert response.status_code == 200, response.text
    return [hit["id"] for hit in response.json()["hits"]]


def refused(response: Any, status: int) -> str:
    assert response.status_code == status, response.text
    body = response.json()
    assert set(body) == {"error", "message", "mend"}
    assert "Traceback" not in response.text
    return str(body["message"])


def test_json_gives_what_the_engine_gives(client: Any, gallery_folder: Path, tiny_model: Any) -> None:
    query = by_id(where="large = true", top=4)
    response = client.post("/v1/search", json=query)
    engine = GalleryEngine(gallery_folder, model=tiny_model)
    answer = engine.search(Query.model_validate(query))
    body = response.json()
    assert found(response) == [hit.image_id for hit in answer.hits]
    assert body["hits"][0]["score"] == pytest.approx(answer.hits[0].score, abs=1e-5)
    assert body["hits"][0]["vector"] == answer.hits[0].vector
    assert body["hits"][0]["metadata"] == answer.hits[0].metadata
    assert body["model"] == {"name": "tiny model", "fingerprint": answer.fingerprint}
    assert body["gallery"] == {"version": answer.version, "images": 48}
    assert (body["method"], body["scored"]) == ("exact", 24)


def test_a_form_gives_the_same(client: Any, tiny_benchmark: Path) -> None:
    data = (tiny_benchmark / "images" / f"{CIRCLE}.png").read_bytes()
    expected = found(client.post("/v1/search", json=by_id(top=5)))
    fields = {"text": "make it blue", "top": "5"}
    assert found(client.post("/v1/search", data=fields, files={"image": ("r.png", data)})) == expected
    whole = json.dumps({"images": [{"upload": 0}], "texts": [{"text": "make it blue"}], "top": 5})
    assert (
        found(client.post("/v1/search", data={"query": whole}, files={"image": ("r.png", data)})) == expected
    )
    with_id = {**fields, "id": CIRCLE, "where": "large = true"}
    only_id = client.post("/v1/search", data=with_id, files={"x": ("x", b"")})
    assert found(only_id) == found(client.post("/v1/search", json=by_id(top=5, where="large = true")))


def test_turns_and_minus_over_http(client: Any, gallery_folder: Path, tiny_model: Any) -> None:
    query = Query.of(text="red circle", minus="square").then(image=CIRCLE, text="but blue")
    answer = GalleryEngine(gallery_folder, model=tiny_model).search(query)
    response = client.post(
        "/v1/search", content=query.model_dump_json(), headers={"content-type": "application/json"}
    )
    assert found(response) == [hit.image_id for hit in answer.hits]


def test_thumbnails(client: Any) -> None:
    response = client.get(f"/v1/images/{CIRCLE}")
    assert response.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(response.content)).size == (64, 64)
    hit = client.post("/v1/search", json=by_id()).json()["hits"][0]
    assert client.get(hit["thumbnail"]).status_code == 200
    assert 'no image "gone"' in refused(client.get("/v1/images/gone"), 404)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({}, 422, "needs a reference picture, a text, or both"),
        ({"texts": [{"text": "  "}]}, 422, "needs a reference picture"),
        (
            {"texts": [{"text": "x" * 10_000}]},
            422,
            "texts.0.text: String should have at most 2000 characters",
        ),
        ({"texts": []}, 422, "needs a reference picture"),
        (by_id("gone"), 404, 'there is no image "gone" in the gallery'),
        (by_id(where="colr = 'red'"), 422, 'no column "colr"; a filter may name: colour (text)'),
        (by_id(where="id = 'a'; DROP TABLE images"), 422, "the filter cannot be read: at character 9"),
        (by_id(where="1=1 UNION SELECT * FROM images"), 422, "the filter cannot be read"),
        (by_id(where="'a' = 'a' OR price > 0"), 422, "expected a column"),
        (by_id(top=0), 422, "top: Input should be greater than or equal to 1"),
        (by_id(top=10**9), 422, "top"),
        (by_id(carry="NaN"), 422, "carry"),
        (by_id(extra=1), 422, "extra: Extra inputs are not permitted"),
        ({"images": [{"path": "/etc/passwd"}]}, 422, "images.0.path: Extra inputs are not permitted"),
        ({"images": [{"url": "http://localhost/"}]}, 422, "images.0.url"),
        ({"images": [{"picture": "aGVsbG8="}]}, 422, "images.0.picture"),
        ({"images": [{"upload": 3}]}, 422, "there is no file 3 with the request"),
        ({"images": [{"id": CIRCLE}] * 9}, 422, "images"),
        ({"texts": "red"}, 422, "texts"),
        ([], 422, "request"),
    ],
)
def test_json_that_does_not_fit(body: Any, status: int, message: str, client: Any) -> None:
    assert message in refused(client.post("/v1/search", json=body), status)


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b'"\\ud800"', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"a=1", "application/x-www-form-urlencoded", 415),
        (b"x", "", 415),
        (b"x", "multipart/form-data", 400),
        (b"x", "multipart/form-data; boundary=b", 400),
    ],
)
def test_bodies_that_cannot_be_read(content: bytes, kind: str, status: int, client: Any) -> None:
    refused(client.post("/v1/search", content=content, headers={"content-type": kind}), status)


def test_a_file_name_is_never_opened(client: Any, tiny_benchmark: Path) -> None:
    path = str(tiny_benchmark / "images" / f"{CIRCLE}.png")
    assert "no image" in refused(client.post("/v1/search", json=by_id(path)), 404)
    message = refused(client.post("/v1/search", files={"image": (path, b"not it")}), 415)
    assert "not a picture" in message


REFUSED = {
    "truncated.jpg": 422,
    "zero_bytes.jpg": 422,
    "text_renamed.jpg": 415,
    "broken_data.png": 422,
    "bomb_header.png": 413,
}


def test_awkward_pictures(shared: Path, client: Any) -> None:
    for path in sorted((shared / "data" / "bad-inputs" / "images").iterdir()):
        response = client.post(
            "/v1/search", files={"image": (path.name, path.read_bytes())}, data={"text": "red"}
        )
        if path.name in REFUSED:
            assert path.name in refused(response, REFUSED[path.name])
        else:
            assert len(found(response)) == 10, path.name


def test_limits(serve: Callable[..., Any], gallery_folder: Path, tiny_benchmark: Path) -> None:
    data = (tiny_benchmark / "images" / f"{CIRCLE}.png").read_bytes()
    client = serve(gallery_folder, upload_bytes=2048, pixels=63 * 64, images=2)
    assert "64 x 64 pixels are too many" in refused(
        client.post("/v1/search", files={"image": ("a", data)}), 413
    )
    big = client.post("/v1/search", files={"image": ("a", b"x" * 3000)})
    assert "more than 2,048 bytes" in refused(big, 413)
    huge = client.post("/v1/search", files={"image": ("a", b"x" * 200_000)})
    assert "the request has more than" in refused(huge, 413)

    def pieces() -> Any:
        for _ in range(200):
            yield b" " * 1000

    streamed = client.post("/v1/search", content=pieces(), headers={"content-type": "application/json"})
    assert "the request has more than" in refused(streamed, 413)
    three = client.post("/v1/search", files=[("image", ("a", b"x"))] * 3)
    assert "Too many files" in refused(three, 400)


def test_too_many_at_once_are_told_to_come_back(
    serve: Callable[..., Any], gallery_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve(gallery_folder, in_flight=1)
    inside, leave = threading.Event(), threading.Event()
    engine = client.app.state.service.engine
    embed = engine.embed

    def slow(ready: Any) -> Any:
        inside.set()
        leave.wait(60)
        return embed(ready)

    monkeypatch.setattr(engine, "embed", slow)
    answers: list[Any] = []
    first = threading.Thread(target=lambda: answers.append(client.post("/v1/search", json=by_id())))
    first.start()
    assert inside.wait(60)
    second = client.post("/v1/search", json=by_id())
    assert "1 requests are being answered" in refused(second, 429)
    assert int(second.headers["retry-after"]) >= 1
    assert client.get("/health").status_code == 200
    leave.set()
    first.join()
    assert len(found(answers[0])) == 10
    assert client.post("/v1/search", json=by_id()).status_code == 200


def test_a_request_has_a_deadline(
    serve: Callable[..., Any], gallery_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve(gallery_folder, deadline=0.2)
    leave = threading.Event()
    engine = client.app.state.service.engine
    monkeypatch.setattr(engine, "embed", lambda ready: leave.wait(60))
    late = client.post("/v1/search", json=by_id())
    leave.set()
    assert "longer than 0.2 s" in refused(late, 503)
    assert "retry-after" in late.headers


def test_requests_at_once_are_embedded_together(
    serve: Callable[..., Any], gallery_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve(gallery_folder)
    engine = client.app.state.service.engine
    embed, sizes, leave = engine.embed, [], threading.Event()

    def counted(ready: Any) -> Any:
        sizes.append(len(ready))
        if len(sizes) == 1:
            leave.wait(60)
        return embed(ready)

    monkeypatch.setattr(engine, "embed", counted)
    texts = ["red", "green", "blue", "circle", "square"]
    answers: dict[str, Any] = {}

    def ask(text: str) -> None:
        answers[text] = client.post("/v1/search", json=by_id(text=text))

    threads = [threading.Thread(target=ask, args=(text,)) for text in texts]
    threads[0].start()
    while not sizes:
        pass
    for thread in threads[1:]:
        thread.start()
    waiting = client.app.state.service._batcher._waiting
    while waiting.qsize() < 4:
        pass
    leave.set()
    for thread in threads:
        thread.join()
    assert sizes == [1, 4]
    for text in texts:
        assert found(answers[text]) == found(client.post("/v1/search", json=by_id(text=text)))


def test_one_bad_query_does_not_spoil_its_batch(
    serve: Callable[..., Any], gallery_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    from triptych.server.batching import Batcher

    async def all_of(items: list[int]) -> list[Any]:
        def work(batch: Any) -> list[int]:
            if 3 in batch:
                raise ValueError("three")
            return [item * 10 for item in batch]

        batcher: Batcher[int, int] = Batcher(work, 8)
        batcher.start()
        results = await asyncio.gather(*(batcher(item) for item in items), return_exceptions=True)
        await batcher.stop()
        return results

    results = asyncio.run(all_of([1, 2, 3, 4]))
    assert [results[0], results[1], results[3]] == [10, 20, 40]
    assert isinstance(results[2], ValueError)


def test_writing_needs_the_token(client: Any, serve: Callable[..., Any], own_gallery: Path) -> None:
    files = {"image": ("a.png", b"x")}
    assert "lets nobody write" in refused(client.post("/v1/images", files=files), 403)
    assert refused(client.delete(f"/v1/images/{CIRCLE}"), 403)
    own = serve(own_gallery)
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic x"}):
        response = own.post("/v1/images", files=files, headers=headers)
        assert "the token is missing or wrong" in refused(response, 401)
        assert response.headers["www-authenticate"] == "Bearer"
        assert refused(own.delete(f"/v1/images/{CIRCLE}", headers=headers), 401)
    assert own.get(f"/v1/images/{CIRCLE}").status_code == 200


def test_images_are_added_changed_and_removed(
    serve: Callable[..., Any], own_gallery: Path, token: dict[str, str], tiny_benchmark: Path
) -> None:
    client = serve(own_gallery)
    red, blue = ((tiny_benchmark / "images" / f"{name}.png").read_bytes() for name in (CIRCLE, SQUARE))

    def add(data: bytes, **fields: str) -> Any:
        return client.post("/v1/images", files={"image": ("x.png", data)}, data=fields, headers=token)

    made = add(red, id="neu/ä 1", metadata=json.dumps({"colour": "red", "price": 7})).json()
    assert (made["outcome"], made["id"], made["gallery"]["images"]) == ("added", "neu/ä 1", 49)
    hits = client.post(
        "/v1/search", json={"images": [{"id": CIRCLE}], "keep_references": True, "top": 49}
    ).json()["hits"]
    own = next(hit for hit in hits if hit["id"] == "neu/ä 1")
    assert own["metadata"] == {"colour": "red", "price": 7.0, "large": None}
    assert client.get(own["thumbnail"]).status_code == 200
    assert add(red, id="neu/ä 1").json()["outcome"] == "same"
    assert add(blue, id="neu/ä 1").json()["outcome"] == "changed"
    assert add(blue).json()["outcome"] == "added"  # its id is made of its content
    assert add(blue).json()["outcome"] == "same"
    gone = client.delete("/v1/images/neu%2F%C3%A4%201", headers=token).json()
    assert (gone["outcome"], gone["gallery"]["images"]) == ("removed", 49)
    refused(client.delete("/v1/images/neu%2F%C3%A4%201", headers=token), 404)


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"metadata": '{"size": 3}'}, 422, 'no metadata column "size"; it has: colour, price, large'),
        ({"metadata": '{"price": "cheap"}'}, 422, '"price" holds numbers'),
        ({"metadata": '{"large": 1}'}, 422, '"large" holds truth values'),
        ({"metadata": "[1]"}, 422, "a JSON object is expected"),
        ({"metadata": "{"}, 422, "not valid JSON"),
        ({"id": "x" * 600}, 422, "an id needs 1 to 512 characters"),
        ({"id": "a\x01b"}, 422, "no control characters"),
    ],
)
def test_images_that_are_not_taken(
    fields: dict[str, str],
    status: int,
    message: str,
    serve: Callable[..., Any],
    own_gallery: Path,
    token: dict[str, str],
    tiny_benchmark: Path,
) -> None:
    data = (tiny_benchmark / "images" / f"{CIRCLE}.png").read_bytes()
    client = serve(own_gallery)
    response = client.post("/v1/images", files={"image": ("x.png", data)}, data=fields, headers=token)
    assert message in refused(response, status)
    assert client.get("/ready").json()["gallery"]["images"] == 48


def test_two_writers_at_once(
    serve: Callable[..., Any], own_gallery: Path, token: dict[str, str], tiny_benchmark: Path
) -> None:
    from triptych.search.lock import writing

    client = serve(own_gallery, deadline=2)
    data = (tiny_benchmark / "images" / f"{CIRCLE}.png").read_bytes()
    with writing(own_gallery):
        response = client.post("/v1/images", files={"image": ("x.png", data)}, headers=token)
        assert "another process is writing" in refused(response, 409)
        assert "retry-after" in response.headers
        assert str(own_gallery) not in response.text
    assert client.post("/v1/images", files={"image": ("x.png", data)}, headers=token).status_code == 200


def test_what_others_write_is_seen(serve: Callable[..., Any], own_gallery: Path) -> None:
    import time

    from triptych.search import Gallery

    client = serve(own_gallery, refresh=0.05)
    gallery = Gallery.open(own_gallery)
    with gallery.writing():
        gallery.remove([CIRCLE])
    until = time.monotonic() + 60
    while client.get("/ready").json()["gallery"]["images"] == 48 and time.monotonic() < until:
        time.sleep(0.05)
    refused(client.get(f"/v1/images/{CIRCLE}"), 404)


def test_feedback_is_a_benchmark(serve: Callable[..., Any], own_gallery: Path, tiny_benchmark: Path) -> None:
    client = serve(own_gallery)
    body = {"reference": CIRCLE, "text": "make it blue", "target": SQUARE}
    taken = client.post("/v1/feedback", json=body)
    assert taken.status_code == 200, taken.text
    data = read_benchmark(own_gallery / "feedback.jsonl", images=tiny_benchmark / "images")
    assert data.train.triplet_ids == [taken.json()["triplet_id"]]
    assert (data.train[0].reference, data.train[0].captions, data.train[0].target) == (
        CIRCLE,
        ("make it blue",),
        SQUARE,
    )
    assert "gone" in refused(client.post("/v1/feedback", json={**body, "target": "gone"}), 404)
    assert "text" in refused(client.post("/v1/feedback", json={**body, "text": " \n"}), 422)
    assert "text" in refused(client.post("/v1/feedback", json={**body, "text": "x" * 10_000}), 422)
    refused(client.post("/v1/feedback", json={**body, "path": "/x"}), 422)
    refused(client.post("/v1/feedback", content=b"{", headers={"content-type": "application/json"}), 400)
    assert len((own_gallery / "feedback.jsonl").read_text().splitlines()) == 1


def test_health_ready_metrics_and_unknown_paths(client: Any) -> None:
    assert client.get("/health").json() == {"alive": True}
    ready = client.get("/ready").json()
    assert ready["ready"] is True
    assert ready["gallery"]["images"] == 48
    client.post("/v1/search", json=by_id())
    text = client.get("/metrics").text
    assert 'triptych_requests_total{method="POST",route="/v1/search",status="200"}' in text
    assert "triptych_gallery_images 48.0" in text
    refused(client.get("/v2/search"), 404)
    refused(client.get("/v1/search"), 405)
    assert CIRCLE not in text


def test_a_damaged_table_is_no_traceback(serve: Callable[..., Any], own_gallery: Path) -> None:
    client = serve(own_gallery)
    for path in (own_gallery / "store").rglob("*.lance"):
        if path.is_file():
            path.unlink()
    response = client.get(f"/v1/images/{CIRCLE}")
    message = refused(response, 503)
    assert "missing or damaged" in message
    assert str(own_gallery) not in response.text
