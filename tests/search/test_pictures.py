"""Where pictures come from, and what metadata come with them."""

import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from triptych.errors import DataError, UsageError
from triptych.search.metadata import read_metadata
from triptych.search.pictures import find_pictures

NAMES = ("plain-large-red-circle", "plain-large-blue-square")


def test_folder_archive_list_and_tables_give_the_same_bytes(tiny_benchmark: Path, tmp_path: Path) -> None:
    images = tiny_benchmark / "images"
    files = {name: (images / f"{name}.png").read_bytes() for name in NAMES}
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name, data in files.items():
            archive.writestr(f"deep/{name}.png", data)
    (tmp_path / "a.txt").write_text("\n".join(str(images / f"{name}.png") for name in NAMES))
    lines = [f"{images / name}.png,{place}" for place, name in enumerate(NAMES)]
    (tmp_path / "a.csv").write_text("\n".join(["path,place", *lines]))
    pq.write_table(
        pa.table({"id": NAMES, "image": list(files.values()), "place": [0, 1]}), tmp_path / "a.parquet"
    )
    struct = pa.array([{"bytes": data, "path": name} for name, data in files.items()])
    pq.write_table(pa.table({"image_id": NAMES, "image": struct}), tmp_path / "b.parquet")
    for name in ("a.zip", "a.txt", "a.csv", "a.parquet", "b.parquet"):
        found = find_pictures(tmp_path / name)
        assert {item.id: item.read() for item in found.items} == files, name
    table = find_pictures(tmp_path / "a.parquet").metadata
    assert table is not None
    assert table.of([NAMES[1], "gone", NAMES[0]]).to_pylist() == [{"place": 1}, {"place": None}, {"place": 0}]
    assert len(find_pictures(images)) == 48


def test_one_picture_is_a_gallery_too(tiny_benchmark: Path) -> None:
    assert [item.id for item in find_pictures(tiny_benchmark / "images" / f"{NAMES[0]}.png").items] == [
        NAMES[0]
    ]


def test_rows_that_repeat_or_lack_an_id_are_counted(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["a", "a", None], "image": [b"1", b"2", b"3"]}), tmp_path / "a.parquet")
    found = find_pictures(tmp_path / "a.parquet")
    assert [item.read() for item in found.items] == [b"1"]
    assert set(found.warnings) == {
        "1 rows of a.parquet repeat an id and were left out",
        "1 rows of a.parquet have neither an id nor a name and were left out",
    }


def test_what_holds_no_pictures_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such folder"):
        find_pictures(tmp_path / "gone")
    with pytest.raises(DataError, match="there is no picture in it"):
        find_pictures(tmp_path)
    (tmp_path / "a.csv").write_text("name,price\nx,1\n")
    with pytest.raises(DataError, match="no column of pictures; there are name, price"):
        find_pictures(tmp_path / "a.csv")
    (tmp_path / "a.parquet").write_bytes(b"no table")
    with pytest.raises(DataError, match="cannot be read"):
        find_pictures(tmp_path / "a.parquet")
    (tmp_path / "a.xyz").write_bytes(b"")
    with pytest.raises(DataError, match=r"neither a folder nor a \.zip"):
        find_pictures(tmp_path / "a.xyz")


def test_metadata_keep_their_kind(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text(
        "image,price,stock,new,name,day\nx/a.JPG,1.5,3,true,Ä,2024-01-02\nb,,,,,\n", encoding="utf-8-sig"
    )
    found = read_metadata(path)
    assert found.of(["a", "b"]).to_pylist() == [
        {"price": 1.5, "stock": 3, "new": True, "name": "Ä", "day": "2024-01-02"},
        {"price": None, "stock": None, "new": None, "name": None, "day": None},
    ]
    assert {str(given) for given in found.fields.values()} == {"double", "int64", "bool", "string"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,price\na,1\n", "no column of image ids; there are name, price"),
        ("id,price\na,1\na,2\n", 'the image "a" was named before, in row 0'),
        ("id,price\n,1\n", "the row has no image id"),
        ("id,targets\na,1\n", 'a metadata column cannot be called "targets"'),
        ("id,`x`\na,1\n", "cannot be a metadata column"),
        ("id,a.b\na,1\n", "cannot be a metadata column"),
        ("id,price,price\na,1,2\n", 'the column "price" is there twice'),
        ("id,price\na,1,2\n", "cannot be read"),
    ],
)
def test_metadata_that_do_not_fit_are_said(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_metadata(path)
    path.write_bytes("id,name\na,\xe9\n".encode("latin-1"))
    with pytest.raises(DataError, match="UTF-8"):
        read_metadata(path)


def test_lists_are_no_metadata(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["a"], "tags": [["x"]]}), tmp_path / "m.parquet")
    with pytest.raises(DataError, match='the column "tags" holds list'):
        read_metadata(tmp_path / "m.parquet")


def test_ids_of_digits_keep_their_zeros(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_text("id,price\n000731,5\n42,6\n")
    metadata = read_metadata(path)
    assert set(metadata.rows) == {"000731", "42"}
    assert metadata.of(["000731"]).to_pylist() == [{"price": 5}]
