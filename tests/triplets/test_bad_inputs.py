"""Every file of the shared folder ``bad-inputs``, with what its README says a user expects."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from triptych.errors import DataError
from triptych.triplets import ImageError, ImageStore, read_benchmark
from triptych.triplets.check import check_data


@pytest.fixture(scope="session")
def bad(shared: Path) -> Path:
    return shared / "data" / "bad-inputs"


@pytest.fixture(scope="session")
def store(bad: Path) -> ImageStore:
    return ImageStore.open(bad / "images")


def pixels(image: Image.Image) -> np.ndarray:
    return np.asarray(image, dtype=int)


# --- images ---------------------------------------------------------------------------------------

REFUSED = {
    "truncated": "truncated",
    "zero_bytes": "empty",
    "text_renamed": "not_an_image",
    "broken_data": "truncated",
    "bomb_header": "too_large",
}

DECODED = {
    "cmyk": (96, 96),
    "gray_16bit": (96, 96),
    "rgb_16bit": (96, 96),
    "gray": (96, 96),
    "gray_alpha": (96, 96),
    "bilevel": (96, 96),
    "rgba_transparent": (96, 96),
    "palette": (96, 96),
    "animated": (64, 64),
    "photo": (96, 96),
    "progressive": (96, 96),
    "png_named": (96, 96),
    "UPPER": (96, 96),
    "exif_rotated": (120, 180),
    "one_pixel": (1, 1),
    "tall_1x2000": (1, 2000),
    "wide_2000x1": (2000, 1),
    "naïve café 👗": (96, 96),
    "衬衫-рубашка": (96, 96),
    "red dress (1) copy": (96, 96),
}


def test_every_picture_is_in_one_of_the_two_tables(store):
    assert set(store.ids) == {*REFUSED, *DECODED}


@pytest.mark.parametrize("image_id", REFUSED)
def test_refused_by_name(bad, image_id):
    store = ImageStore.open(bad / "images")
    started = time.perf_counter()
    with pytest.raises(ImageError) as caught:
        store.load(image_id)
    assert time.perf_counter() - started < 1
    assert caught.value.kind == REFUSED[image_id]
    assert f"images/{image_id}." in str(caught.value)
    assert store.errors == {REFUSED[image_id]: 1}


@pytest.mark.parametrize("image_id", DECODED)
def test_decoded_to_rgb(store, image_id):
    image = store.load(image_id)
    assert (image.mode, image.size) == ("RGB", DECODED[image_id])
    assert f"images/{image_id}." in store.source(image_id)


def test_the_bomb_takes_no_memory_and_names_its_size(store):
    with pytest.raises(ImageError, match="10000000000 pixels"):
        store.load("bomb_header")


@pytest.mark.parametrize(
    ("image_id", "within"), [("cmyk", 6), ("rgb_16bit", 4), ("progressive", 6), ("photo", 6)]
)
def test_colours_are_those_of_the_plain_photo(store, image_id, within):
    """All were made from one photo; UPPER is its plain JPEG."""
    assert np.abs(pixels(store.load(image_id)) - pixels(store.load("UPPER"))).mean() < within


def test_16_bit_grey_equals_8_bit_grey_within_one_level(store):
    assert np.abs(pixels(store.load("gray_16bit")) - pixels(store.load("gray"))).max() <= 1


@pytest.mark.parametrize("image_id", ["gray", "gray_alpha", "bilevel"])
def test_three_equal_channels(store, image_id):
    values = pixels(store.load(image_id))
    assert (values == values[..., :1]).all()
    assert values.std() > 10


@pytest.mark.parametrize("image_id", ["rgba_transparent", "palette"])
def test_transparent_corners_are_white(store, image_id):
    assert pixels(store.load(image_id))[0, 0].tolist() == [255, 255, 255]


def test_an_animation_gives_the_same_frame_each_time(store):
    first = pixels(store.load("animated"))
    assert (pixels(store.load("animated")) == first).all()
    with Image.open(store.path / "animated.gif") as raw:
        raw.seek(1)
        assert np.abs(pixels(raw.convert("RGB")) - first).mean() > 5


def test_exif_rotation(store):
    with Image.open(store.path / "exif_rotated.jpg") as raw:
        assert raw.size == (180, 120)
        turned = pixels(raw.rotate(-90, expand=True))  # orientation 6: the top of the scene is at the right
    assert np.abs(pixels(store.load("exif_rotated")) - turned).max() == 0


# --- annotations ----------------------------------------------------------------------------------


@pytest.fixture
def with_captions(bad: Path, tmp_path: Path):
    """Put a caption file where the control's captions are, with the control's split and photos."""

    def make(name: str, category: str = "good", split: str = "train") -> Path:
        root = tmp_path / "data"
        (root / "captions").mkdir(parents=True)
        (root / "image_splits").mkdir()
        shutil.copy(bad / "annotations" / name, root / "captions" / f"cap.{category}.{split}.json")
        shutil.copy(
            bad / "good" / "split.good.json", root / "image_splits" / f"split.{category}.{split}.json"
        )
        (root / "images").mkdir()
        for photo in (bad / "good").glob("*.jpg"):
            shutil.copy(photo, root / "images")
        return root

    return make


CAP = re.escape("captions/cap.good.train.json")

ERRORS = {
    "cap.missing_target.json": rf'{CAP}, entry 1: "target" is missing',
    "cap.missing_candidate.json": rf'{CAP}, entry 1: "candidate" is missing',
    "cap.empty_captions.json": rf'{CAP}, entry 1: "captions" is an empty list',
    "cap.blank_captions.json": rf'{CAP}, entry 1: "captions" has no word in it',
    "cap.caption_is_a_string.json": rf'{CAP}, entry 1: "captions" must be a list of texts, not a text',
    "cap.non_string_caption.json": rf'{CAP}, entry 1: "captions": caption 1 must be a text, not the number',
    "cap.null_caption.json": rf'{CAP}, entry 1: "captions": caption 1 must be a text, not null',
    "cap.id_not_in_split.json": rf'{CAP}, entry 1: the picture "99999999" is not in .*split.good.train.json'
    r' \(field "target"\)',
    "cap.trailing_comma.json": rf"{CAP}, line 26: not valid JSON at column 1: ",
    "cap.cut_off.json": rf"{CAP}, line 23: not valid JSON at column 4: ",
    "cap.latin1.json": rf"{CAP}, line 14: the encoding is not UTF-8",
    "cap.not_a_list.json": rf"{CAP}: a list is expected",
    "cap.empty.json": rf"{CAP}: there are no triplets in it",
}

ACCEPTED = {
    "cap.one_caption.json": 3,
    "cap.integer_id.json": 3,
    "cap.bom.json": 3,
    "cap.unicode_captions.json": 3,
    "cap.duplicate_triplets.json": 5,
    "cap.same_image.json": 3,
}


def test_every_caption_file_is_in_one_of_the_two_tables(bad):
    files = {path.name for path in (bad / "annotations").glob("cap.*.json")}
    assert files == {*ERRORS, *ACCEPTED}


@pytest.mark.parametrize("name", ERRORS)
def test_captions_refused(with_captions, name):
    root = with_captions(name)
    with pytest.raises(DataError, match=f"^{ERRORS[name]}") as caught:
        read_benchmark(root)
    assert "\n  " in str(caught.value), "there is a mend"
    report = check_data(root)
    assert report.fails
    finding = report.findings[0]
    assert finding.severity == "error"
    assert str(finding.as_error()) == str(caught.value), "the check says the same"


@pytest.mark.parametrize("name", ACCEPTED)
def test_captions_accepted(with_captions, name):
    root = with_captions(name)
    assert len(read_benchmark(root).train) == ACCEPTED[name]
    assert not check_data(root).fails


def test_what_was_accepted_was_read_right(with_captions, tmp_path):
    benchmark = read_benchmark(with_captions("cap.integer_id.json"))
    assert benchmark.train[1].reference == "15108"
    assert benchmark.warnings == ()


def test_one_caption(with_captions):
    assert read_benchmark(with_captions("cap.one_caption.json")).train[1].captions == ("green not dark red",)


def test_unicode_captions(with_captions):
    train = read_benchmark(with_captions("cap.unicode_captions.json")).train
    assert train[1].captions == ("is “navy” — not black 👗", "décolleté, très chic")


def test_duplicates_are_counted(with_captions):
    (warning,) = read_benchmark(with_captions("cap.duplicate_triplets.json")).warnings
    assert warning.startswith("2 triplets that occur again (first: captions/cap.good.train.json, entry 2:")


def test_reference_equal_to_target_warns(with_captions):
    (warning,) = read_benchmark(with_captions("cap.same_image.json")).warnings
    assert warning.startswith("captions/cap.good.train.json, entry 1:")
    assert '"15108"' in warning


def test_a_test_split_needs_no_targets(with_captions):
    root = with_captions("cap.missing_target.json", split="test1")
    (query_set,) = read_benchmark(root).splits["test1"]
    assert query_set.queries.column("target") == ["12234", None, "19831"]


def test_a_validation_split_needs_targets(with_captions):
    with pytest.raises(DataError, match=r'cap\.good\.val\.json, entry 1: "target" is missing'):
        read_benchmark(with_captions("cap.missing_target.json", split="val"))


def test_a_gallery_counts_a_photo_once(bad, with_captions):
    root = with_captions("cap.bom.json", split="val")
    shutil.copy(
        bad / "annotations" / "split.duplicate_ids.json", root / "image_splits" / "split.good.val.json"
    )
    benchmark = read_benchmark(root)
    (query_set,) = benchmark.splits["val"]
    assert query_set.gallery == ("12234", "12770", "14782", "15037", "15108", "19831")
    assert any("entry 6" in warning and '"12234"' in warning for warning in benchmark.warnings)


def test_the_control_loads_without_a_warning(bad):
    benchmark = read_benchmark(bad / "good")
    assert (len(benchmark.train), len(benchmark.images)) == (3, 6)
    assert benchmark.warnings == ()
    report = check_data(bad / "good")
    assert report.findings == ()
    assert (report.pictures, report.decoded) == (6, 6)


TABLES = {
    "triplets.quoted_crlf.csv": 3,
    "triplets.newline_in_caption.csv": 1,
    "triplets.bom_semicolon.csv": 3,
    "triplets.missing_column.csv": r'triplets\.missing_column\.csv, line 1: the column "target" is missing',
    "triplets.short_row.csv": r"triplets\.short_row\.csv, line 3: 2 cells, but the header has 3 columns",
}


def test_every_table_is_listed(bad):
    assert {path.name for path in (bad / "annotations").glob("*.csv")} == set(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_tables(bad, name):
    expected = TABLES[name]
    path = bad / "annotations" / name
    if isinstance(expected, str):
        with pytest.raises(DataError, match=f"^{expected}"):
            read_benchmark(path, images=bad / "good")
        assert check_data(path, images=bad / "good").fails
    else:
        benchmark = read_benchmark(path, images=bad / "good")
        assert len(benchmark.train) == expected
        assert benchmark.warnings == ()
        assert not check_data(path, images=bad / "good").fails


def test_quotes_and_line_breaks_in_tables(bad):
    quoted = read_benchmark(bad / "annotations" / "triplets.quoted_crlf.csv").train
    assert quoted[1].captions == ('says "peace", in red, on the front',)
    broken = read_benchmark(bad / "annotations" / "triplets.newline_in_caption.csv").train
    assert broken[0].captions == ("is blue\nand has stripes",)


# --- archives -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["path_traversal.zip", "path_traversal.tar"])
def test_path_traversal_writes_nothing(bad, tmp_path, name):
    (tmp_path / "in").mkdir()
    shutil.copy(bad / "archives" / name, tmp_path / "in")
    store = ImageStore.open(tmp_path / "in" / name)
    assert store.ids == ("12234",)
    assert store.load("12234").mode == "RGB"
    assert store.left_out == {"unsafe_path": 1}
    assert "1 entries" in store.warnings[0]
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [name]


def test_a_cut_off_archive_is_named(bad):
    with pytest.raises(DataError, match=r"cut_off\.zip: the archive is cut off or damaged"):
        ImageStore.open(bad / "archives" / "cut_off.zip")


def test_every_archive_is_tested(bad):
    names = {path.name for path in (bad / "archives").iterdir()}
    assert names == {"path_traversal.zip", "path_traversal.tar", "cut_off.zip"}
