"""CIRCO's layout: official annotations by their counts, small data by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from triptych.errors import DataError
from triptych.triplets import read_benchmark
from triptych.triplets.check import check_data


def test_official_circo(shared: Path):
    benchmark = read_benchmark(shared / "data" / "circo")
    (val,), (test,) = benchmark.splits["val"], benchmark.splits["test"]
    assert (len(val.queries), len(test.queries)) == (220, 800)
    counts = [len(found) for found in val.answers.values()]
    assert (len(counts), min(counts), max(counts)) == (220, 1, 14)
    assert sum(counts) / 220 == pytest.approx(4.16, abs=0.005)
    for query in val.queries:
        assert val.answers[query.triplet_id][0] == query.target
        assert query.reference not in val.answers[query.triplet_id]  # spec 2.4
    assert set(test.queries.column("target")) == {None}
    assert len({aspect for own in val.aspects.values() for aspect in own}) == 9
    assert not benchmark.gallery_known
    assert any("COCO's unlabeled2017 has 123,403" in warning for warning in benchmark.warnings)
    assert "Attribution-NonCommercial" in benchmark.licence


def test_a_small_circo(tiny_circo: Path):
    benchmark = read_benchmark(tiny_circo)
    (val,) = benchmark.splits["val"]
    assert val.queries[1].reference == "000000000029"
    assert val.queries[1].captions == ("is blue",), "the relative caption alone"
    assert val.answers["val.1"] == ("000000000120", "000000000204")
    assert val.aspects["val.0"] == ("compare_change",)
    assert (len(val.gallery), benchmark.gallery_known, benchmark.protocol) == (60, True, "circo")
    assert benchmark.images.load("000000000022").size == (64, 64)
    report = check_data(tiny_circo)
    assert not report.fails
    assert report.counts["no_training"] == 1


def test_cocos_own_list_is_the_gallery(tiny_circo: Path, tmp_path: Path):
    root = shutil.copytree(tiny_circo, tmp_path / "CIRCO")
    names = [f"{7 * at + 22:012d}" for at in range(60)]
    images = [
        {"license": 1, "file_name": f"{name}.jpg", "id": int(name)} for name in [*names, "000000009999"]
    ]
    path = root / "COCO2017_unlabeled" / "annotations" / "image_info_unlabeled2017.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"licenses": [{"id": 1}], "images": images}))
    benchmark = read_benchmark(root)
    assert benchmark.splits["val"][0].gallery == (*names, "000000009999")
    assert any(
        "1 of 61 pictures of val are missing, which leaves 4 of 4 queries" in w for w in benchmark.warnings
    )


@pytest.mark.parametrize("place", ["unlabeled2017", "../coco/unlabeled2017", "coco2017/unlabeled2017"])
def test_cocos_pictures_are_found(tiny_circo: Path, tmp_path: Path, place: str):
    root = shutil.copytree(tiny_circo, tmp_path / "CIRCO")
    to = root / place
    to.parent.mkdir(parents=True, exist_ok=True)
    (root / "COCO2017_unlabeled" / "unlabeled2017").rename(to)
    assert len(read_benchmark(root).images) == 60


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: e[1].pop("target_img_id"), 'annotations/val.json, entry 1: "target_img_id" is missing'),
        (lambda e: e[1].update(id=0), "entry 1: the id 0 was used before"),
        (lambda e: e[1].update(gt_img_ids=["x"]), 'entry 1: "gt_img_ids" is no list of ids'),
        (lambda e: e.__setitem__(2, 5), "entry 2: an object is expected, not the number 5"),
    ],
)
def test_bad_entries_are_named(tiny_circo: Path, tmp_path: Path, change, message: str):
    root = shutil.copytree(tiny_circo, tmp_path / "CIRCO")
    path = root / "annotations" / "val.json"
    entries = json.loads(path.read_text())
    change(entries)
    path.write_text(json.dumps(entries))
    with pytest.raises(DataError, match=message):
        read_benchmark(root)
    assert check_data(root).fails
