"""``triptych index`` and ``triptych search GALLERY``."""

import json
import shutil
from pathlib import Path

import pytest

from triptych.search.lock import writing

CIRCLE, SQUARE = "plain-large-red-circle", "plain-large-blue-square"


def test_index_search_and_look_after(
    triptych, lance: None, tiny_run: Path, tiny_benchmark: Path, items: Path, tmp_path: Path
) -> None:
    gallery, images = tmp_path / "gallery", tmp_path / "images"
    shutil.copytree(tiny_benchmark / "images", images)
    (images / "broken.png").write_bytes(b"no picture")
    made = triptych("index", tiny_run, images, "-o", gallery, "--metadata", items, "--workers", 2)
    assert made.code == 0, made.err
    assert "48 images added, 0 changed, 0 were there, 1 refused; the gallery has 48" in made.out
    assert "broken: images/broken.png: this is not a picture that can be read" in made.said
    (images / "broken.png").unlink()
    again = json.loads(triptych("index", tiny_run, images, "-o", gallery, "--json").out)
    assert (again["added"], again["changed"], again["same"], again["refused"]) == (0, 0, 48, {})

    status = triptych("index", "status", gallery)
    assert "exact scan" in status.out
    assert "colour (text), price (number), large (truth value)" in status.out
    assert json.loads(triptych("index", "status", gallery, "--json").out)["images"] == 48

    asked = ("search", gallery, "--image", CIRCLE, "--text", "make it blue", "--where", "large = true")
    found = json.loads(triptych(*asked, "--top", 3, "--json").out)
    assert [hit["rank"] for hit in found["hits"]] == [1, 2, 3]
    assert all(hit["metadata"]["large"] for hit in found["hits"])
    assert (found["method"], found["images"], found["scored"]) == ("exact", 48, 24)
    shown = triptych(*asked, "--minus", "square")
    assert shown.code == 0, shown.err
    assert "model: run (" in shown.out
    assert "exact scan; 24 images scored" in shown.out

    removed = triptych("index", "remove", gallery, CIRCLE, SQUARE)
    assert "2 images removed; the gallery has 46" in removed.out
    assert "48" not in triptych("index", "compact", gallery, "--forget").out
    assert "46 images: all is well" in triptych("index", "verify", gallery).out
    missing = triptych("index", "remove", gallery, CIRCLE)
    assert (missing.code, f'there is no image "{CIRCLE}"' in missing.said) == (2, True)


def test_a_search_goes_on_over_turns(
    triptych, own_gallery: Path, tiny_benchmark: Path, tmp_path: Path
) -> None:
    session = tmp_path / "session.json"
    asked = ("search", own_gallery, "--session", session, "--json")
    picture = tiny_benchmark / "images" / f"{CIRCLE}.png"
    first = json.loads(triptych(*asked, "--image", picture, "--text", "blue", "--where", "large = true").out)
    second = json.loads(triptych(*asked, "--image", SQUARE, "--text", "but green").out)
    assert len(second["query"]["before"]) == 1
    assert second["query"]["where"] == "large = true"
    assert first["hits"] != second["hits"]
    query = tmp_path / "query.json"
    query.write_text(
        json.dumps({"images": [{"id": SQUARE, "weight": 2}], "texts": [{"text": "green"}], "top": 2})
    )
    assert len(json.loads(triptych("search", own_gallery, "--query", query, "--json").out)["hits"]) == 2


def test_the_page_holds_the_pictures(triptych, own_gallery: Path, tmp_path: Path) -> None:
    page = tmp_path / "out.html"
    outcome = triptych(
        "search", own_gallery, "--image", CIRCLE, "--text", "<b>blue</b>", "--top", 4, "--html", page
    )
    assert outcome.code == 0, outcome.err
    html = page.read_text(encoding="utf-8")
    assert html.count("data:image/jpeg;base64,") == 5
    assert "&lt;b&gt;blue&lt;/b&gt;" in html


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ((), 2, "say what to search for: --image ID_OR_FILE, --text TEXT, or both"),
        (("--text", " "), 2, "say what to search for"),
        (("--text", "x" * 10_000), 2, "at most 2000 characters"),
        (("--image", "gone"), 2, 'there is no image "gone" in the gallery'),
        (("--text", "red", "--where", "colr = 1"), 2, 'no column "colr"; a filter may name: colour (text)'),
        (("--text", "red", "--where", "1=1; DROP TABLE images"), 2, "the filter cannot be read"),
        (("--text", "red", "--split", "val"), 2, "--split does not fit here"),
        (("--image", "/proc/self/status"), 1, "status: this is not a picture"),
        (("--query", "/proc/none.json"), 2, "there is no such file"),
    ],
)
def test_wrong_searches(
    options: tuple[str, ...], code: int, message: str, triptych, gallery_folder: Path
) -> None:
    outcome = triptych("search", gallery_folder, *options)
    assert (outcome.code, message in outcome.said) == (code, True), outcome.err


