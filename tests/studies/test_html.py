"""Pages: whole, self-contained, safe whatever the text, and right about what is right."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from triptych.errors import UsageError
from triptych.evaluation import FASHIONIQ, ModelInfo, QueryRanks, assemble
from triptych.studies.html import (
    Answers,
    Comparison,
    Figure,
    HitView,
    Picture,
    QueryView,
    ResultRow,
    demo_report,
    learning_curves_svg,
    result_row,
    search_page,
)
from triptych.triplets.thumbnail import thumbnail_data_uri

HOSTILE = """</style><script>alert("x")</script>'"&<img src=http://x onerror=y>"""
VOID = {"meta", "img", "br", "path", "use", "circle"}


class Reader(HTMLParser):
    """Collects what a browser would see, and complains of tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]

    def of_class(self, name: str) -> list[dict[str, str | None]]:
        return [attrs for _, attrs in self.tags if name in (attrs.get("class") or "").split()]


def picture(image_id: str = "a1") -> Picture:
    return Picture(image_id, thumbnail_data_uri(Image.new("RGB", (4, 4), "red")))


def hit(image_id: str, right: bool | None = None) -> HitView:
    return HitView(picture(image_id), 0.12345, right)


def check_whole_and_self_contained(text: str) -> Reader:
    reader = Reader(text)
    assert text.startswith("<!doctype html>")
    assert reader.named("script") == []
    assert reader.named("link") == []
    for _, attrs in reader.tags:
        assert not any(name.startswith("on") for name in attrs)
        for name in ("src", "href", "xlink:href"):
            assert (attrs.get(name) or "data:").startswith(("data:image/", "data:", "#"))
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    return reader


def test_a_search_page_shows_the_query_and_the_hits_in_order() -> None:
    reader = check_whole_and_self_contained(
        search_page(
            QueryView(picture("r7"), "make it green"),
            [hit("h1"), hit("h2", True), hit("h3", False)],
            details=[("model", "run-1")],
            command="triptych search run-1",
        )
    )
    assert [image["alt"] for image in reader.named("img")] == [
        "reference: r7",
        "place 1: h1",
        "place 2: h2, right",
        "place 3: h3",
    ]
    text = " ".join(reader.words)
    for expected in ("make it green", "Hits, best first", "0.123", "run-1", "triptych search run-1"):
        assert expected in text


def test_right_hits_have_a_frame_and_a_tick_and_others_have_neither() -> None:
    reader = Reader(search_page(QueryView(picture(), "x"), [hit("a", True), hit("b", False), hit("c", None)]))
    assert [attrs["class"] for attrs in reader.of_class("hit")] == ["hit right", "hit", "hit"]
    assert len(reader.of_class("tick")) == 2  # the hit's and the legend's
    plain = Reader(search_page(QueryView(picture(), "x"), [hit("a"), hit("b")]))
    assert plain.of_class("tick") == plain.of_class("legend") == []


def test_a_search_without_hits_says_so() -> None:
    assert "No hits" in search_page(QueryView(picture(), "x"), [])


def test_text_cannot_become_markup() -> None:
    view = Picture(HOSTILE, picture().uri)
    query = QueryView(view, HOSTILE, view)
    found = [HitView(view, 0.5, True), HitView(Picture(HOSTILE), 0.4)]
    search = search_page(query, found, title=HOSTILE, details=[(HOSTILE, HOSTILE)], command=HOSTILE)
    demo = demo_report(
        title=HOSTILE,
        introduction=[HOSTILE],
        settings=[(HOSTILE, HOSTILE)],
        typed=[HOSTILE],
        results=[ResultRow(HOSTILE, HOSTILE, {})],
        curves={HOSTILE: [(1, 2.0)]},
        curves_of=HOSTILE,
        baselines={HOSTILE: 1.0},
        comparisons=[Comparison(query, (Answers(HOSTILE, tuple(found)),))],
        remarks=[HOSTILE],
    )
    for text in (search, demo):
        reader = check_whole_and_self_contained(text)
        assert HOSTILE in reader.words
        assert any(image["alt"] == f"reference: {HOSTILE}" for image in reader.named("img"))


def test_a_picture_that_cannot_be_read_is_said_in_words() -> None:
    reader = Reader(search_page(QueryView(Picture("gone"), "x"), []))
    assert reader.named("img") == []
    assert reader.of_class("missing")[0]["aria-label"] == "reference: gone"


def test_a_picture_elsewhere_is_refused() -> None:
    with pytest.raises(ValueError, match="the picture of a is no data URI"):
        search_page(QueryView(Picture("a", "http://example.com/a.jpg"), "x"), [])


def decoded(uri: str) -> Image.Image:
    head, data = uri.split(",")
    assert head == "data:image/jpeg;base64"
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    assert image.format == "JPEG"
    return image.convert("RGB")


@pytest.mark.parametrize(
    ("size", "side", "expected"),
    [((640, 320), 160, (160, 80)), ((30, 20), 160, (30, 20)), ((1, 900), 90, (1, 90))],
)
def test_thumbnails_keep_their_shape_and_are_not_enlarged(
    size: tuple[int, int], side: int, expected: tuple[int, int]
) -> None:
    assert decoded(thumbnail_data_uri(Image.new("RGB", size), side)).size == expected


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGBA", "CMYK", "I", "F"])
def test_thumbnails_of_every_mode(mode: str) -> None:
    assert decoded(thumbnail_data_uri(Image.new(mode, (8, 8)))).size == (8, 8)


def test_transparent_parts_are_white() -> None:
    assert min(decoded(thumbnail_data_uri(Image.new("RGBA", (8, 8), (255, 0, 0, 0)))).getpixel((4, 4))) > 250


def test_thumbnails_leave_the_picture_as_it_is() -> None:
    image = Image.new("RGB", (400, 400))
    thumbnail_data_uri(image, 10)
    assert image.size == (400, 400)
    with pytest.raises(ValueError, match="side must be at least 1"):
        thumbnail_data_uri(image, 0)


def ranks(target: list[int], reference: list[int]) -> QueryRanks:
    ids = tuple(map(str, target))
    none = tuple(np.empty(0, dtype=np.int64) for _ in target)
    return QueryRanks("val", "all", 100, ids, np.array(target), np.array(reference), none)


def test_a_result_row_takes_both_conventions_from_an_evaluation() -> None:
    evaluation = assemble(
        {"composed": [ranks([0, 10, 99, 98], [5, 0, 0, 0])]},
        FASHIONIQ,
        data="x",
        gallery_hash="",
        model=ModelInfo(name="m", method="rcl", backbone="lite"),
        samples=20,
    )
    row = result_row("rcl", "last (24)", evaluation)
    assert {key: figure.value for key, figure in row.figures.items()} == {
        ("R@10", "removed"): 50.0,
        ("R@50", "removed"): 50.0,
        ("R@10", "kept"): 25.0,
        ("R@50", "kept"): 50.0,
    }
    low, high = row.figures["R@10", "removed"].interval or (None, None)
    assert low is not None
    assert low <= 50.0 <= high
    with pytest.raises(UsageError, match='no row "text-only"'):
        result_row("text-only", "", evaluation, name="text-only")


def report(**options: object) -> str:
    figures = {("R@10", "removed"): Figure(31.46, (29.0, 33.04)), ("R@50", "kept"): Figure(62.0)}
    found = Answers("intent", (hit("h1", True), hit("h2")), target_rank=0, gallery_size=800)
    defaults = {
        "title": "Demo",
        "introduction": ["What was done."],
        "settings": [("noise", "mix, 50 %")],
        "typed": ["make demo"],
        "results": [
            ResultRow("intent", "best (9)", figures),
            ResultRow("image-only", "", {("R@10", "removed"): Figure(15.73)}, context=True),
        ],
        "curves": {"intent": [(1, 20.0), (2, 31.4)]},
        "comparisons": [Comparison(QueryView(picture("r"), "redder", picture("t")), (found,))],
        "remarks": ["Both saw the same noise."],
    }
    return demo_report(**{**defaults, **options})


def test_the_report_has_its_sections_and_figures() -> None:
    text = report()
    reader = check_whole_and_self_contained(text)
    words = " ".join(reader.words)
    for expected in (
        "What was done",
        "The result",
        "Learning curves",
        "Queries to look at",
        "31.5",
        "29.0–33.0",
        "62.0",
        "–",
        "best (9)",
        "target at place 1 of 800",
        "make demo",
        "Both saw the same noise.",
    ):
        assert expected in words
    assert [image["alt"] for image in reader.named("img")][:2] == ["reference: r", "target: t"]


def test_bars_are_shares_of_the_columns_best() -> None:
    widths = re.findall(r'style="width:(\d+)%"', report())
    assert widths == ["100", "100", "50"]


def test_sections_without_content_are_left_out() -> None:
    text = report(curves={}, comparisons=[])
    assert "Learning curves" not in text
    assert "<svg" not in text
    assert "Queries to look at" not in text


def test_curves_are_the_same_bytes_for_the_same_numbers() -> None:
    curves = {"a": [(1, 10.0), (2, 20.0)], "b": [(1, 5.0)]}
    first = learning_curves_svg(curves, baselines={"image-only": 7.0})
    assert first == learning_curves_svg(curves, baselines={"image-only": 7.0})
    assert first != learning_curves_svg({**curves, "b": [(1, 6.0)]}, baselines={"image-only": 7.0})
    assert first.startswith("<svg role=")
    assert first.endswith("</svg>")
    for expected in ("image-only", ">a<", ">20.0<", "currentColor"):
        assert expected in first
    assert "#010203" not in first


def test_dollar_signs_in_labels_are_not_mathematics() -> None:
    assert "$x_1$" in learning_curves_svg({"$x_1$": [(1, 1.0)]})


@pytest.mark.parametrize("curves", [{}, {"a": []}])
def test_no_curve_to_draw(curves: dict[str, list[tuple[float, float]]]) -> None:
    with pytest.raises(ValueError, match="no curve"):
        learning_curves_svg(curves)


def test_curves_without_matplotlib_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match="triptych\\[figures\\]"):
        learning_curves_svg({"a": [(1, 1.0)]})
