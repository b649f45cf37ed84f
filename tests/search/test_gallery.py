"""The gallery on disk: what is indexed, what is kept, who may write, what is damaged."""

import multiprocessing
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from triptych.errors import DataError, UsageError
from triptych.search import Gallery, find_pictures, index_images
from triptych.search.columns import id_filter
from triptych.search.filter_tree import Comparison
from triptych.search.gallery import fingerprint
from triptych.search.lock import BusyError, writing
from triptych.search.metadata import read_metadata
from triptych.search.verify import verify

CIRCLE = "plain-large-red-circle"


def test_every_picture_is_there_with_its_metadata(gallery_folder: Path) -> None:
    gallery = Gallery.open(gallery_folder)
    assert len(gallery) == 48
    row = gallery.take([CIRCLE], ["source", "width", "colour", "price", "large"])[CIRCLE]
    assert row == {
        "id": CIRCLE,
        "source": f"images/{CIRCLE}.png",
        "width": 64,
        "colour": "red",
        "price": 10.5,
        "large": True,
    }
    assert gallery.count(Comparison("price", "IS NULL")) == 4
    assert gallery.status().metadata == {"colour": "text", "price": "number", "large": "truth value"}
    assert verify(gallery).clean


def test_only_what_is_new_or_changed_is_embedded_again(
    own_gallery: Path, model: Any, tiny_benchmark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(tiny_benchmark / "images", tmp_path / "images"))
    gallery = Gallery.open(own_gallery)
    before = gallery.take([CIRCLE], ["targets", "colour"])[CIRCLE]
    encoded: list[int] = []
    encode = model.backbone.encode_images
    monkeypatch.setattr(model.backbone, "encode_images", lambda p: encoded.append(len(p)) or encode(p))
    same = index_images(gallery, model, find_pictures(folder).items)
    assert (same.added, same.changed, same.same, encoded) == (0, 0, 48, [])
    shutil.copy(folder / "plain-large-blue-square.png", folder / f"{CIRCLE}.png")
    shutil.copy(folder / "plain-large-blue-square.png", folder / "new.png")
    (folder / "broken.png").write_bytes(b"no picture")
    result = index_images(gallery, model, find_pictures(folder).items)
    assert (result.added, result.changed, result.same, encoded) == (1, 1, 47, [2])
    assert "this is not a picture" in result.refused["broken"]
    after = gallery.take([CIRCLE, "new"], ["targets", "colour"])
    assert after[CIRCLE]["targets"] == after["new"]["targets"] != before["targets"]
    assert after[CIRCLE]["colour"] == "red"  # metadata stay when a picture changes
    assert after["new"]["colour"] is None
    assert len(gallery) == 49
    assert verify(gallery).clean


def test_metadata_alone_can_change_and_grow(
    own_gallery: Path, model: Any, tiny_benchmark: Path, tmp_path: Path
) -> None:
    gallery = Gallery.open(own_gallery)
    vectors = gallery.take([CIRCLE], ["targets"])[CIRCLE]["targets"]
    table = tmp_path / "more.csv"
    table.write_text(f"image;colour;brand\n{CIRCLE}.png;crimson;acme\n")
    pictures = find_pictures(tiny_benchmark / "images").items
    result = index_images(gallery, model, pictures, metadata=read_metadata(table))
    assert (result.metadata, result.same) == (1, 48)
    row = gallery.take([CIRCLE], ["colour", "brand", "price", "targets"])[CIRCLE]
    assert (row["colour"], row["brand"], row["price"], row["targets"]) == ("crimson", "acme", 10.5, vectors)
    assert index_images(gallery, model, pictures, metadata=read_metadata(table)).metadata == 0
    table.write_text(f"id,price\n{CIRCLE},cheap\n")
    with pytest.raises(DataError, match='"price" holds double in the gallery, and string'):
        index_images(gallery, model, pictures, metadata=read_metadata(table))


