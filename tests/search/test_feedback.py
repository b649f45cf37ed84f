"""Feedback becomes triplets that training reads."""

import json
import shutil
from pathlib import Path

import pytest

from triptych.search.feedback import FeedbackFullError, append_triplet
from triptych.triplets import read_benchmark

CIRCLE, SQUARE = "plain-large-red-circle", "plain-large-blue-square"


def test_what_is_appended_is_a_benchmark(tiny_benchmark: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_benchmark / "images", tmp_path / "images")
    path = tmp_path / "feedback.jsonl"
    first = append_triplet(path, reference=CIRCLE, text='make it "blue"\nplease', target=SQUARE)
    second = append_triplet(path, reference=SQUARE, text="röt 👗", target=CIRCLE, category="plain")
    data = read_benchmark(path)
    assert data.warnings == ()
    assert data.train.triplet_ids == [first, second] or set(data.train.triplet_ids) == {first, second}
    rows = {row.triplet_id: row for row in data.train}
    assert (rows[first].reference, rows[first].target) == (CIRCLE, SQUARE)
    assert rows[second].captions == ("röt 👗",)
    assert rows[second].category == "plain"


def test_a_torn_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "feedback.jsonl"
    append_triplet(path, reference="a", text="x", target="b")
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"id": "torn' + b"x" * 9000)
    append_triplet(path, reference="a", text="y", target="b")
    assert path.read_bytes().startswith(whole)
    assert [json.loads(line)["text"] for line in path.read_text().splitlines()] == ["x", "y"]
    path.write_bytes(b"torn")
    append_triplet(path, reference="a", text="z", target="b")
    assert [json.loads(line)["text"] for line in path.read_text().splitlines()] == ["z"]


def test_the_file_has_a_largest_size(tmp_path: Path) -> None:
    path = tmp_path / "feedback.jsonl"
    append_triplet(path, reference="a", text="x", target="b", most_bytes=120)
    before = path.read_bytes()
    with pytest.raises(FeedbackFullError, match="120 bytes"):
        append_triplet(path, reference="a", text="x", target="b", most_bytes=120)
    assert path.read_bytes() == before
