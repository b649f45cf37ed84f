"""The page for review in a real headless Chromium, from a file, with 20,000 suspects."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from triptych.audit.changes import read_decisions
from triptych.audit.report import QUALITY, SIDE, suspects_of, write_report
from triptych.audit.summary import summarise
from triptych.audit.verdicts import SCHEMA, Verdicts
from triptych.triplets import ImageStore
from triptych.triplets.thumbnail import thumbnail_data_uri

HOSTILE = "</script><script>document.title='hacked'</script><img src=x onerror=\"document.title='hacked'\">"


def made_up(count: int, flagged: int) -> Verdicts:
    scores = np.linspace(0.01, 0.49, flagged).tolist() + [0.9] * (count - flagged)
    corners = [("target", "text", "reference")[n % 3] if n < flagged else None for n in range(count)]
    rows = [
        {
            "triplet_id": f"t{n}",
            "category": f"c{n % 4}",
            "reference": f"p{n % 3}",
            "captions": [HOSTILE if n == 0 else f"is number {n}"],
            "target": f"p{(n + 1) % 3}",
            "score": scores[n],
            "flagged": n < flagged,
            "corner": corners[n],
            "p_reference": 0.1,
            "p_text": 0.1,
            "p_target": 0.1,
            "rules": [],
            "reasons": [],
            "better_targets": ["p0", "p2"] if corners[n] == "target" else [],
            "better_texts": [["is better"]] if corners[n] == "text" else [],
            "better_references": [],
            "asked": True,
            "disagreement": 0.0,
            "evidence": None,
        }
        for n in range(count)
    ]
    return Verdicts(
        pa.Table.from_pylist(rows, schema=SCHEMA), {"data": "shop", "fingerprint": f"print{count}"}
    )


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> ImageStore:
    folder = tmp_path_factory.mktemp("pictures")
    for number, colour in enumerate(("red", "green", "blue")):
        Image.new("RGB", (20, 20), colour).save(folder / f"p{number}.png")
    return ImageStore.open(folder)


def test_only_suspects_are_shown_worst_first() -> None:
    verdicts = made_up(10, 4)
    assert [suspect["id"] for suspect in suspects_of(verdicts)] == ["t0", "t1", "t2", "t3"]


def test_the_page_holds_all_it_shows(pictures: ImageStore, tmp_path: Path) -> None:
    verdicts = made_up(10, 4)
    text = write_report(tmp_path / "r.html", verdicts, summarise(verdicts), pictures).read_text()
    assert HOSTILE not in text
    assert "http" not in text.split("<body>")[1]
    assert text.count("data:image/jpeg;base64,") == 3
    assert "<noscript><h2>Suspects" in text


def test_pictures_stop_at_the_limit_and_the_page_says_so(pictures: ImageStore, tmp_path: Path) -> None:
    verdicts = made_up(10, 4)
    one = len(thumbnail_data_uri(pictures.load("p0"), SIDE, quality=QUALITY))
    page = write_report(tmp_path / "r.html", verdicts, summarise(verdicts), pictures, pictures_bytes=one + 10)
    text = page.read_text()
    assert "2 pictures are left out" in text
    assert text.count("data:image/jpeg;base64,") == 1


@pytest.fixture(scope="module")
def large(pictures: ImageStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    verdicts = made_up(20_050, 20_000)
    return write_report(
        tmp_path_factory.mktemp("page") / "report.html", verdicts, summarise(verdicts), pictures
    )


def test_review_by_keyboard_of_20000_suspects(browser: Any, large: Path, tmp_path: Path) -> None:
    context = browser.new_context(accept_downloads=True)
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "request", lambda request: complaints.extend([request.url] if request.url.startswith("http") else [])
    )
    page.goto(large.as_uri())
    assert page.title() == "Audit of shop"
    assert page.locator(".suspect").count() == 10
    assert page.locator("#where").inner_text() == "1 to 10 of 20000"
    assert HOSTILE in page.locator(".suspect").first.inner_text()
    assert page.evaluate("document.querySelectorAll('*').length") < 3000
    assert page.evaluate("document.querySelector('img').naturalWidth") == 20
    for key in ("d", "k", "s"):
        page.keyboard.press(key)
    assert page.locator(".suspect").nth(3).get_attribute("class") == "suspect current"
    page.keyboard.press("2")
    page.keyboard.press("f")  # t3: the second proposal
    page.keyboard.press("ArrowRight")
    assert page.locator("#where").inner_text() == "11 to 20 of 20000"
    spent = page.evaluate(
        "() => { const start = performance.now(); const kind = document.getElementById('kind');"
        " kind.value = 'text'; kind.dispatchEvent(new Event('change')); return performance.now() - start; }"
    )
    assert spent < 3000
    assert page.locator("#where").inner_text() == "1 to 10 of 6667"
    page.reload()
    assert page.locator(".suspect").first.get_attribute("data-decision") == "drop"  # kept in the browser
    with page.expect_download() as download:
        page.keyboard.press("e")
    path = tmp_path / "decisions.json"
    download.value.save_as(path)
    decided = read_decisions(path)
    choices = {name: made.choice for name, made in decided.items()}
    assert choices == {"t0": "drop", "t1": "keep", "t2": "skip", "t3": "fix"}
    assert (decided["t3"].field, decided["t3"].value) == ("target", "p2")
    assert json.loads(path.read_text())["fingerprint"] == "print20050"
    assert complaints == []
    context.close()


def test_without_javascript_there_is_a_table(browser: Any, large: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(large.as_uri())
    assert not page.locator("#review").is_visible()
    assert page.locator("noscript tbody tr").count() == 2000
    assert page.locator("noscript tbody tr").first.inner_text().startswith("t0")
    context.close()
