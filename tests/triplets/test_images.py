"""ImageStore: folders, zips and tars, read in place."""

from __future__ import annotations

import hashlib
import io
import multiprocessing
import os
import pickle
import tarfile
import unicodedata
import zipfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from triptych.errors import DataError, UsageError
from triptych.triplets.images import ImageError, ImageStore, find_images


def random_png(seed: int) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (6, 5, 3), dtype=np.uint8)).save(out, "PNG")
    return out.getvalue()


PICTURES = {f"sub/{number}.png": random_png(number) for number in range(20)}


def write_folder(path: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def write_zip(path: Path, files: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def write_tar(path: Path, files: dict[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


WRITERS = {
    "folder": lambda path, files: write_folder(path / "images", files),
    "zip": lambda path, files: write_zip(path / "images.zip", files),
    "stored zip": lambda path, files: write_zip(path / "images.zip", files, zipfile.ZIP_STORED),
    "tar": lambda path, files: write_tar(path / "images.tar", files),
}


@pytest.fixture(params=list(WRITERS))
def write(request, tmp_path):
    """Writes files to a folder or an archive, and gives its path."""
    return lambda files: WRITERS[request.param](tmp_path, files)


def test_every_kind_gives_the_same_bytes_and_changes_nothing(write, tmp_path):
    path = write(PICTURES)
    before = sorted(tmp_path.rglob("*"))
    store = ImageStore.open(path)
    assert store.ids == tuple(sorted(str(number) for number in range(20)))
    assert len(store) == 20
    for name, data in PICTURES.items():
        image_id = Path(name).stem
        assert image_id in store
        assert store.read(image_id) == data
        assert store.digest(image_id) == hashlib.sha256(data).hexdigest()
        assert store.source(image_id) == f"{path.name}/{name}"
        assert store.load(image_id).size == (5, 6)
    assert not store.errors
    assert not store.warnings
    assert sorted(tmp_path.rglob("*")) == before


def test_names_and_endings(write):
    names = [
        "UPPER.JPG",
        "a.JpEg",
        "naïve café 👗.png",
        "衬衫-рубашка.webp",
        "red dress (1) copy.tiff",
        "B00.1.gif",
    ]
    store = ImageStore.open(write({name: random_png(0) for name in names}))
    expected = {"UPPER", "a", "naïve café 👗", "衬衫-рубашка", "red dress (1) copy", "B00.1"}
    assert set(store.ids) == expected
    for name in [*names, *expected, "deep/folder/UPPER.JPG", "./a.jpeg"]:
        assert name in store
    assert "upper" not in store
    assert 3 not in store


def test_one_name_in_two_unicode_forms_is_one_id(write):
    decomposed = unicodedata.normalize("NFD", "café")
    store = ImageStore.open(write({f"{decomposed}.png": random_png(0)}))
    assert "café" in store
    assert decomposed in store
    assert store.ids == ("café",)


def test_what_is_not_taken_is_counted(write):
    files = {
        "a.png": random_png(0),
        "notes.txt": b"x",
        "b.heic": b"x",
        ".c.png": b"x",
        "__MACOSX/._a.png": b"x",
    }
    store = ImageStore.open(write(files))
    assert store.ids == ("a",)
    assert store.left_out == Counter(other=1, foreign=1, hidden=2)
    assert len(store.warnings) == 1
    assert "1 pictures" in store.warnings[0]


def test_two_files_with_one_id(write):
    files = {
        "x/1.png": random_png(1),
        "y/1.png": random_png(2),
        "y/1.jpg": random_png(3),
        "2.png": random_png(4),
    }
    store = ImageStore.open(write(files))
    assert store.ids == ("1", "2")
    assert store.left_out["duplicate_id"] == 2
    assert "1 ids of" in store.warnings[0]
    assert store.read("1") == files["x/1.png"]
    assert store.read("y/1.png") == files["y/1.png"]
    assert store.read("y/1.jpg") == files["y/1.jpg"]
    assert store.read("1.jpg") == files["y/1.jpg"]
    assert "z/1" not in store
    assert store.read("z/2") == files["2.png"]  # no choice, so folders of another root do not matter


def test_refusals_are_named_and_counted(write):
    whole = random_png(0)
    store = ImageStore.open(
        write({"cut.png": whole[:60], "text.jpg": b"hello", "empty.gif": b"", "good.png": whole})
    )
    for image_id, kind in [
        ("cut", "truncated"),
        ("text", "not_an_image"),
        ("empty", "empty"),
        ("gone", "missing"),
    ]:
        with pytest.raises(ImageError) as caught:
            store.load(image_id)
        assert (caught.value.kind, caught.value.image_id) == (kind, image_id)
        assert image_id in str(caught.value)
        assert "\n" in str(caught.value), "there is a mend"
    store.load("good")
    assert store.errors == Counter(truncated=1, not_an_image=1, empty=1, missing=1)


def test_a_smaller_limit_of_pixels(write):
    store = ImageStore.open(write({"a.png": random_png(0)}), max_pixels=29)
    with pytest.raises(ImageError) as caught:
        store.load("a")
    assert caught.value.kind == "too_large"


def test_an_empty_store():
    store = ImageStore.empty("annotations")
    assert len(store) == 0
    assert "a" not in store
    with pytest.raises(ImageError, match="came without pictures"):
        store.read("a")


def test_missing_keeps_the_order():
    store = ImageStore.empty("x")
    assert store.missing(["b", "a"]) == ["b", "a"]


@pytest.mark.parametrize(
    "name", ["../out.png", "a/../../out.png", "/etc/out.png", "C:/out.png", "..\\out.png"]
)
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_entries_that_point_outside_are_left_out(kind, name, tmp_path):
    path = WRITERS[kind](tmp_path, {name: random_png(0), "good.png": random_png(1)})
    store = ImageStore.open(path)
    assert store.ids == ("good",)
    assert store.left_out == Counter(unsafe_path=1)
    assert "1 entries" in store.warnings[0]


def test_links_in_archives_are_left_out(tmp_path):
    with tarfile.open(tmp_path / "t.tar", "w") as archive:
        link = tarfile.TarInfo("link.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    link_in_zip = zipfile.ZipInfo("link.png")
    link_in_zip.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.writestr(link_in_zip, "/etc/passwd")
    for name in ("t.tar", "z.zip"):
        store = ImageStore.open(tmp_path / name)
        assert len(store) == 0
        assert store.left_out == Counter(link=1)


def test_links_to_folders_are_followed_once(tmp_path):
    write_folder(tmp_path / "elsewhere", {"a.png": random_png(0)})
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "loop").symlink_to(tmp_path / "images")
    store = ImageStore.open(tmp_path / "images")
    assert store.ids == ("a",)
    assert store.left_out["duplicate_id"] == 0


def test_a_file_that_went_away_is_missing(tmp_path):
    store = ImageStore.open(write_folder(tmp_path / "images", {"a.png": random_png(0)}))
    (tmp_path / "images" / "a.png").unlink()
    with pytest.raises(ImageError) as caught:
        store.read("a")
    assert caught.value.kind == "missing"


@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.9, 0.999])
def test_a_cut_off_zip_is_named(tmp_path, fraction):
    path = write_zip(tmp_path / "cut.zip", PICTURES)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * fraction)])
    with pytest.raises(DataError, match=r"cut\.zip: the archive is cut off or damaged"):
        ImageStore.open(path)


