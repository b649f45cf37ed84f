"""Files that are whole or not there."""

import errno
from pathlib import Path

import pytest

from triptych.errors import DataError
from triptych.files import atomic_path, atomic_write, explain_full_disk, write_json


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError), atomic_write(path) as file:
        file.write("half" * 10_000 + "\ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_finished_write_replaces_the_file_and_makes_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.json"
    write_json(path, {"ö": 1})
    write_json(path, {"ö": 2})
    assert path.read_text(encoding="utf-8") == '{\n  "ö": 2\n}\n'
    assert [found.name for found in path.parent.iterdir()] == ["a.json"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_explained(number: int, tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    with pytest.raises(DataError, match="the disk is full; nothing was changed") as caught, atomic_path(path):
        raise OSError(number, "no space")
    assert caught.value.file == path
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for path in (file / "a.txt", Path("/proc/none/a.txt")):
        with pytest.raises(DataError, match=f"{path}: cannot be written here"), atomic_path(path):
            pass
    with pytest.raises(DataError, match="a folder is in the place of the file"), atomic_path(tmp_path):
        pass


def test_other_errors_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), explain_full_disk(tmp_path):
        raise FileNotFoundError
