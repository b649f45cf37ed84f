"""What lies in a folder decides how it is read."""

from __future__ import annotations

import zipfile

import pytest

from triptych.errors import DataError, UsageError
from triptych.triplets import read_benchmark

TABLE = "reference,text,target\na,is red,b\n"


def test_nothing_there(tmp_path):
    with pytest.raises(UsageError, match="no such file or folder"):
        read_benchmark(tmp_path / "nowhere")


def test_no_triplets(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    for path in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(DataError, match="no triplets found") as caught:
            read_benchmark(path)
        assert "triplets.csv" in str(caught.value)


def test_the_only_table_of_a_folder(tmp_path):
    (tmp_path / "mine.csv").write_text(TABLE)
    assert len(read_benchmark(tmp_path).train) == 1


def test_a_table_called_triplets_wins(tmp_path):
    (tmp_path / "attributes.csv").write_text("id,colour\na,red\n")
    (tmp_path / "triplets.csv").write_text(TABLE)
    assert len(read_benchmark(tmp_path).train) == 1


def test_two_tables_that_could_be_meant(tmp_path):
    for name in ("one.csv", "two.csv"):
        (tmp_path / name).write_text(TABLE)
    with pytest.raises(DataError, match=r"one\.csv, two\.csv"):
        read_benchmark(tmp_path)


def test_the_fashioniq_layout_wins_over_tables_beside_it(make_data, entry):
    root = make_data({"x.train": [entry("a", "b")]})
    (root / "attributes.csv").write_text("id,colour\na,red\n")
    assert read_benchmark(root).train.triplet_ids == ["x.train.0"]


def test_an_archive_of_pictures_wins_over_a_folder_and_says_so(make_data, entry, picture):
    root = make_data({"x.train": [entry("a", "b")]})
    with zipfile.ZipFile(root / "images.zip", "w") as archive:
        for image_id in "ab":
            archive.writestr(f"{image_id}.png", picture("blue"))
    benchmark = read_benchmark(root)
    assert benchmark.images.load("a").getpixel((0, 0)) == (0, 0, 255)
    assert "images is there too and is not read" in benchmark.warnings[0]


def test_oddities_of_the_pictures_are_warnings(make_data, entry):
    root = make_data({"x.train": [entry("a", "b")]})
    (root / "images" / "c.heic").write_bytes(b"x")
    assert any("1 pictures of images have an ending" in warning for warning in read_benchmark(root).warnings)


def test_a_broken_archive_of_pictures(make_data, entry):
    root = make_data({"x.train": [entry("a", "b")]}, pictures=None)
    (root / "images.zip").write_bytes(b"PK\3\4 cut")
    with pytest.raises(DataError, match=r"images\.zip: the archive is cut off"):
        read_benchmark(root)


def test_pictures_given_that_are_not_there(make_data, entry):
    root = make_data({"x.train": [entry("a", "b")]})
    with pytest.raises(UsageError, match="no such folder"):
        read_benchmark(root, images=root / "elsewhere")


def test_no_training_triplets_is_a_warning(make_data, entry):
    benchmark = read_benchmark(make_data({"x.val": [entry("a", "b")]}))
    assert len(benchmark.train) == 0
    assert benchmark.warnings == ("data: there are no training triplets",)
