"""The store on disk: whole entries or none, whatever interrupts."""

import errno
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from triptych.backbones import feature_store, shard
from triptych.backbones.cache_check import check_store, repair_store
from triptych.backbones.feature_store import FeatureStore, cache_root, shard_numbers
from triptych.backbones.shard import RECORD
from triptych.errors import DataError

WIDTH = 4


def key(name: object) -> bytes:
    return hashlib.sha256(str(name).encode()).digest()


def entry(number: int, rows: int = 2) -> np.ndarray:
    return np.full((rows, WIDTH), number, dtype=np.float32) + np.arange(WIDTH) / 8


def fill(store: FeatureStore, *numbers: int) -> None:
    with store.appending() as append:
        for number in numbers:
            append([key(number)], [entry(number)])


def assert_holds(store: FeatureStore, *numbers: int) -> None:
    assert len(store) == len(numbers)
    for number in numbers:
        np.testing.assert_array_equal(store[key(number)], entry(number))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_round_trip(folder: Path) -> None:
    """Entries of different lengths, in half precision, memory-mapped, for whoever opens the folder next."""
    store = FeatureStore(folder, "encoder", WIDTH)
    assert len(store) == 0
    assert key("a") not in store
    with store.appending() as append:
        append([key("a"), key("b")], [entry(1, rows=3), entry(2, rows=1)])
        append([key("c")], [entry(3, rows=0)])
    for opened in (store, FeatureStore(folder, "encoder", WIDTH)):
        np.testing.assert_array_equal(opened[key("a")], entry(1, rows=3))
        np.testing.assert_array_equal(opened[key("b")], entry(2, rows=1))
        assert opened[key("c")].shape == (0, WIDTH)
        assert isinstance(opened[key("a")], np.memmap)
        assert opened[key("a")].dtype == np.float16
        with pytest.raises(KeyError):
            opened.place(key("d"))


def test_shards_have_a_fixed_size(folder: Path) -> None:
    """An entry takes 2 x 4 halves and 44 bytes of key, 60 bytes: three fit into 200."""
    store = FeatureStore(folder, "encoder", WIDTH, shard_bytes=200)
    fill(store, 1, 2)
    places = np.array([store.place(key(2)), store.place(key(1))])
    fill(store, 3, 4, 5, 6, 7, 8)
    with store.appending() as append:
        append([key(number) for number in range(9, 20)], [entry(number) for number in range(9, 20)])
    for opened in (store, FeatureStore(folder, "encoder", WIDTH)):
        assert_holds(opened, *range(1, 20))
        where = np.array([opened.place(key(number)) for number in (19, 2, 7, 2)])
        found = opened.read(where, 2)
        np.testing.assert_array_equal(found, np.stack([entry(number) for number in (19, 2, 7, 2)]))
        assert found.dtype == np.float32
    assert [store.place(key(2)), store.place(key(1))] == places.tolist()
    sizes = [(folder / f"{number:05d}.f16").stat().st_size for number in range(7)]
    assert sizes == [48, 48, 48, 48, 48, 48, 16]
    assert not (folder / "00007.f16").exists()


def test_an_entry_larger_than_a_shard_has_one_of_its_own(folder: Path) -> None:
    store = FeatureStore(folder, "encoder", WIDTH, shard_bytes=10)
    fill(store, 1, 2)
    fill(store, 3)
    assert_holds(FeatureStore(folder, "encoder", WIDTH), 1, 2, 3)
    assert shard_numbers(folder) == [0, 1, 2]


def test_int8_by_hand(folder: Path) -> None:
    """Channel by channel the largest value becomes 127: 2 and -1 of a channel are 127 and -64 (-63.5 to even)."""
    features = np.array([[2.0, 0.0, 127.0, 1e-3], [-1.0, 0.0, 3.4, -1e-3]], dtype=np.float32)
    store = FeatureStore(folder, "encoder", WIDTH, dtype="int8")
    with store.appending() as append:
        append([key(1)], [features])
    expected = [[2.0, 0.0, 127.0, 1e-3], [-64 * 2 / 127, 0.0, 3.0, -1e-3]]
    for opened in (store, FeatureStore(folder, "encoder", WIDTH, dtype="int8")):
        np.testing.assert_allclose(opened[key(1)], expected, rtol=1e-6)
        np.testing.assert_array_equal(opened.read(np.array([opened.place(key(1))]), 2)[0], opened[key(1)])
    assert (folder / "00000.i8").stat().st_size == 8
    assert (folder / "00000.scales").stat().st_size == 16