def test_what_was_committed_survives_an_error(
    lance: None, model: Any, tiny_benchmark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triptych.search.indexing._COMMIT", 16)
    gallery = Gallery.create(tmp_path / "g", model, "m")
    pictures = find_pictures(tiny_benchmark / "images").items

    def stop(done: int, total: int) -> None:
        if done >= 32:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index_images(gallery, model, pictures, progress=stop)
    again = Gallery.open(tmp_path / "g")
    assert set(again.hashes()) == {picture.id for picture in pictures[:32]}
    result = index_images(again, model, pictures)
    assert (result.added, result.same) == (16, 32)


def test_images_are_removed(own_gallery: Path) -> None:
    gallery = Gallery.open(own_gallery)
    with gallery.writing():
        assert gallery.remove([CIRCLE, "it's not there"]) == 1
    assert len(gallery) == 47
    assert gallery.take([CIRCLE], []) == {}


def test_compact_forgets_old_versions(own_gallery: Path) -> None:
    gallery = Gallery.open(own_gallery)
    with gallery.writing():
        gallery.remove([CIRCLE])
        gallery.compact(forget=True)
    status = gallery.status()
    assert (status.images, status.fragments, status.exact, status.indexed) == (47, 1, True, 0)
    assert verify(gallery).clean


def test_another_model_is_refused(own_gallery: Path, model: Any) -> None:
    from triptych.backbones.registry import create_backbone
    from triptych.training.model import Model

    other = Model(create_backbone({"name": "lite"}, seed=5).eval(), None, {"backbone": {"name": "lite"}}, {})
    assert fingerprint(other) != fingerprint(model)
    gallery = Gallery.open(own_gallery)
    with pytest.raises(DataError, match=r'made by the model "tiny model" \(.*\), not by "other"'):
        gallery.require(other, "other")
    with pytest.raises(DataError, match="cannot be compared"):
        index_images(gallery, other, [])


def test_the_model_lies_in_the_gallery(gallery_folder: Path, model: Any) -> None:
    assert fingerprint(Gallery.open(gallery_folder).load_model()) == fingerprint(model)


def _hold(folder: Path, ready: Any, release: Any) -> None:
    with writing(folder):
        ready.set()
        release.wait(60)


def test_one_writer_at_a_time(own_gallery: Path, model: Any) -> None:
    context = multiprocessing.get_context("fork")
    ready, release = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(own_gallery, ready, release))
    other.start()
    try:
        assert ready.wait(60)
        gallery = Gallery.open(own_gallery)
        with pytest.raises(BusyError, match=f"process {other.pid} is writing"), gallery.writing():
            pass
        with pytest.raises(BusyError), gallery.writing(wait=0.1):
            pass
        assert len(gallery) == 48  # reading goes on
    finally:
        release.set()
        other.join()
    with gallery.writing():
        pass


def test_a_folder_of_something_else_is_not_touched(tmp_path: Path, model: Any) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(UsageError, match="something else here"):
        Gallery.create(tmp_path, model, "m")
    with pytest.raises(DataError, match="this is no gallery"):
        Gallery.open(tmp_path)
    with pytest.raises(UsageError, match="there is no such gallery"):
        Gallery.open(tmp_path / "gone")


def test_a_creation_that_was_killed_is_done_again(lance: None, tmp_path: Path, model: Any) -> None:
    folder = tmp_path / "g"
    Gallery.create(folder, model, "m")
    (folder / "gallery.json").unlink()
    assert len(Gallery.create(folder, model, "m")) == 0


@pytest.mark.parametrize("text", ["{", "[]", '{"format": "other"}', '{"format": "triptych-gallery-1"}'])
def test_a_damaged_description_is_said(text: str, own_gallery: Path) -> None:
    (own_gallery / "gallery.json").write_text(text)
    with pytest.raises(DataError, match=r"gallery\.json"):
        Gallery.open(own_gallery)


@pytest.mark.parametrize("how", ["cut", "zeros", "gone"])
def test_a_damaged_table_is_said(how: str, own_gallery: Path) -> None:
    for path in (own_gallery / "store").rglob("*.lance"):
        if path.is_file():
            size = path.stat().st_size
            path.write_bytes(path.read_bytes()[: size // 3] if how == "cut" else b"\0" * size)
            if how == "gone":
                path.unlink()
    with pytest.raises(DataError, match="table is missing or damaged"):
        verify(Gallery.open(own_gallery))


def test_verify_counts_what_is_wrong(own_gallery: Path) -> None:
    gallery = Gallery.open(own_gallery)
    rows = gallery.store.table.search().where(id_filter([CIRCLE])).to_arrow()
    zeros = pa.array([[0.0] * gallery.info.shape.dim], rows.schema.field("pooled").type)
    rows = rows.set_column(rows.schema.get_field_index("pooled"), rows.schema.field("pooled"), zeros)
    gallery.store.table.merge_insert("id").when_matched_update_all().execute(rows)
    found = verify(gallery)
    assert dict(found.problems) == {"the pooled vector is not the mean of the target vectors": 1}
    assert list(found.examples.values()) == [CIRCLE]


def test_a_full_disk_is_said(own_gallery: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gallery = Gallery.open(own_gallery)

    class Full:
        def merge_insert(self, _: str) -> Any:
            raise OSError(
                "LanceError(IO): Generic LocalFileSystem error: No space left on device (os error 28)"
            )

    monkeypatch.setattr(gallery.store, "table", Full())
    with pytest.raises(DataError, match="the disk is full; what was finished before is kept"):
        gallery.put(pa.table({"id": ["a"]}))
