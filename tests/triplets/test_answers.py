"""Several right answers a query."""

from __future__ import annotations

import json

import pytest

from triptych.errors import DataError
from triptych.triplets import read_benchmark


@pytest.fixture
def data(make_data, entry):
    """Two val queries, and what to write as their answers."""

    def make(answers):
        root = make_data({"x.val": [entry("a", "b"), entry("c", "d")]})
        text = answers if isinstance(answers, str) else json.dumps(answers)
        (root / "ground_truth_multi.json").write_text(text)
        return root

    return make


def test_the_target_comes_first_and_each_id_once(data):
    root = data(
        [{"category": "x", "row": 1, "gt_img_ids": ["e", "d", "e", "f"], "candidate": "c", "target": "d"}]
    )
    benchmark = read_benchmark(root)
    assert benchmark.splits["val"][0].answers == {"x.val.1": ("d", "e", "f")}
    assert "no training" in benchmark.warnings[0]
    assert len(benchmark.warnings) == 1


def test_a_list_without_its_target_warns(data):
    benchmark = read_benchmark(data([{"category": "x", "row": 0, "gt_img_ids": ["e"]}]))
    assert benchmark.splits["val"][0].answers == {"x.val.0": ("b", "e")}
    assert any('the target "b" is not in the list' in warning for warning in benchmark.warnings)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ('{"a": 1}', "ground_truth_multi.json: a list of entries is expected"),
        ("[", "ground_truth_multi.json, line 1: not valid JSON"),
        ([3], "ground_truth_multi.json, entry 0: an object is expected"),
        ([{"category": "y", "row": 0, "gt_img_ids": ["b"]}], "there are no val queries of category y"),
        ([{"category": "x", "row": 2, "gt_img_ids": ["b"]}], "row 2 is not among the 2 queries of x"),
        ([{"category": "x", "row": -1, "gt_img_ids": ["b"]}], "row -1 is not among"),
        ([{"category": "x", "row": "0", "gt_img_ids": ["b"]}], "row '0' is not among"),
        ([{"category": "x", "row": 0, "gt_img_ids": "b"}], "a list of ids, as texts, is expected"),
        ([{"category": "x", "row": 0, "gt_img_ids": []}], "a list of ids, as texts, is expected"),
        ([{"category": "x", "row": 0, "gt_img_ids": ["b", "q"]}], 'the picture "q" is not in the gallery'),
        (
            [{"category": "x", "row": 0, "gt_img_ids": ["b"], "target": "c"}],
            "'c' is not the target of this query",
        ),
    ],
)
def test_answers_that_do_not_fit(data, answers, message):
    with pytest.raises(DataError) as caught:
        read_benchmark(data(answers))
    assert message in str(caught.value)
    assert str(caught.value).startswith("ground_truth_multi.json")