def test_int8_does_not_depend_on_company(folder: Path) -> None:
    draws = np.random.default_rng(0)
    entries = [draws.normal(size=(3, WIDTH)) * scale for scale in (1, 100, 0.01)]
    together = FeatureStore(folder / "a", "encoder", WIDTH, dtype="int8")
    with together.appending() as append:
        append([key(n) for n in range(3)], entries)
    alone = FeatureStore(folder / "b", "encoder", WIDTH, dtype="int8")
    for number in (2, 0, 1):
        with alone.appending() as append:
            append([key(number)], [entries[number]])
    for number in range(3):
        np.testing.assert_array_equal(together[key(number)], alone[key(number)])


def test_what_is_there_decides_where_no_dtype_is_asked(folder: Path) -> None:
    store = FeatureStore(folder, "encoder", WIDTH, dtype="int8")
    with store.appending() as append:
        append([key(1)], [entry(1)])
    assert FeatureStore(folder, "encoder", WIDTH, dtype=None).dtype == "int8"
    with pytest.raises(DataError, match="dtype int8, not float16"):
        FeatureStore(folder, "encoder", WIDTH)


def old_cache(folder: Path, numbers: list[int], rest: bytes = b"") -> None:
    """Write what version 1 wrote."""
    folder.mkdir()
    meta = {"format": 1, "encoder": "encoder", "width": WIDTH, "dtype": "float16"}
    (folder / "meta.json").write_text(json.dumps(meta))
    (folder / "features.f16").write_bytes(
        b"".join(entry(n).astype(np.float16).tobytes() for n in numbers) + rest
    )
    (folder / "keys.bin").write_bytes(b"".join(key(n) + (2).to_bytes(4, "little") for n in numbers))


@pytest.mark.parametrize("rest", [b"", b"\1\2\3"])
def test_a_cache_of_the_first_version_keeps_working(folder: Path, rest: bytes) -> None:
    old_cache(folder, [1, 2, 3], rest)
    store = FeatureStore(folder, "encoder", WIDTH)
    assert_holds(store, 1, 2, 3)
    fill(store, 4)
    assert_holds(FeatureStore(folder, "encoder", WIDTH), 1, 2, 3, 4)
    assert not (folder / "keys.bin").exists()
    assert not [report for report in check_store(folder) if report.problems]


def test_an_import_that_was_killed_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old_cache(folder, [1, 2, 3])

    def killed(path: Path, value: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(feature_store, "write_json", killed)
    with pytest.raises(KeyboardInterrupt):
        FeatureStore(folder, "encoder", WIDTH)
    monkeypatch.undo()
    assert_holds(FeatureStore(folder, "encoder", WIDTH), 1, 2, 3)


def test_an_old_cache_of_another_encoder_is_refused_and_left_alone(folder: Path) -> None:
    old_cache(folder, [1])
    with pytest.raises(DataError, match='made by "encoder", not by "another"'):
        FeatureStore(folder, "another", WIDTH)
    assert (folder / "keys.bin").exists()


def test_keys_with_zero_bytes(folder: Path) -> None:
    """NumPy strips zeros at the end of fixed strings; keys are bytes of any value."""
    store = FeatureStore(folder, "encoder", WIDTH)
    names = [bytes(32), b"\1" + bytes(31), bytes(31) + b"\1"]
    with store.appending() as append:
        append(names, [entry(n) for n in range(3)])
    again = FeatureStore(folder, "encoder", WIDTH)
    assert [again[name][0, 0] for name in names] == [0, 1, 2]


def test_what_is_stored_already_is_passed_over(folder: Path) -> None:
    store = FeatureStore(folder, "encoder", WIDTH)
    with store.appending() as append:
        append([key(1), key(1), key(2)], [entry(1), entry(9), entry(2)])
        append([key(2)], [entry(9)])
    fill(store, 1, 3)
    again = FeatureStore(folder, "encoder", WIDTH)
    assert again[key(1)][0, 0] in (1, 9)
    assert len(again) == 3
    np.testing.assert_array_equal(again[key(2)], entry(2))


def cut_keys(folder: Path) -> None:
    os.truncate(folder / "00000.keys", RECORD.itemsize * 2 + 17)


def cut_features(folder: Path) -> None:
    os.truncate(folder / "00000.f16", 2 * WIDTH * 5 + 3)


def features_without_keys(folder: Path) -> None:
    os.truncate(folder / "00000.keys", RECORD.itemsize * 2)


@pytest.mark.parametrize("damage", [cut_keys, cut_features, features_without_keys])
def test_an_interrupted_build_goes_on(folder: Path, damage: Callable[[Path], None]) -> None:
    """The last of three entries is cut somewhere: two are there, and the next build puts it back."""
    fill(FeatureStore(folder, "encoder", WIDTH), 1, 2, 3)
    damage(folder)
    store = FeatureStore(folder, "encoder", WIDTH)
    assert_holds(store, 1, 2)
    fill(store, 3, 4)
    assert_holds(store, 1, 2, 3, 4)
    assert_holds(FeatureStore(folder, "encoder", WIDTH), 1, 2, 3, 4)
    assert (folder / "00000.keys").stat().st_size == 4 * RECORD.itemsize
    assert (folder / "00000.f16").stat().st_size == 4 * 2 * WIDTH * 2


def test_an_error_in_the_middle_keeps_what_was_appended(folder: Path) -> None:
    store = FeatureStore(folder, "encoder", WIDTH)

    def build() -> None:
        with store.appending() as append:
            append([key(1)], [entry(1)])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build()
    assert_holds(store, 1)
    fill(store, 2)
    assert_holds(store, 1, 2)


def test_another_encoder_is_refused_by_name(folder: Path) -> None:
    fill(FeatureStore(folder, "lite at 160 px", WIDTH), 1)
    with pytest.raises(DataError, match='made by "lite at 160 px", not by "lite at 224 px"') as caught:
        FeatureStore(folder, "lite at 224 px", WIDTH)
    assert str(folder) in str(caught.value)
    assert caught.value.mend
    with pytest.raises(DataError):
        FeatureStore(folder, "lite at 160 px", WIDTH + 1)
    assert_holds(FeatureStore(folder, "lite at 160 px", WIDTH), 1)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e5])