def test_wrong_indexing(
    triptych, own_gallery: Path, tiny_run: Path, tiny_benchmark: Path, tmp_path: Path
) -> None:
    images = tiny_benchmark / "images"
    outcome = triptych("index", tiny_run, tmp_path / "gone", "-o", tmp_path / "g")
    assert (outcome.code, "there is no such folder" in outcome.said) == (2, True)
    outcome = triptych("index", tiny_run, images, "-o", images)
    assert (outcome.code, "there is something else here" in outcome.said) == (2, True)
    outcome = triptych("index", "status", tmp_path)
    assert (outcome.code, "this is no gallery" in outcome.said) == (1, True)
    with writing(own_gallery):
        outcome = triptych("index", tiny_run, images, "-o", own_gallery)
    assert (outcome.code, "is writing to this gallery" in outcome.said) == (1, True)
    other = Path(shutil.copytree(tiny_run / "last", tmp_path / "other"))
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "method": {"name": "rcl"}}))
    outcome = triptych("index", other, images, "-o", own_gallery)
    assert (outcome.code, "their vectors cannot be compared" in outcome.said) == (1, True)
    for path in (own_gallery / "store").rglob("*.lance"):
        if path.is_file():
            path.write_bytes(b"")
    outcome = triptych("index", "verify", own_gallery)
    assert (outcome.code, "the gallery's table is missing or damaged" in outcome.said) == (1, True)
    outcome = triptych("search", own_gallery, "--text", "red")
    assert (outcome.code, "the gallery's table is missing or damaged" in outcome.said) == (1, True)


def test_shards_are_merged(
    triptych, lance: None, tiny_run: Path, tiny_benchmark: Path, own_gallery: Path, tmp_path: Path
) -> None:
    gallery, images = tmp_path / "sharded", tiny_benchmark / "images"
    asked = ("index", tiny_run, images, "-o", gallery)
    made = triptych(*asked, "--shard", "1/2")
    assert made.code == 0, made.err
    assert "When all shards are done: triptych index merge" in made.out
    assert "not merged" in triptych("index", "status", gallery).out
    assert json.loads(triptych("index", "status", gallery, "--json").out)["images"] == 0
    assert json.loads(triptych(*asked, "--shard", "2/2", "--json").out)["groups"] >= 0
    merged = json.loads(triptych("index", "merge", gallery, "--json").out)
    assert (merged["added"], merged["changed"], merged["images"], merged["refused"]) == (48, 0, 48, {})
    assert "not merged" not in triptych("index", "status", gallery).out
    query = ("--image", CIRCLE, "--text", "make it blue", "--json")
    sharded, single = (json.loads(triptych("search", place, *query).out) for place in (gallery, own_gallery))
    assert [hit["image_id"] for hit in sharded["hits"]] == [hit["image_id"] for hit in single["hits"]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--shard", "3/2"), "3/2"),
        (("--shard", "one"), "one"),
        (("--shard", "1/2", "--ray", "local"), "--shard and --ray both say who embeds what"),
    ],
)
def test_wrong_shards(
    options: tuple[str, ...], message: str, triptych, tiny_run: Path, tiny_benchmark: Path, tmp_path: Path
) -> None:
    outcome = triptych("index", tiny_run, tiny_benchmark / "images", "-o", tmp_path / "g", *options)
    assert (outcome.code, message in outcome.said) == (2, True), outcome.err
    assert not (tmp_path / "g").exists()


def test_a_gallery_is_copied(triptych, own_gallery: Path, tiny_run: Path, tmp_path: Path) -> None:
    copied = triptych("index", "copy", own_gallery, tmp_path / "copy")
    assert copied.code == 0, copied.err
    assert "copy has 48 images; their rows are in the folder" in copied.out
    assert json.loads(triptych("index", "copy", own_gallery, tmp_path / "copy", "--json").out)["images"] == 48
    outcome = triptych("index", "copy", own_gallery, own_gallery)
    assert (outcome.code, "cannot be copied onto itself" in outcome.said) == (2, True)
    outcome = triptych("index", "copy", own_gallery, tmp_path / "other", "--store", "ftp://host/a")
    assert (outcome.code, "a store is s3://bucket/path" in outcome.said) == (2, True)
    outcome = triptych("index", "copy", own_gallery, tmp_path / "other", "--store", "qdrant://127.0.0.1:9/a")
    assert (outcome.code, "the store does not answer" in outcome.said) == (1, True)


def test_awkward_pictures(triptych, shared: Path, gallery_folder: Path) -> None:
    refused = {"truncated.jpg", "zero_bytes.jpg", "text_renamed.jpg", "broken_data.png", "bomb_header.png"}
    for path in sorted((shared / "data" / "bad-inputs" / "images").iterdir()):
        if path.name not in refused and path.name not in ("cmyk.jpg", "naïve café 👗.jpg"):
            continue  # each costs the loading of a model; the server's tests ask for all of them
        outcome = triptych("search", gallery_folder, "--image", path, "--text", "red", "--json")
        assert outcome.code == (path.name in refused), outcome.err
        assert "Traceback" not in outcome.err
        if path.name in refused:
            assert path.name in outcome.said


def test_serve_says_what_it_needs(triptych, gallery_folder: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    outcome = triptych("serve", gallery_folder, "--token-file", token)
    assert (outcome.code, "there is no such file" in outcome.said) == (2, True)
    token.write_text("short")
    outcome = triptych("serve", gallery_folder, "--token-file", token)
    assert (outcome.code, "16 characters or more" in outcome.said) == (2, True)
    outcome = triptych("serve", tmp_path)
    assert (outcome.code, "this is no gallery" in outcome.said) == (1, True)
