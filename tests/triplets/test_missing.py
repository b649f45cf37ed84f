"""Pictures that are not there: counted, with what it costs in queries; left out on request."""

from __future__ import annotations

import shutil
from pathlib import Path

from triptych.triplets import read_benchmark
from triptych.triplets.missing import missing_pictures


def test_nothing_missing(tiny_benchmark: Path):
    benchmark = read_benchmark(tiny_benchmark)
    assert missing_pictures(benchmark) == ()
    assert read_benchmark(tiny_benchmark, leave_out_missing=True).notes == ()


def test_the_effect_on_queries_is_said_and_they_are_left_out_on_request(tiny_benchmark: Path, tmp_path: Path):
    root = shutil.copytree(tiny_benchmark, tmp_path / "tiny")
    gone = "plain-large-red-circle"
    (root / "images" / f"{gone}.png").unlink()
    full = read_benchmark(root)
    queries = [query for part in full.splits["val"] for query in part.queries]
    hit = [query.triplet_id for query in queries if gone in (query.reference, query.target)]
    (line,) = missing_pictures(full)
    assert (line.split, line.missing, line.first, line.queries) == ("val", 1, gone, 12)
    assert line.queries_hit == len(hit) > 0
    said = f"1 of 24 pictures of val are missing, which leaves {12 - len(hit)} of 12 queries"
    assert any(said in warning for warning in full.warnings)
    less = read_benchmark(root, leave_out_missing=True)
    assert less.notes == (said + ".",)
    assert sum(len(part.queries) for part in less.splits["val"]) == 12 - len(hit)
    assert all(gone not in part.gallery for part in less.splits["val"])
    assert {part.category: len(part.gallery) for part in less.splits["val"]} == {"plain": 11, "tinted": 12}
    assert not set(hit) & {name for part in less.splits["val"] for name in part.answers}
    assert less.gallery_hash("val") != full.gallery_hash("val")


def test_union_galleries(tiny_benchmark: Path):
    (part, _) = read_benchmark(tiny_benchmark, gallery="union").splits["val"]
    (whole, _) = read_benchmark(tiny_benchmark).splits["val"]
    assert set(part.gallery) == set(part.queries.image_ids()) < set(whole.gallery)
    assert list(part.gallery) == [name for name in whole.gallery if name in part.gallery]