def test_values_that_are_not_finite_are_refused(folder: Path, bad: float) -> None:
    """100,000 is finite, but not in half precision."""
    store = FeatureStore(folder, "encoder", WIDTH)
    fill(store, 1)
    broken = entry(2)
    broken[1, 2] = bad
    with pytest.raises(DataError, match="not finite"), store.appending() as append:
        append([key(3), key(2)], [entry(3), broken])
    assert_holds(FeatureStore(folder, "encoder", WIDTH), 1)


def test_a_full_disk_damages_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FeatureStore(folder, "encoder", WIDTH)
    fill(store, 1)
    written = []

    whole = shard._write

    def half_written(path: Path, data: bytes) -> None:
        written.append(data)
        if len(written) == 3:  # the features of the second entry
            whole(path, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        whole(path, data)

    monkeypatch.setattr(shard, "_write", half_written)
    with pytest.raises(DataError, match="disk is full") as caught:
        fill(store, 2, 3)
    assert str(folder) in str(caught.value)
    monkeypatch.undo()
    assert_holds(store, 1, 2)
    assert_holds(FeatureStore(folder, "encoder", WIDTH), 1, 2)
    fill(store, 3)
    assert_holds(FeatureStore(folder, "encoder", WIDTH), 1, 2, 3)


def test_a_disk_that_is_full_when_it_flushes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FeatureStore(folder, "encoder", WIDTH)
    fill(store, 1)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match="disk is full"):
        fill(store, 2)
    monkeypatch.undo()
    fill(store, 2)
    assert_holds(FeatureStore(folder, "encoder", WIDTH), 1, 2)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("meta.json", b"{cut", "meta.json is not JSON"),
        ("meta.json", b"[]", "meta.json holds no object"),
        ("00000.f16", None, "00000.f16 is missing"),
    ],
)
def test_a_damaged_folder_is_named(folder: Path, name: str, content: bytes | None, said: str) -> None:
    fill(FeatureStore(folder, "encoder", WIDTH), 1)
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=said) as caught:
        FeatureStore(folder, "encoder", WIDTH)
    assert f"triptych cache verify --cache {folder} --repair" in str(caught.value)
    assert "delete this folder" in str(caught.value)


def test_an_entry_listed_twice_is_damage(folder: Path) -> None:
    fill(FeatureStore(folder, "encoder", WIDTH), 1, 2)
    keys = (folder / "00000.keys").read_bytes()[: RECORD.itemsize]
    (folder / "00000.keys").write_bytes(keys + keys)
    with pytest.raises(DataError, match="twice"):
        FeatureStore(folder, "encoder", WIDTH)


PROCESS = """
import hashlib, sys
from pathlib import Path
import numpy as np
from triptych.backbones.feature_store import FeatureStore
folder, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
store = FeatureStore(folder, "encoder", 4)
print("ready", flush=True)
sys.stdin.readline()
for start in range(first, last, 5):
    with store.appending() as append:
        for number in range(start, start + 5):
            row = np.full((2, 4), number, dtype=np.float32) + np.arange(4) / 8
            append([hashlib.sha256(str(number).encode()).digest()], [row])
"""


