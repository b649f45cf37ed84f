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

from triptych.backbones.feature_store import Appender, FeatureStore, cache_root
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
        assert [opened.span(key(name)) for name in "abc"] == [(0, 3), (3, 1), (4, 0)]
        np.testing.assert_array_equal(opened[key("a")], entry(1, rows=3))
        np.testing.assert_array_equal(opened.features, np.concatenate([entry(1, rows=3), entry(2, rows=1)]))
        assert isinstance(opened.features, np.memmap)
        assert opened.features.dtype == np.float16
        with pytest.raises(KeyError):
            opened.span(key("d"))


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
    os.truncate(folder / "keys.bin", 36 * 2 + 17)


def cut_features(folder: Path) -> None:
    os.truncate(folder / "features.f16", 2 * WIDTH * 5 + 3)


def features_without_keys(folder: Path) -> None:
    os.truncate(folder / "keys.bin", 36 * 2)


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
    assert (folder / "keys.bin").stat().st_size == 4 * 36
    assert (folder / "features.f16").stat().st_size == 4 * 2 * WIDTH * 2


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

    def half_written(file: Any, data: bytes) -> None:
        written.append(data)
        if len(written) == 3:  # the features of the second entry
            file.write(data[: len(data) // 2])
            file.flush()
            raise OSError(errno.ENOSPC, "No space left on device")
        file.write(data)
        file.flush()

    monkeypatch.setattr(Appender, "_write", staticmethod(half_written))
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
        ("features.f16", None, "features.f16 is missing"),
        ("keys.bin", None, "keys.bin is missing"),
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
    assert "Delete this folder" in str(caught.value)


def test_an_entry_listed_twice_is_damage(folder: Path) -> None:
    fill(FeatureStore(folder, "encoder", WIDTH), 1, 2)
    keys = (folder / "keys.bin").read_bytes()
    (folder / "keys.bin").write_bytes(keys[:36] + keys[:36])
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
    FeatureStore(folder, "encoder", WIDTH)
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