@pytest.mark.parametrize("fraction", [0.001, 0.31, 0.42])
def test_a_cut_off_tar_is_named(tmp_path, fraction):
    path = write_tar(tmp_path / "cut.tar", PICTURES)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * fraction)])
    with pytest.raises(DataError, match=r"cut\.tar: the archive is cut off or damaged"):
        ImageStore.open(path)


def test_a_tar_cut_between_two_entries_warns(tmp_path):
    path = write_tar(tmp_path / "cut.tar", PICTURES)
    path.write_bytes(path.read_bytes()[: 10 * 1024])  # header and body take 512 bytes each: ten entries
    store = ImageStore.open(path)
    assert len(store) == 10
    assert "no end mark" in store.warnings[0]


def test_a_damaged_header_inside_a_tar_is_an_error(tmp_path):
    """Not a shorter archive without a word."""
    path = write_tar(tmp_path / "damaged.tar", PICTURES)
    data = bytearray(path.read_bytes())
    data[5 * 1024 + 150] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(DataError, match="no header can be read at byte 5,120"):
        ImageStore.open(path)


def test_damage_inside_a_zip_is_found_by_its_checksum(tmp_path):
    path = write_zip(tmp_path / "z.zip", {"a.png": random_png(0), "b.png": random_png(1)}, zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    data[80] ^= 0xFF  # inside the pixels of the first entry
    path.write_bytes(bytes(data))
    store = ImageStore.open(path)
    with pytest.raises(ImageError, match=r"z\.zip/a\.png.*checksum") as caught:
        store.read("a")
    assert caught.value.kind == "unreadable"
    assert store.read("b") == random_png(1)


def test_a_zip_entry_with_a_password_and_an_odd_method(tmp_path):
    path = write_zip(tmp_path / "z.zip", {"a.png": random_png(0)}, zipfile.ZIP_LZMA)
    with pytest.raises(ImageError, match="method other than"):
        ImageStore.open(path).read("a")
    path = write_zip(tmp_path / "locked.zip", {"a.png": random_png(0)})
    data = path.read_bytes()
    directory = data.index(b"PK\1\2")
    path.write_bytes(data[: directory + 8] + b"\1" + data[directory + 9 :])  # the flag of an encrypted entry
    with pytest.raises(ImageError, match="password"):
        ImageStore.open(path).read("a")


def test_a_zip_bomb_is_not_unpacked(tmp_path):
    """An entry that says it is small and is not: unpacking stops one byte after what was said."""
    path = write_zip(tmp_path / "bomb.zip", {"a.png": bytes(10_000_000)})
    data = bytearray(path.read_bytes())
    directory = data.index(b"PK\1\2")
    data[directory + 24 : directory + 28] = (100).to_bytes(4, "little")
    path.write_bytes(bytes(data))
    with pytest.raises(ImageError, match="damaged"):
        ImageStore.open(path).read("a")


def test_utf8_names_without_the_flag(tmp_path):
    """Some tools write UTF-8 names into a zip and do not say so."""
    path = write_zip(tmp_path / "z.zip", {"caf\u00e9.png": random_png(0)})
    data = path.read_bytes()
    for signature, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        at = data.index(signature) + offset
        flags = int.from_bytes(data[at : at + 2], "little") & ~0x800
        data = data[:at] + flags.to_bytes(2, "little") + data[at + 2 :]
    path.write_bytes(data)
    store = ImageStore.open(path)
    assert store.ids == ("café",)
    assert store.read("café") == random_png(0)


@pytest.mark.parametrize("name", ["images.tar.gz", "images.tgz", "images.7z"])
def test_packed_archives_are_refused_with_a_mend(tmp_path, name):
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(DataError, match="in place") as caught:
        ImageStore.open(tmp_path / name)
    assert "Unpack it" in str(caught.value)


def test_wrong_places(tmp_path):
    with pytest.raises(UsageError, match="no such folder"):
        ImageStore.open(tmp_path / "nowhere")
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(DataError, match="neither a folder"):
        ImageStore.open(tmp_path / "a.txt")
    (tmp_path / "gz.tar").write_bytes(write_tar(tmp_path / "x.tar.gz", PICTURES, "w:gz").read_bytes())
    with pytest.raises(DataError, match=r"gz\.tar"):
        ImageStore.open(tmp_path / "gz.tar")


def test_find_images(tmp_path, picture):
    assert find_images(tmp_path) == []
    (tmp_path / "images").mkdir()
    write_zip(tmp_path / "images.zip", {})
    assert [path.name for path in find_images(tmp_path)] == ["images.zip", "images"]


def test_many_threads_read_the_right_bytes_and_count_every_refusal(write):
    store = ImageStore.open(write(PICTURES))

    def work(number: int) -> bool:
        if number % 5 == 0:
            with pytest.raises(ImageError):
                store.load("gone")
        return store.read(str(number % 20)) == PICTURES[f"sub/{number % 20}.png"]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(500)))
    assert store.errors == Counter(missing=100)


def _digests(store: ImageStore) -> list[str]:
    return [store.digest(image_id) for image_id in store.ids * 3]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_forked_processes_read_the_right_bytes(write):
    store = ImageStore.open(write(PICTURES))
    expected = _digests(store)
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        assert pool.map(_digests, [store] * 4) == [expected] * 4


def test_a_store_can_be_sent_to_another_process(write):
    store = ImageStore.open(write(PICTURES))
    other = pickle.loads(pickle.dumps(store))
    assert _digests(other) == _digests(store)
    with pytest.raises(ImageError):
        other.load("gone")
    assert (other.errors["missing"], store.errors["missing"]) == (1, 0)


def test_an_image_error_can_be_sent_to_another_process():
    with pytest.raises(ImageError) as caught:
        ImageStore.empty("x").load("a")
    other = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(other, ImageError)
    assert (str(other), other.kind, other.image_id) == (str(caught.value), "missing", "a")
