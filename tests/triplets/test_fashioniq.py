"""The FashionIQ layout: official data by its counts, small data by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from triptych.errors import DataError
from triptych.triplets import Triplet, read_benchmark

COUNTS = {
    "dress": {"train": 5985, "val": (2017, 3817), "test": (2024, 3818)},
    "shirt": {"train": 5988, "val": (2038, 6346), "test": (2038, 6346)},
    "toptee": {"train": 6027, "val": (1961, 5373), "test": (2056, 5374)},
}
"""Spec 1.1 and the README of the official annotations: triplets, and queries with gallery."""


def test_official_fashioniq(shared: Path):
    benchmark = read_benchmark(shared / "data" / "fashioniq")
    assert len(benchmark.train) == 18_000
    assert benchmark.train.categories == ["dress", "shirt", "toptee"]
    for split in ("val", "test"):
        found = {q.category: (len(q.queries), len(q.gallery)) for q in benchmark.splits[split]}
        assert found == {category: counts[split] for category, counts in COUNTS.items()}
    assert [benchmark.train.column("category").count(c) for c in COUNTS] == [
        c["train"] for c in COUNTS.values()
    ]
    assert {q for query_set in benchmark.splits["test"] for q in query_set.queries.column("target")} == {None}
    union = {q.category: len(q.queries.image_ids()) for q in benchmark.splits["val"]}
    assert union == {"dress": 2628, "shirt": 3089, "toptee": 2902}  # the "val split" galleries of spec 1.1
    assert len(benchmark.images) == 0
    assert "CDLA" in benchmark.licence
    assert any("no pictures" in warning for warning in benchmark.warnings)


def test_fashion_products(shared: Path):
    root = shared / "data" / "fashion-products"
    benchmark = read_benchmark(root)
    assert len(benchmark.train) == 12_000
    assert sum(len(query_set.queries) for query_set in benchmark.splits["val"]) == 2_000
    galleries = {query_set.category: len(query_set.gallery) for query_set in benchmark.splits["val"]}
    assert galleries == {"accessories": 317, "bottomwear": 104, "footwear": 376, "topwear": 774}
    assert len(benchmark.images) == 7_404
    assert benchmark.warnings == ()
    answers = [found for query_set in benchmark.splits["val"] for found in query_set.answers.values()]
    assert len(answers) == 2_000
    assert sum(len(found) == 1 for found in answers) == 589  # its README
    for query_set in benchmark.splits["val"]:
        for query in query_set.queries:
            assert query_set.answers[query.triplet_id][0] == query.target
            assert query.reference not in query_set.answers[query.triplet_id]


def test_rows_agree_with_the_noise_files(shared: Path):
    """Their offsets count the categories in sorted order, as the training table does."""
    root = shared / "data" / "fashion-products"
    train = read_benchmark(root).train
    noise = json.loads((root / "noise" / "mix-0.2-seed42.json").read_text())
    for item in noise["corrupted"][:200]:
        assert train[item["index"]].triplet_id == f"{item['category']}.train.{item['row']}"


def test_a_small_data_set(make_data, entry):
    root = make_data(
        {
            "top wear.train": [entry("a", "b", "is red"), entry("b", "c")],
            "hats.train": [entry("c", "d", " longer ", "Red.")],
            "hats.val": [entry("e", "f")],
        },
        splits={"top wear.train": ["a", "b", "c"], "hats.train": ["c", "d"], "hats.val": ["f", "e", "a"]},
    )
    benchmark = read_benchmark(str(root))
    assert list(benchmark.train) == [
        Triplet("hats.train.0", "c", (" longer ", "Red."), "d", "hats"),
        Triplet("top wear.train.0", "a", ("is red",), "b", "top wear"),
        Triplet("top wear.train.1", "b", ("make it red", "is longer"), "c", "top wear"),
    ]
    (query_set,) = benchmark.splits["val"]
    assert (query_set.category, query_set.gallery) == ("hats", ("f", "e", "a"))
    assert query_set.queries.triplet_ids == ["hats.val.0"]
    assert not query_set.answers
    assert (benchmark.name, benchmark.licence, benchmark.warnings) == ("data", "not stated", ())
    assert benchmark.images.load("a").size == (8, 6)


def test_a_category_name_may_hold_dots(make_data, entry):
    benchmark = read_benchmark(make_data({"v1.2.train": [entry("a", "b")]}))
    assert benchmark.train.categories == ["v1.2"]


def test_files_in_the_folder_itself(tmp_path, entry, picture):
    (tmp_path / "cap.x.json").write_text(json.dumps([entry("a", "b")]))
    (tmp_path / "split.x.json").write_text('["a", "b"]')
    for image_id in "ab":
        (tmp_path / f"{image_id}.png").write_bytes(picture())
    benchmark = read_benchmark(tmp_path)
    assert benchmark.train.triplet_ids == ["x.train.0"]
    assert len(benchmark.images) == 2
    assert benchmark.warnings == ()


def test_a_category_without_queries(make_data, entry):
    root = make_data(
        {"x.train": [entry("a", "b")]}, splits={"x.train": ["a", "b"], "x.val": ["c"], "y.val": ["d"]}
    )
    benchmark = read_benchmark(root)
    assert benchmark.splits == {}
    (warning,) = benchmark.warnings
    assert warning.startswith("2 categories without queries in a split (first: image_splits/split.x.val.json")


@pytest.mark.parametrize(
    ("captions", "splits", "message"),
    [
        ({"x.val": []}, {"x.val": ["a"]}, "captions/cap.x.val.json: there are no triplets in it"),
        ({"x.val": None}, {"x.val": []}, "image_splits/split.x.val.json: the gallery has no picture"),
        ({"x.val": None}, {}, "captions/cap.x.val.json: there is no image_splits/split.x.val.json"),
        ({"x.val": None}, {"x.val": {"a": 1}}, "image_splits/split.x.val.json: a list is expected"),
        ({"x.val": None}, {"x.val": ["a", None]}, 'image_splits/split.x.val.json, entry 1: "id" is missing'),
        (
            {"x.val": None},
            {"x.val": ["a", ["b"]]},
            'split.x.val.json, entry 1: "id" must be an id, not a list',
        ),
        ({"x.val": None}, {"x.val": ["b"]}, 'cap.x.val.json, entry 0: the picture "a" is not in'),
        (
            {"x.train": ["a"]},
            {"x.train": ["a"]},
            "cap.x.train.json, entry 0: an object is expected, not a text",
        ),
        ({"x.train": b"[" * 100_000}, {"x.train": ["a"]}, "captions/cap.x.train.json: not usable JSON"),
        ({"x.train": b"[" + b"9" * 5_000 + b"]"}, {"x.train": ["a"]}, "captions/cap.x.train.json"),
        (
            {"x.train": b""},
            {"x.train": ["a"]},
            "captions/cap.x.train.json, line 1: not valid JSON at column 1",
        ),
        (
            {"x.train": b'[{"candidate": "\\ud800", "target": "b", "captions": ["x y"]}]'},
            {"x.train": ["a"]},
            'cap.x.train.json, entry 0: "candidate" holds half a character',
        ),
        (
            {"x.train": b'[{"candidate": "a", "target": "b", "captions": ["x \\udc00"]}]'},
            {"x.train": ["a", "b"]},
            'cap.x.train.json, entry 0: "captions" holds half a character',
        ),
        (
            {"x.train": [{"candidate": 1.5, "target": "b", "captions": ["x"]}]},
            {"x.train": ["a"]},
            'entry 0: "candidate" must be an id, not the number 1.5',
        ),
        (
            {"x.train": [{"candidate": True, "target": "b", "captions": ["x"]}]},
            {"x.train": ["a"]},
            'entry 0: "candidate" must be an id, not true',
        ),
        (
            {"x.train": [{"candidate": " ", "target": "b", "captions": ["x"]}]},
            {"x.train": ["a"]},
            'entry 0: "candidate" is blank',
        ),
        (
            {"x.train": [{"candidate": "a", "target": "b", "captions": {"0": "x"}}]},
            {"x.train": ["a"]},
            'entry 0: "captions" must be a list of texts, not an object',
        ),
    ],
)
def test_what_is_refused(make_data, entry, captions, splits, message):
    """Every error names file, entry and field."""
    root = make_data(
        {key: [entry("a", "b")] if value is None else value for key, value in captions.items()}, splits
    )
    with pytest.raises(DataError) as caught:
        read_benchmark(root)
    assert message in str(caught.value)


def test_a_training_category_without_a_split_file_warns(make_data, entry):
    (warning,) = read_benchmark(make_data({"x.train": [entry("a", "b")]}, splits={})).warnings
    assert "captions/cap.x.train.json: there is no image_splits/split.x.train.json" in warning


def test_numbers_as_ids_are_read_as_text_everywhere(make_data, entry):
    root = make_data({"x.val": [entry(1, 2)]}, splits={"x.val": [1, "2"]}, pictures="12")
    (query_set,) = read_benchmark(root).splits["val"]
    assert query_set.gallery == ("1", "2")
    assert (query_set.queries[0].reference, query_set.queries[0].target) == ("1", "2")


def test_a_key_that_nobody_uses_warns_once(make_data, entry):
    entries = [{**entry("a", "b"), "colour": "red"}, {**entry("b", "c"), "colour": "red"}]
    (warning,) = read_benchmark(make_data({"x.train": entries})).warnings
    assert warning == 'captions/cap.x.train.json, entry 0: the key "colour" is not used (in 2 entries)'


def test_missing_pictures_warn_and_are_not_fatal_yet(make_data, entry):
    root = make_data({"x.train": [entry("a", "z"), entry("y", "b")]}, splits={"x.train": list("abyz")})
    (warning,) = read_benchmark(root).warnings
    assert warning.startswith('2 pictures that are missing (first: data: "z" is not in images')
