"""What there is, page by page, and where the model looked, over HTTP."""

from typing import Any

import pytest

CIRCLE = "plain-large-red-circle"


def test_what_there_is(client: Any) -> None:
    body = client.get("/v1/gallery").json()
    assert body["gallery"]["images"] == body["looked_at"] == 48
    assert [(column["name"], column["kind"]) for column in body["columns"]] == [
        ("colour", "text"),
        ("price", "number"),
        ("large", "truth value"),
    ]
    assert body["columns"][0]["values"][0] == {"value": "blue", "images": 16}
    assert (body["writable"], body["feedback_refused"], body["attention_refused"]) == (False, None, None)
    assert body["limits"]["images"] == 8


def test_pages(client: Any) -> None:
    first = client.get("/v1/images", params={"limit": 20, "where": "large = true"}).json()
    assert (first["total"], len(first["images"])) == (24, 20)
    second = client.get(
        "/v1/images", params={"limit": 20, "where": "large = true", "after": first["after"]}
    ).json()
    assert (len(second["images"]), second["after"]) == (4, None)
    ids = [image["id"] for image in first["images"] + second["images"]]
    assert ids == sorted(ids)
    assert client.get(first["images"][0]["thumbnail"]).headers["content-type"] == "image/jpeg"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"limit": 201}, "limit: Input should be less than or equal to 200"),
        ({"limit": 0}, "limit"),
        ({"skip": -1}, "skip"),
        ({"where": "size = 3"}, 'no column "size"'),
        ({"after": "x" * 600}, "after"),
    ],
)
def test_pages_that_cannot_be(params: dict[str, Any], message: str, client: Any) -> None:
    response = client.get("/v1/images", params=params)
    assert response.status_code == 422
    assert message in response.json()["message"]


def test_a_thumbnail_is_sent_once(client: Any) -> None:
    first = client.get(f"/v1/images/{CIRCLE}")
    again = client.get(f"/v1/images/{CIRCLE}", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = client.get(f"/v1/images/{CIRCLE}", headers={"If-None-Match": '"other"'})
    assert other.content == first.content


def test_where_the_model_looked(client: Any) -> None:
    query = {"images": [{"id": CIRCLE}], "texts": [{"text": "make it blue"}]}
    body = client.post("/v1/attention", json=query).json()
    assert [one["word"] for one in body["words"]] == ["make", "it", "blue"]
    assert sum(sum(row) for row in body["regions"]) == pytest.approx(1, abs=1e-3)
    assert body["part"] == [0, 0, 1, 1]
    missing = client.post("/v1/attention", json={"images": [{"id": "gone"}], "texts": [{"text": "red"}]})
    assert missing.status_code == 404
    alone = client.post("/v1/attention", json={"texts": [{"text": "red"}]})
    assert alone.status_code == 422
    assert "one reference picture with one text" in alone.json()["message"]