def test_two_processes_at_once(folder: Path) -> None:
    """Numbers 0 to 59 and 40 to 99, in turns: every key once, every value right."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(folder), *map(str, numbers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for numbers in ((0, 60), (40, 100))
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.communicate("go\n")
    assert [process.returncode for process in processes] == [0, 0]
    assert_holds(FeatureStore(folder, "encoder", WIDTH), *range(100))


def test_a_reader_sees_what_it_opened(folder: Path) -> None:
    """Rows that another process appends later do not disturb it; it finds them when it appends itself."""
    reader, writer = FeatureStore(folder, "encoder", WIDTH), FeatureStore(folder, "encoder", WIDTH)
    fill(writer, 1, 2)
    assert_holds(reader)
    with reader.appending() as append:
        assert key(2) in reader
        append([key(3)], [entry(3)])
    assert_holds(reader, 1, 2, 3)


def test_the_folder_says_whose_features_it_holds(folder: Path) -> None:
    fill(FeatureStore(folder, "encoder", WIDTH), 1)
    meta = json.loads((folder / "meta.json").read_text())
    assert (meta["encoder"], meta["width"], meta["dtype"]) == ("encoder", WIDTH, "float16")


def test_cache_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIPTYCH_CACHE", "/a")
    assert cache_root() == Path("/a")
    monkeypatch.delenv("TRIPTYCH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert cache_root() == Path("/b/triptych")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_root() == Path.home() / ".cache" / "triptych"


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(("name", "at"), [("00001.i8", 3), ("00001.scales", 20), ("00001.keys", -1)])
def test_a_flipped_bit_is_found_and_its_shard_built_again(folder: Path, name: str, at: int) -> None:
    """An entry takes 8 + 16 + 44 bytes: two a shard."""
    store = FeatureStore(folder, "encoder", WIDTH, dtype="int8", shard_bytes=150)
    fill_int8(store, *range(6))
    assert [(r.number, r.entries, r.problems) for r in check_store(folder)] == [(n, 2, []) for n in range(3)]
    flip(folder / name, at)
    reports = check_store(folder)
    assert [report.number for report in reports if report.problems] == [1]
    assert "1 of 2 entries" in reports[1].problems[0]
    assert repair_store(folder, reports) == [1]
    assert [report.number for report in check_store(folder)] == [0, 2]
    again = FeatureStore(folder, "encoder", WIDTH, dtype="int8")
    assert len(again) == 4
    fill_int8(again, *range(6))
    assert len(FeatureStore(folder, "encoder", WIDTH, dtype="int8")) == 6
    assert not [report for report in check_store(folder) if report.problems]


def fill_int8(store: FeatureStore, *numbers: int) -> None:
    for number in numbers:
        with store.appending() as append:
            append([key(number)], [entry(number)])


def test_a_missing_file_is_a_damaged_shard(folder: Path) -> None:
    fill(FeatureStore(folder, "encoder", WIDTH), 1)
    (folder / "00000.f16").unlink()
    reports = check_store(folder)
    assert "00000.f16 is missing" in reports[0].problems[0]
    assert repair_store(folder, reports) == [0]
    assert len(FeatureStore(folder, "encoder", WIDTH)) == 0


def test_a_truncated_shard_is_damaged(folder: Path) -> None:
    """Keys without their rows: what an interruption leaves, but also what a bad copy leaves."""
    fill(FeatureStore(folder, "encoder", WIDTH), 1, 2)
    os.truncate(folder / "00000.f16", 2 * WIDTH * 3)
    assert check_store(folder)[0].problems == ["1 of 2 listed entries are cut off"]


def test_a_twice_listed_entry_is_dropped(folder: Path) -> None:
    store = FeatureStore(folder, "encoder", WIDTH, shard_bytes=60)
    fill(store, 1, 2)
    for suffix in ("keys", "f16"):
        (folder / f"00001.{suffix}").write_bytes((folder / f"00000.{suffix}").read_bytes())
    reports = check_store(folder)
    assert [report.number for report in reports if report.problems] == [1]
    repair_store(folder, reports)
    assert_holds(FeatureStore(folder, "encoder", WIDTH), 1)


def test_a_reader_goes_on_while_its_shard_is_dropped(folder: Path) -> None:
    reader = FeatureStore(folder, "encoder", WIDTH)
    fill(reader, 1)
    reader[key(1)]  # mapped
    flip(folder / "00000.keys", -1)
    repair_store(folder, check_store(folder))
    fill(FeatureStore(folder, "encoder", WIDTH), 2, 3)
    reader.refresh()
    assert_holds(reader, 1, 2, 3)
