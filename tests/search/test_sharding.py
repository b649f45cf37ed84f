"""Shards of a gallery: the same bytes as one process, nothing twice, a merge that lists."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from triptych.errors import DataError, UsageError
from triptych.search import Gallery, find_pictures, index_images, indexing
from triptych.search.columns import HASH, ID, POOLED, TARGETS, THUMBNAIL, TOKENS
from triptych.search.metadata import read_metadata
from triptych.search.verify import verify

COLUMNS = [ID, HASH, THUMBNAIL, POOLED, TARGETS, TOKENS]


@pytest.fixture(autouse=True)
def small_groups(lance: None, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lance", reason="pylance is not installed")
    monkeypatch.setattr(indexing, "_COMMIT", 5)


@pytest.fixture
def gallery(tiny_model: Any, tmp_path: Path) -> Gallery:
    return Gallery.create(tmp_path / "sharded", tiny_model, "m")


@pytest.fixture(scope="module")
def pictures(tiny_benchmark: Path) -> Any:
    return find_pictures(tiny_benchmark / "images").items


def rows(gallery: Gallery) -> list[dict[str, Any]]:
    gallery.refresh()
    return sorted(gallery.read(COLUMNS).to_pylist(), key=lambda row: row[ID])


@pytest.fixture
def alone(tiny_model: Any, pictures: Any, tmp_path: Path) -> list[dict[str, Any]]:
    """What one process writes."""
    whole = Gallery.create(tmp_path / "alone", tiny_model, "m")
    index_images(whole, tiny_model, pictures)
    return rows(whole)


def run(gallery: Gallery, model: Any, pictures: Any, shard: str, **settings: Any) -> Any:
    from triptych.search.sharding import Part, index_shard

    return index_shard(gallery, model, pictures, Part.parse(shard), **settings)


def merged(gallery: Gallery) -> Any:
    from triptych.search.merging import merge

    return merge(gallery)


@pytest.mark.parametrize("text", ["0/4", "5/4", "x", "1/0", "-1/2", "1/2/3", ""])
def test_what_is_no_shard(text: str) -> None:
    from triptych.search.sharding import Part

    with pytest.raises(UsageError, match="3/8"):
        Part.parse(text)


def test_shards_and_a_merge_are_one_process(
    gallery: Gallery, tiny_model: Any, pictures: Any, alone: list[dict[str, Any]]
) -> None:
    told: list[tuple[int, int]] = []
    for shard in ("3/3", "1/3", "2/3"):
        run(gallery, tiny_model, pictures, shard, progress=lambda done, total: told.append((done, total)))
    assert len(gallery) == 0
    files = {path: path.stat().st_ino for path in (gallery.folder / "store").rglob("data/*")}
    result = merged(gallery)
    assert (result.added, result.changed, result.same, result.refused) == (len(pictures), 0, 0, {})
    assert rows(gallery) == alone
    assert verify(gallery).clean
    kept = {path: path.stat().st_ino for path in (gallery.folder / "store").rglob("data/*")}
    assert kept == files  # listed, not copied
    assert sum(done == total for done, total in told) == 3
    assert not (gallery.folder / "shards").exists()
    with pytest.raises(DataError, match="nothing to merge"):
        merged(gallery)


def test_a_killed_shard_goes_on(
    gallery: Gallery,
    tiny_model: Any,
    pictures: Any,
    alone: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from triptych.search import sharding

    real, left = sharding.embed_group, [2]

    def dies(*given: Any) -> Any:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return real(*given)

    monkeypatch.setattr(sharding, "embed_group", dies)
    with pytest.raises(KeyboardInterrupt):
        run(gallery, tiny_model, pictures, "1/1")
    monkeypatch.setattr(sharding, "embed_group", real)
    result = run(gallery, tiny_model, pictures, "1/1")
    assert result.there == 2
    assert result.embedded == result.groups - 2
    merged(gallery)
    assert rows(gallery) == alone


def test_what_another_process_is_at_is_left_to_it(gallery: Gallery, tiny_model: Any, pictures: Any) -> None:
    import subprocess
    import sys

    from triptych.search.sharding import SHARDS

    (gallery.folder / SHARDS).mkdir()
    code = (
        "import sys; from pathlib import Path; from triptych.backbones.shard_claims import Claims\n"
        "with Claims(Path(sys.argv[1])) as claims:\n"
        "    claims.take((0).to_bytes(8, 'little')); print('held', flush=True); sys.stdin.read()"
    )
    claims = gallery.folder / SHARDS / "claims"
    with subprocess.Popen(
        [sys.executable, "-c", code, claims], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == "held"
        result = run(gallery, tiny_model, pictures, "1/1")
        holder.kill()
    assert result.elsewhere == 1
    assert run(gallery, tiny_model, pictures, "1/1").embedded == 1  # its claim ended with it


def test_a_missing_shard_is_named_and_nothing_merged(
    gallery: Gallery, tiny_model: Any, pictures: Any
) -> None:
    run(gallery, tiny_model, pictures, "1/2")
    with pytest.raises(DataError, match=r"group 2 of \d+ \(shard 2/2\)"):
        merged(gallery)
    gallery.refresh()
    assert len(gallery) == 0
    assert (gallery.folder / "shards").is_dir()


def test_a_damaged_piece(gallery: Gallery, tiny_model: Any, pictures: Any) -> None:
    run(gallery, tiny_model, pictures, "1/1")
    (first, *_) = sorted((gallery.folder / "store").rglob("data/*.lance"))
    first.write_bytes(first.read_bytes()[:-1])
    with pytest.raises(DataError, match="missing or damaged; nothing was merged"):
        merged(gallery)
    record = gallery.folder / "shards" / "00000.json"
    record.write_text("{")
    with pytest.raises(DataError, match=r"00000\.json"):
        merged(gallery)


def test_an_id_in_two_pieces(gallery: Gallery, tiny_model: Any, pictures: Any) -> None:
    run(gallery, tiny_model, pictures, "1/1")
    first, second = (gallery.folder / "shards" / f"0000{number}.json" for number in (0, 1))
    record = json.loads(second.read_text())
    record["images"].update(json.loads(first.read_text())["images"])
    second.write_text(json.dumps(record))
    with pytest.raises(DataError, match="is in groups 1 and 2"):
        merged(gallery)


def test_pieces_of_other_pictures(gallery: Gallery, tiny_model: Any, pictures: Any) -> None:
    run(gallery, tiny_model, pictures, "1/2")
    with pytest.raises(DataError, match="pieces of other pictures"):
        run(gallery, tiny_model, pictures[1:], "2/2")


def test_only_what_is_new_and_metadata(
    gallery: Gallery, tiny_model: Any, pictures: Any, tmp_path: Path
) -> None:
    index_images(gallery, tiny_model, pictures[:7])
    table = tmp_path / "items.csv"
    table.write_text("id,price\n" + "".join(f"{p.id},{n}\n" for n, p in enumerate(pictures)))
    run(gallery, tiny_model, pictures, "1/1", metadata=read_metadata(table))
    result = merged(gallery)
    assert (result.added, result.same) == (len(pictures) - 7, 7)
    last = pictures[-1].id
    assert gallery.take([last], ["price"])[last]["price"] == len(pictures) - 1
    assert len(gallery) == len(pictures)


def test_a_merge_that_was_killed_is_done_again(
    gallery: Gallery,
    tiny_model: Any,
    pictures: Any,
    alone: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from triptych.search import merging

    run(gallery, tiny_model, pictures, "1/1")

    def dies(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    real = merging.rmtree
    monkeypatch.setattr(merging, "rmtree", dies)
    with pytest.raises(KeyboardInterrupt):
        merged(gallery)
    monkeypatch.setattr(merging, "rmtree", real)
    result = merged(gallery)
    assert (result.added, result.same) == (0, len(pictures))
    assert rows(gallery) == alone


def test_a_pool_of_readers_changes_nothing(
    gallery: Gallery, tiny_model: Any, pictures: Any, alone: list[dict[str, Any]]
) -> None:
    with ThreadPoolExecutor(2):
        run(gallery, tiny_model, pictures, "1/1", workers=3)
    merged(gallery)
    assert rows(gallery) == alone
