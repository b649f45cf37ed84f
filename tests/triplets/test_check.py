"""check_data lists everything at once, and stops at nothing."""

from __future__ import annotations

import json

import pytest

from triptych.errors import DataError, UsageError
from triptych.triplets import read_benchmark
from triptych.triplets.check import check_data
from triptych.triplets.findings import KINDS


def places(report, kind):
    return [(f.file, f.row, f.field) for f in report.findings if f.kind == kind]


@pytest.fixture
def ruin(make_data, entry):
    """A data set with one of nearly everything."""
    train = [
        entry("a", "b", "is red"),
        entry("a", "b", "is red"),
        entry("c", "c"),
        entry("a", "zzz"),
        entry("d", "gone", "longer", "is blue"),
        entry("a", "cut", "", "is blue"),
        entry("a", "text", "  "),
        {"candidate": "a", "captions": ["x y"], "colour": "red"},
        {"target": "a", "captions": "is red"},
        entry("e", "f", "has stripes", "is wide"),
        7,
    ]
    root = make_data(
        {"x.train": train, "y.train": b"[{", "z.val": []},
        splits={
            "x.train": ["a", "b", "c", "d", "e", "f", "gone", "cut", "text", "a"],
            "z.val": [],
            "w.val": ["a"],
            "y.train": [],
        },
        pictures="abcdefgh",
    )
    good = (root / "images" / "a.png").read_bytes()
    (root / "images" / "cut.png").write_bytes(good[:50])
    (root / "images" / "text.jpg").write_bytes(b"hello")
    (root / "captions" / "old.json").write_text("[]")
    return root


def test_everything_is_listed(ruin):
    report = check_data(ruin)
    train = "captions/cap.x.train.json"
    assert report.fails
    assert places(report, "duplicate_triplet") == [(train, 1, None)]
    assert places(report, "same_image") == [(train, 2, "target")]
    assert places(report, "outside_split") == [(train, 3, "target")]
    assert places(report, "one_word_caption") == [(train, 4, "captions")]
    assert places(report, "blank_caption") == [(train, 5, "captions")]
    assert places(report, "no_words") == [(train, 6, "captions")]
    assert places(report, "missing_field") == [(train, 7, "target"), (train, 8, "candidate")]
    assert places(report, "wrong_type") == [(train, 8, "captions"), (train, 10, None)]
    assert places(report, "unknown_key") == [(train, 7, "colour")]
    assert places(report, "unreadable_file") == [("captions/cap.y.train.json", 1, None)]
    assert places(report, "no_triplets") == [("captions/cap.z.val.json", None, None)]
    assert places(report, "duplicate_split_id") == [("image_splits/split.x.train.json", 9, None)]
    galleries = ["image_splits/split.y.train.json", "image_splits/split.z.val.json"]
    assert places(report, "empty_gallery") == [(name, None, None) for name in galleries]
    assert places(report, "no_queries") == [("image_splits/split.w.val.json", None, None)]
    assert places(report, "unknown_file") == [("captions/old.json", None, None)]
    assert places(report, "image_truncated") == [("images/cut.png", None, None)]
    assert places(report, "image_not_an_image") == [("images/text.jpg", None, None)]
    missing = [("image_splits/split.x.train.json", 6, "id"), (train, 3, "target")]
    assert places(report, "image_missing") == missing, "each with the first place that names it"
    assert places(report, "unused_picture") == [("images", None, None)]
    kinds = set(report.counts) - {"unused_picture"}
    assert report.triplets == 6
    assert len(kinds) == 18


def test_errors_come_first_and_counts_are_right(ruin):
    report = check_data(ruin)
    order = [finding.severity for finding in report.findings]
    assert order == sorted(order, key=["error", "warning", "note"].index)
    assert sum(report.counts.values()) == len(report.findings)
    assert all(finding.severity == KINDS[finding.kind][0] for finding in report.findings)


def test_the_report_is_plain_json(ruin):
    report = check_data(ruin)
    loaded = json.loads(json.dumps(report.as_dict()))
    assert loaded["fails"] is True
    assert loaded["counts"] == report.counts
    assert loaded["findings"][0].keys() == {
        "kind",
        "severity",
        "message",
        "file",
        "row",
        "field",
        "mend",
        "unit",
    }


def test_nothing_is_changed(ruin):
    before = {path: path.read_bytes() for path in ruin.rglob("*") if path.is_file()}
    check_data(ruin)
    assert {path: path.read_bytes() for path in ruin.rglob("*") if path.is_file()} == before


def test_good_data_has_no_findings(make_data, entry):
    root = make_data({"x.train": [entry("a", "b"), entry("c", "d")], "x.val": [entry("e", "f")]})
    report = check_data(root)
    assert report.findings == ()
    assert not report.fails
    assert (report.triplets, report.queries, report.pictures, report.decoded) == (2, {"val": {"x": 1}}, 6, 6)


def test_warnings_alone_do_not_fail(make_data, entry):
    report = check_data(make_data({"x.train": [entry("a", "a"), entry("b", "c", "red", "")]}))
    assert set(report.counts) == {"same_image", "blank_caption", "one_word_caption"}
    assert not report.fails


def test_progress_counts_every_picture(make_data, entry):
    calls = []
    check_data(make_data({"x.train": [entry("a", "b")]}), progress=lambda *call: calls.append(call))
    assert calls == [(number, 6) for number in range(1, 7)]


def test_a_table_is_checked_to_its_end(tmp_path, picture):
    (tmp_path / "t.csv").write_text("reference,text,target\na,,b\na,x y\na,is red,b\nq,is red,b\n")
    (tmp_path / "images").mkdir()
    for image_id in "ab":
        (tmp_path / "images" / f"{image_id}.png").write_bytes(picture())
    report = check_data(tmp_path)
    assert places(report, "missing_field") == [("t.csv", 2, "text")]
    assert places(report, "bad_row") == [("t.csv", 3, None)]
    assert places(report, "image_missing") == [("t.csv", 5, "reference")]
    assert report.findings[0].place == "t.csv, line 2"
    assert report.triplets == 2


def test_no_pictures_and_a_broken_archive_would_fail(make_data, entry):
    root = make_data({"x.train": [entry("a", "b")]}, pictures=None)
    assert check_data(root).counts == {"no_pictures": 1}
    assert check_data(root).fails
    (root / "images.zip").write_bytes(b"PK")
    assert check_data(root).counts == {"pictures": 1}


def test_no_training_triplets_would_fail(make_data, entry):
    report = check_data(make_data({"x.val": [entry("a", "b")]}))
    assert report.counts == {"no_training": 1}
    assert report.fails


def test_an_empty_folder_is_one_finding(tmp_path):
    report = check_data(tmp_path)
    assert report.counts == {"unreadable_file": 1}
    assert "no triplets found" in report.findings[0].message


def test_nothing_there_is_a_wrong_call(tmp_path):
    with pytest.raises(UsageError):
        check_data(tmp_path / "nowhere")


def test_the_reader_raises_what_the_check_lists_first(ruin):
    """Both share one validation; the reader goes split by split and stops."""
    with pytest.raises(DataError) as caught:
        read_benchmark(ruin)
    assert str(caught.value) in [str(finding.as_error()) for finding in check_data(ruin).findings]


def test_fashion_products_is_good(shared):
    report = check_data(shared / "data" / "fashion-products")
    assert not report.fails
    assert set(report.counts) == {"one_word_caption"}
    assert report.decoded == report.pictures == 7_404
