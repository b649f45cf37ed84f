"""The page in a real Chromium: what a user does, compared with what the server answers to the same query."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triptych.search import Gallery, GalleryEngine, Query

CIRCLE, SQUARE = "plain-large-red-circle", "plain-large-blue-square"
PHONE = {"size": (390, 844), "has_touch": True, "is_mobile": True}


@pytest.fixture(scope="module")
def engine(gallery_folder: Path, tiny_model: Any) -> GalleryEngine:
    return GalleryEngine(gallery_folder, model=tiny_model)


def expected(engine: GalleryEngine, query: Query) -> list[str]:
    return [hit.image_id for hit in engine.search(query.model_copy(update={"top": 24})).hits]


def seen(visit: Any, answer: Any) -> list[str]:
    """Return the ids of an answer, having looked that the first tiles show them in that order."""
    ids = [hit["id"] for hit in answer["hits"]]
    shown = visit.ids()
    assert len(shown) >= 5
    assert shown == ids[: len(shown)]
    return ids


def test_search_chain_and_back(
    shop: Any, visit: Callable[..., Any], engine: GalleryEngine, screenshots: Path
) -> None:
    one = visit(shop.url)
    page = one.page
    page.wait_for_selector("#grid .take")
    assert "48 pictures" in page.inner_text("#about")
    assert one.ids()[0] == "plain-large-blue-circle"
    assert page.locator("#grid .tile").first.get_attribute("aria-setsize") == "48"
    one.until("document.querySelector('#grid img').naturalWidth === 64")
    page.screenshot(path=screenshots / "gallery.png")

    one.take(CIRCLE)
    assert page.evaluate("document.activeElement.id") == "text"
    answer = one.search("make it blue")
    first = Query.of(image=CIRCLE, text="make it blue")
    assert seen(one, answer) == expected(engine, first)
    assert page.title().startswith("make it blue")
    page.wait_for_load_state("networkidle")
    page.screenshot(path=screenshots / "results.png")

    best = answer["hits"][0]["id"]
    one.take(best)
    assert one.ids()[0] == best  # the results stay until the change is said
    second = first.then(image=best, text="as a square")
    assert seen(one, one.search("as a square")) == expected(engine, second)
    steps = page.locator("#steps .step")
    assert steps.all_inner_texts() == ["make it blue", "as a square"]
    assert steps.nth(1).get_attribute("aria-current") == "step"

    page.click("#back")  # undoes the search
    one.until("document.querySelectorAll('#steps .step').length === 1")
    assert one.ids()[:5] == expected(engine, first)[:5]
    page.go_back()  # undoes the choice of the next reference
    one.until("document.querySelector('#text').value === 'make it blue'")
    assert page.locator(".reference img").get_attribute("alt") == f"Reference {CIRCLE}"
    page.go_forward()
    page.go_forward()
    one.until("document.querySelectorAll('#steps .step').length === 2")
    assert one.ids()[:5] == expected(engine, second)[:5]
    assert sum(line == "POST v1/search" for line in one.asked) == 2  # going back asks nothing again

    one.page.reload()  # the address and the history hold the whole chain
    page.wait_for_selector("#grid .score")
    assert one.ids()[:5] == expected(engine, second)[:5]
    other = visit(shop.url, address=page.url)
    other.page.wait_for_selector("#grid .score")
    assert other.ids()[:5] == expected(engine, second)[:5]
    one.answered(steps.first.click)
    assert steps.count() == 1
    assert one.ids()[:5] == expected(engine, first)[:5]
    page.click("#restart")
    one.until("document.querySelector('#title').textContent === 'Gallery'")
    assert not page.is_visible("#chain")
    assert page.locator(".reference").count() == 0


def test_filter_minus_and_weights(shop: Any, visit: Callable[..., Any], engine: GalleryEngine) -> None:
    one = visit(shop.url)
    page = one.page
    page.click("#filter")
    page.get_by_label("red 16").check()
    one.until("document.querySelector('#subtitle').textContent.startsWith('16 pictures pass')")
    assert {image_id.split("-")[2] for image_id in one.ids()} == {"red"}
    page.get_by_label("price from").fill("5")
    one.until("document.querySelector('#subtitle').textContent.startsWith('12 pictures pass')")
    page.get_by_label("large", exact=True).select_option("yes")
    one.until("document.querySelector('#subtitle').textContent.startsWith('6 pictures pass')")
    assert page.inner_text("#filter") == "Filter (3)"
    where = '"colour" IN (\'red\') AND "price" >= 5 AND "large" = TRUE'
    page.click("#filter")
    one.take("plain-large-red-square")
    ids = seen(one, one.search("as a circle"))
    query = Query.of(image="plain-large-red-square", text="as a circle", where=where)
    assert ids == expected(engine, query)
    with page.expect_response("**/v1/search"):
        page.get_by_role("button", name="Remove the filter price from 5").click()

    page.click("summary")
    page.fill("#minus", "circle")
    page.fill("#minus-weight", "1.5")
    assert page.inner_text("#minus-weight-value") == "1.5"
    answer = one.answered(lambda: page.click("#go"))
    where = where.replace(' AND "price" >= 5', "")
    assert seen(one, answer) == expected(
        engine,
        Query.of(
            image="plain-large-red-square", text="as a circle", minus="circle", where=where, minus_weight=1.5
        ),
    )
    assert page.inner_text("#steps .step") == "as a circle, not circle"

    page.get_by_role("button", name="Add tinted-large-red-square as one more").click()
    weights = page.locator(".weight input")
    assert weights.count() == 2
    weights.nth(1).fill("3")
    body = {}
    page.on(
        "request",
        lambda request: body.update(request.post_data_json or {}) if "search" in request.url else None,
    )
    one.answered(lambda: page.click("#go"))
    assert [(image["id"], image["weight"]) for image in body["images"]] == [
        ("plain-large-red-square", 1),
        ("tinted-large-red-square", 3),
    ]
    page.get_by_label("price from").fill("1000") if page.is_visible("#filters") else page.click("#filter")
    page.get_by_label("price from").fill("1000")
    page.wait_for_selector("#empty:not([hidden])")
    assert "Nothing was found" in page.inner_text("#empty")
    page.get_by_role("button", name="Remove the filter", exact=True).click()
    page.wait_for_selector("#grid .score")


def test_upload(
    start: Callable[..., Any],
    visit: Callable[..., Any],
    engine: GalleryEngine,
    gallery_folder: Path,
    tiny_benchmark: Path,
    tmp_path: Path,
) -> None:
    one = visit(start(gallery_folder, upload_bytes=2**19).url, refusals=True)
    page = one.page
    picture = tiny_benchmark / "images" / f"{CIRCLE}.png"
    page.set_input_files("#file", picture)
    page.wait_for_selector(".reference canvas")
    red = page.evaluate(
        "[...document.querySelector('.reference canvas').getContext('2d').getImageData(32, 32, 1, 1).data]"
    )
    assert red == [255, 0, 0, 255]
    answer = one.search("make it blue")
    assert seen(one, answer) == expected(engine, Query.of(image=picture, text="make it blue"))
    assert "yours is not in it" in page.inner_text("#feedback-note")
    assert page.locator(".judge").count() == 0
    page.click("#mattered")
    page.wait_for_selector(".veil")  # of a picture that only this query brought
    assert page.locator(".looked canvas").count() == 2

    page.reload()
    page.wait_for_selector("#problem:not([hidden])")
    assert "the page was loaded again" in page.inner_text("#problem")

    note = tmp_path / "note.png"
    note.write_text("not a picture")
    page.click("#restart")
    page.set_input_files("#file", note)
    page.wait_for_selector(".reference")
    assert page.inner_text(".reference .unseen") == "no preview"
    page.fill("#text", "red")
    page.press("#text", "Enter")
    page.wait_for_selector("#problem:not([hidden])")
    assert "note.png: this is not a picture that can be read" in page.inner_text("#problem")
    assert "Use one of" in page.inner_text("#problem")
    page.set_input_files("#file", {"name": "big.png", "mimeType": "image/png", "buffer": b"x" * 2**20})
    one.until(
        "document.querySelector('#hint').textContent.includes('1.0 MiB; the server takes 0.5 MiB at most')"
    )


def test_drop(shop: Any, visit: Callable[..., Any], tiny_benchmark: Path) -> None:
    one = visit(shop.url)
    page = one.page
    data = list((tiny_benchmark / "images" / f"{SQUARE}.png").read_bytes())
    page.evaluate(
        """bytes => {
            const files = new DataTransfer();
            files.items.add(new File([new Uint8Array(bytes)], "dropped.png", { type: "image/png" }));
            for (const kind of ["dragover", "drop"])
                document.body.dispatchEvent(
                    new DragEvent(kind, { dataTransfer: files, bubbles: true, cancelable: true }));
        }""",
        data,
    )
    page.wait_for_selector(".reference canvas")
    assert page.inner_text(".reference figcaption") == "dropped.png"
    answer = one.answered(lambda: page.click("#go"))  # no text: pictures like it
    assert SQUARE not in [hit["id"] for hit in answer["hits"]]
    assert page.inner_text("#steps .step") == "similar pictures"


def test_feedback(shop: Any, visit: Callable[..., Any]) -> None:
    one = visit(shop.url)
    page = one.page
    page.wait_for_selector("#grid .take")
    one.take(CIRCLE)
    hits = one.search("make it green")["hits"]
    for place, word in ((0, "right"), (2, "wrong")):
        with page.expect_response("**/v1/feedback") as response:
            page.get_by_role("button", name=f"{hits[place]['id']} is {word}", exact=True).click()
        assert response.value.status == 200
        page.wait_for_selector(f".tile:nth-child({place + 1}) .judge[aria-pressed=true]")
    one.until("document.querySelector('#status').textContent.startsWith('Noted')")
    for name, place in (("feedback.jsonl", 0), ("rejected.jsonl", 2)):
        triplet = json.loads((shop.folder / name).read_text().splitlines()[-1])
        assert {key: triplet[key] for key in ("reference", "text", "target")} == {
            "reference": CIRCLE,
            "text": "make it green",
            "target": hits[place]["id"],
        }
    assert page.locator(".judge:disabled").count() == 4


def test_a_gallery_that_takes_no_feedback_says_so(
    start: Callable[..., Any], visit: Callable[..., Any], own_gallery: Path
) -> None:
    (own_gallery / "feedback.jsonl").write_text(" " * 2000)
    one = visit(start(own_gallery, feedback_bytes=1024).url)
    one.page.wait_for_selector("#feedback-note:not([hidden])")
    assert "has reached its 1,024 bytes" in one.page.inner_text("#feedback-note")
    assert "read only" in one.page.inner_text("#about")
    one.take(CIRCLE)
    one.search("make it blue")
    assert "has reached its 1,024 bytes" in one.page.inner_text("#feedback-note")
    assert one.page.locator(".judge").count() == 0


def test_attention(shop: Any, visit: Callable[..., Any], screenshots: Path) -> None:
    one = visit(shop.url)
    page = one.page
    page.wait_for_selector("#grid .take")
    one.take(CIRCLE)
    one.search("make it blue")
    with page.expect_response("**/v1/attention") as response:
        page.click("#mattered")
    answer = response.value.json()
    page.wait_for_selector(".veil")
    words = page.locator("#attention .words li")
    assert words.all_inner_texts() == [
        f"{one['word']}\n{round(100 * one['share'])} %" for one in answer["words"]
    ]
    assert [one["word"] for one in answer["words"]] == ["make", "it", "blue"]
    alpha = page.evaluate(
        "(() => { const veil = document.querySelector('.veil'); const side = veil.width;"
        " const data = veil.getContext('2d').getImageData(0, 0, side, side).data;"
        " return [...Array(side * side).keys()].map((place) => data[4 * place + 3]); })()"
    )
    shares = [share for row in answer["regions"] for share in row]
    assert len(alpha) == len(shares) == 25
    assert alpha[shares.index(max(shares))] == 0  # nothing lies over what was read most
    assert alpha.index(max(alpha)) == shares.index(min(shares))
    assert page.get_attribute("#mattered", "aria-expanded") == "true"
    page.screenshot(path=screenshots / "attention.png")
    page.click("#mattered")
    assert not page.is_visible("#attention")


def test_slow_and_failing_searches(
    start: Callable[..., Any], visit: Callable[..., Any], gallery_folder: Path, screenshots: Path
) -> None:
    shop = start(gallery_folder, deadline=1.5)
    engine = shop.app.state.service.engine
    embed, leave = engine.embed, threading.Event()
    one = visit(shop.url, refusals=True)
    page = one.page
    page.wait_for_selector("#grid .take")
    engine.embed = lambda ready: leave.wait(60) and embed(ready)
    one.take(CIRCLE)
    page.fill("#text", "make it blue")
    page.click("#go")
    page.wait_for_selector("#progress:not([hidden])")
    assert page.inner_text("#progress-text").startswith("Searching")
    assert page.locator("#grid .tile").count() > 5  # what was there stays
    page.click("#cancel")
    page.wait_for_selector("#progress", state="hidden")
    assert page.inner_text("#title") == "Gallery"
    assert page.input_value("#text") == "make it blue"
    page.click("#go")
    page.wait_for_selector("#problem:not([hidden])")
    assert "the request took longer than 1.5 s" in page.inner_text("#problem")
    assert page.get_by_role("button", name="Dismiss").count() == 0  # nothing else is to be seen
    page.screenshot(path=screenshots / "problem.png")
    leave.set()
    one.answered(lambda: page.get_by_role("button", name="Try again").click())
    assert not page.is_visible("#problem")

    page.route("**/v1/search", lambda route: route.abort())
    page.fill("#text", "make it green")
    page.press("#text", "Enter")
    page.wait_for_selector("#problem:not([hidden])")
    assert "The server does not answer" in page.inner_text("#problem")
    page.unroute("**/v1/search")
    state = {"turns": [{"images": [{"id": "gone"}], "text": "red"}], "view": "results"}
    page.evaluate("state => { location.hash = encodeURIComponent(JSON.stringify(state)); }", state)
    one.until("document.querySelector('#problem').textContent.includes('no image \"gone\" in the gallery')")


def test_nothing_to_say_and_nothing_to_show(
    shop: Any, start: Callable[..., Any], visit: Callable[..., Any], tiny_model: Any, tmp_path: Path
) -> None:
    one = visit(shop.url)
    one.page.click("#go")
    assert "Choose a picture, or say what to find" in one.page.inner_text("#hint")
    Gallery.create(tmp_path / "empty", tiny_model, "tiny model")
    other = visit(start(tmp_path / "empty").url)
    other.page.wait_for_selector("#empty:not([hidden])")
    assert "This gallery is empty" in other.page.inner_text("#empty")
    assert "triptych index" in other.page.inner_text("#empty")


def test_by_keyboard_alone(shop: Any, visit: Callable[..., Any]) -> None:
    one = visit(shop.url)
    page = one.page
    page.wait_for_selector("#grid .take")
    page.keyboard.press("Tab")
    assert page.inner_text(":focus") == "Skip to the pictures"
    page.keyboard.press("Enter")
    one.until("document.activeElement.id === 'found'")
    assert page.url == shop.url  # another address would be another state, and the gallery be loaded again
    for _ in range(5):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('take')"):
            break
    first = page.get_attribute(":focus", "aria-label")
    page.keyboard.press("ArrowRight")
    assert page.get_attribute(":focus", "aria-label") != first
    page.keyboard.press("End")
    one.until("document.activeElement.closest('li')?.dataset.place === '47'")
    assert page.evaluate("document.activeElement.getBoundingClientRect().bottom <= innerHeight")
    page.keyboard.press("Home")
    assert page.get_attribute(":focus", "aria-label") == first
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "text"
    page.keyboard.type("make it red/blue")
    one.answered(lambda: page.keyboard.press("Enter"))
    one.until("document.querySelector('#status').textContent.includes('results')")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "text"


def test_on_a_phone(shop: Any, visit: Callable[..., Any], screenshots: Path) -> None:
    one = visit(shop.url, **PHONE)
    page = one.page
    page.wait_for_selector("#grid .take")
    page.screenshot(path=screenshots / "phone-gallery.png")
    page.tap(f'.take[aria-label^="Take {one.ids()[1]} as"]')
    one.search("make it green and as large as it was before")
    page.wait_for_load_state("networkidle")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    left = page.evaluate(
        "new Set([...document.querySelectorAll('.tile')].map((tile) => tile.getBoundingClientRect().left)).size"
    )
    assert left == 2
    assert page.evaluate("document.querySelector('.tile').getBoundingClientRect().top < innerHeight")
    small = page.evaluate(
        "[...document.querySelectorAll('button, select, textarea, summary')]"
        ".filter((one) => one.offsetHeight > 1 && one.offsetHeight < 24).map((one) => one.outerHTML)"
    )
    assert small == []
    page.screenshot(path=screenshots / "phone-results.png")


def test_whatever_is_in_the_gallery_stays_text(
    start: Callable[..., Any], visit: Callable[..., Any], own_gallery: Path, tiny_benchmark: Path
) -> None:
    from fastapi.testclient import TestClient

    name = "<img src=x onerror=alert(1)> 'ä'/1?#"
    shop = start(own_gallery, token="a-token-of-some-length")
    data = (tiny_benchmark / "images" / f"{CIRCLE}.png").read_bytes()
    client = TestClient(shop.app)
    metadata = json.dumps({"colour": "</script><b>o'red</b>"})
    answer = client.post(
        "/v1/images",
        files={"image": ("a.png", data)},
        data={"id": name, "metadata": metadata},
        headers={"Authorization": "Bearer a-token-of-some-length"},
    )
    assert answer.status_code == 200, answer.text
    one = visit(shop.url)
    page = one.page
    page.wait_for_selector("#grid .take")
    assert one.ids()[0] == name
    assert page.inner_text(".tile:first-child .facts") == "</script><b>o'red</b>"
    one.until("document.querySelector('#grid img').naturalWidth === 64")
    page.click("#filter")
    page.get_by_label("</script><b>o'red</b> 1").check()
    one.until("document.querySelector('#subtitle').textContent.startsWith('1 picture pass')")
    page.locator("#grid .take").first.click()
    assert page.inner_text(".reference figcaption") == name
