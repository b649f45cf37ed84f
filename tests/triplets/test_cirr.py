"""CIRR's layout: official annotations by their counts, small data by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from triptych.errors import DataError
from triptych.triplets import read_benchmark
from triptych.triplets.check import check_data


def test_official_cirr(shared: Path):
    benchmark = read_benchmark(shared / "data" / "cirr")
    counts = {"val": (4181, 2297), "test1": (4148, 2315)}  # spec 1.1
    for split, (queries, gallery) in counts.items():
        (part,) = benchmark.splits[split]
        assert (len(part.queries), len(part.gallery)) == (queries, gallery)
        assert {len(group) for group in part.queries.column("group")} == {6}
    (val,) = benchmark.splits["val"]
    for query in val.queries:
        assert query.group is not None
        assert {query.reference, query.target} <= set(query.group) <= set(val.gallery)
    assert set(benchmark.splits["test1"][0].queries.column("target")) == {None}
    assert (len(benchmark.train), benchmark.protocol) == (0, "cirr")
    assert "MIT" in benchmark.licence
    assert any("caption 0 is blank" in warning for warning in benchmark.warnings), "and yet it is a query"


def test_a_small_cirr(tiny_cirr: Path):
    benchmark = read_benchmark(tiny_cirr)
    assert (len(benchmark.train), len(benchmark.images)) == (12, 84)
    (val,) = benchmark.splits["val"]
    assert val.queries.triplet_ids[0] == "val.12013"
    assert val.queries[0].captions == ("make it green, same shape.",)
    assert val.queries[0].target == "dev-1-0-img1"
    assert benchmark.train[0].group is not None
    assert benchmark.warnings == ()
    assert not check_data(tiny_cirr).fails


@pytest.mark.parametrize("below", ["cirr", "cirr_dataset/cirr"])
def test_annotations_below_the_pictures(tiny_cirr: Path, tmp_path: Path, below: str):
    """As other projects lay CIRR out: the folders of pictures beside a folder of annotations."""
    home = tmp_path / "data" / below
    for name in ("captions", "image_splits"):
        shutil.copytree(tiny_cirr / name, home / name)
    for name in ("train", "dev", "test1"):
        shutil.copytree(tiny_cirr / name, home.parent / name)
    benchmark = read_benchmark(tmp_path / "data")
    assert len(benchmark.images) == 84
    assert len(benchmark.train) == 12
    assert len(read_benchmark(home).images) == 84, "also when the annotations themselves are named"


def test_pictures_in_img_raw(tiny_cirr: Path, tmp_path: Path):
    root = shutil.copytree(tiny_cirr, tmp_path / "cirr")
    (root / "img_raw").mkdir()
    for name in ("train", "dev", "test1"):
        (root / name).rename(root / "img_raw" / name)
    assert len(read_benchmark(root).images) == 84


def edited(tiny_cirr: Path, tmp_path: Path, change) -> Path:
    root = shutil.copytree(tiny_cirr, tmp_path / "changed")
    path = root / "captions" / "cap.rc2.val.json"
    entries = json.loads(path.read_text())
    change(entries)
    path.write_text(json.dumps(entries))
    return root


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: e[2].pop("target_hard"), 'cap.rc2.val.json, entry 2: "target_hard" is missing'),
        (lambda e: e[1].update(pairid=e[0]["pairid"]), "entry 1: the pairid 12013 was used before"),
        (lambda e: e[1].update(pairid="x"), "entry 1: the pairid 'x' is no whole number"),
        (lambda e: e[3].update(target_hard="gone", img_set=None), 'entry 3: the picture "gone" is not in'),
        (lambda e: e[3].update(img_set={"members": 3}), 'entry 3: "img_set" has no list of members'),
        (lambda e: e[0].update(caption=" . "), 'entry 0: "caption" has no word in it'),
        (lambda e: e[0].update(caption=None), 'entry 0: "caption" is missing'),
    ],
)
def test_bad_entries_are_named(tiny_cirr: Path, tmp_path: Path, change, message: str):
    root = edited(tiny_cirr, tmp_path, change)
    with pytest.raises(DataError, match=message):
        read_benchmark(root)
    assert check_data(root).fails


def test_a_subset_without_its_reference_is_left_out_of_the_subset_recall(tiny_cirr: Path, tmp_path: Path):
    root = edited(tiny_cirr, tmp_path, lambda e: e[0]["img_set"]["members"].remove(e[0]["reference"]))
    benchmark = read_benchmark(root)
    assert benchmark.splits["val"][0].queries[0].group is None
    assert any("is not a member of its own subset" in warning for warning in benchmark.warnings)


def test_a_list_of_pictures_that_is_gone_or_no_object(tiny_cirr: Path, tmp_path: Path):
    root = shutil.copytree(tiny_cirr, tmp_path / "cirr")
    path = root / "image_splits" / "split.rc2.val.json"
    path.write_text("[]")
    with pytest.raises(DataError, match=r"split\.rc2\.val\.json: an object is expected"):
        read_benchmark(root)
    path.unlink()
    with pytest.raises(DataError, match=r"there is no image_splits/split\.rc2\.val\.json"):
        read_benchmark(root)
