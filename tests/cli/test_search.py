"""``triptych search``."""

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

REFERENCE = "plain-large-red-circle"


def test_hits_are_printed_best_first(triptych, tiny_run: Path) -> None:
    asked = ("search", tiny_run, "--reference", REFERENCE, "--text", "make it blue", "--top", 3)
    outcome = triptych(*asked)
    assert outcome.code == 0, outcome.err
    hits = json.loads(triptych(*asked, "--json").out)["hits"]
    assert [hit["rank"] for hit in hits] == [1, 2, 3]
    places = [outcome.out.index(hit["image_id"]) for hit in hits]
    assert places == sorted(places)
    assert f"{hits[0]['score']:.3f}" in outcome.out
    assert "model: run, epoch " in outcome.out
    assert "gallery: 48 pictures" in outcome.out


def test_a_file_as_reference(triptych, tiny_run: Path, tiny_benchmark: Path) -> None:
    asked = ("search", tiny_run, "--text", "make it blue", "--json", "--reference")
    from_file = json.loads(triptych(*asked, tiny_benchmark / "images" / f"{REFERENCE}.png").out)
    assert from_file["hits"] == json.loads(triptych(*asked, REFERENCE).out)["hits"]


def test_split_and_category_narrow_the_gallery(triptych, tiny_run: Path) -> None:
    asked = ("search", tiny_run, "--text", "a red circle", "--top", 100, "--json")
    found = json.loads(triptych(*asked, "--split", "val", "--category", "plain").out)
    assert found["gallery"] == len(found["hits"]) == 12
    assert all(hit["image_id"].startswith("plain-large") for hit in found["hits"])
    assert json.loads(triptych(*asked, "--category", "tinted").out)["gallery"] == 24
    assert json.loads(triptych(*asked).out)["gallery"] == 48


def test_the_page_holds_the_pictures(triptych, tiny_run: Path, tmp_path: Path) -> None:
    page = tmp_path / "out.html"
    text = "make it <b>blue</b>"
    outcome = triptych(
        "search", tiny_run, "--reference", REFERENCE, "--text", text, "--top", 4, "--html", page
    )
    assert outcome.code == 0, outcome.err
    assert str(page) in outcome.out
    sources: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag == "img":
                sources.append(dict(attrs)["src"] or "")

    html = page.read_text(encoding="utf-8")
    Reader().feed(html)
    assert len(sources) == 5
    assert all(source.startswith("data:image/jpeg;base64,") for source in sources)
    assert "make it &lt;b&gt;blue&lt;/b&gt;" in html


def test_a_page_without_a_reference(triptych, tiny_run: Path, tmp_path: Path) -> None:
    outcome = triptych("search", tiny_run, "--text", "a blue circle", "--html", tmp_path / "out.html")
    assert outcome.code == 0, outcome.err
    assert "cannot be read" not in (tmp_path / "out.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ((), 2, "say what to search for: --image ID_OR_FILE, --text TEXT, or both"),
        (("--text", "  "), 2, "say what to search for"),
        (("--reference", "gone"), 2, '"gone" is neither an image id of tiny nor a file'),
        (("--text", "red", "--split", "test"), 2, 'tiny has no split "test"; it has: val'),
        (("--text", "red", "--category", "dress"), 2, 'tiny has no category "dress"; it has: plain, tinted'),
        (("--text", "red", "--checkpoint", "first"), 2, 'unknown checkpoint "first"'),
        (("--text", "red", "--top", "0"), 2, "top"),
        (("--text", "red", "--html", "/proc/none/x.html"), 1, "/proc/none/x.html: cannot be written here"),
    ],
)
def test_wrong_options(options: tuple[str, ...], code: int, message: str, triptych, tiny_run: Path) -> None:
    outcome = triptych("search", tiny_run, *options)
    assert outcome.code == code
    assert message in outcome.said


def test_a_reference_that_is_no_picture(triptych, tiny_run: Path) -> None:
    outcome = triptych("search", tiny_run, "--reference", tiny_run / "config.json")
    assert outcome.code == 1
    assert "config.json" in outcome.said
