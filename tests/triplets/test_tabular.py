"""Triplets in CSV, TSV, JSON lines and Parquet."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.errors import DataError
from triptych.triplets import ImageStore, Triplet, read_benchmark
from triptych.triplets.findings import Findings
from triptych.triplets.tabular import read_tabular
from triptych.triplets.text import clean

ROWS = [
    {"reference": "a", "text": "is red", "target": "b", "category": "hat", "split": "train", "id": "t1"},
    {
        "reference": "c",
        "text": "is longer, and blue",
        "target": "d",
        "category": "bag",
        "split": "train",
        "id": "t2",
    },
    {"reference": "e", "text": "as “navy”", "target": "f", "category": "hat", "split": "val", "id": "v1"},
    {"reference": "f", "text": 'say "no"', "target": "a", "category": "hat", "split": "val", "id": "v2"},
]


def write(path: Path, rows: list[dict]) -> Path:
    """Write rows by the ending of the file."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0], delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_every_format_reads_the_same(tmp_path, suffix):
    benchmark = read_benchmark(write(tmp_path / f"triplets{suffix}", ROWS))
    assert list(benchmark.train) == [
        Triplet("t2", "c", ("is longer, and blue",), "d", "bag"),
        Triplet("t1", "a", ("is red",), "b", "hat"),
    ]
    (query_set,) = benchmark.splits["val"]
    assert (query_set.split, query_set.category) == ("val", "hat")
    assert query_set.queries.triplet_ids == ["v1", "v2"]
    assert query_set.gallery == ("e", "f", "a"), "references and targets, each once"
    assert benchmark.name == tmp_path.name


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_only_the_three_columns(tmp_path, suffix):
    rows = [
        {"Reference ": "1", "TEXT": "is red", "target": "2"},
        {"Reference ": "3", "TEXT": "x y", "target": "4"},
    ]
    benchmark = read_benchmark(write(tmp_path / f"mine{suffix}", rows))
    assert benchmark.train.triplet_ids == ["all.train.0", "all.train.1"]
    assert benchmark.train[1] == Triplet("all.train.1", "3", ("x y",), "4", "all")
    assert benchmark.name == "mine"


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_lists_of_texts_and_numbers_as_ids(tmp_path, suffix):
    rows = [{"reference": 7, "captions": ["is red", "is long"], "target": 8, "category": 3}]
    (triplet,) = read_benchmark(write(tmp_path / f"t{suffix}", rows)).train
    assert triplet == Triplet("3.train.0", "7", ("is red", "is long"), "8", "3")


def test_pictures_beside_the_table_or_given(tmp_path, picture):
    table = write(tmp_path / "triplets.csv", ROWS)
    for folder, ids in (("images", "abcdef"), ("other", "abc")):
        (tmp_path / folder).mkdir()
        for image_id in ids:
            (tmp_path / folder / f"{image_id}.png").write_bytes(picture())
    for path in (table, tmp_path):
        assert len(read_benchmark(path).images) == 6
        assert read_benchmark(path).warnings == ()
    benchmark = read_benchmark(table, images=tmp_path / "other")
    assert len(benchmark.images) == 3
    assert benchmark.warnings[0].startswith("3 pictures that are missing")


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_delimiters_marks_and_line_ends(tmp_path, mark, end, delimiter):
    lines = [delimiter.join(cells) for cells in (("candidate", "target", "caption"), ("a", "b", '"x; y, z"'))]
    (tmp_path / "t.csv").write_bytes(mark + (end.join(lines) + end).encode())
    (triplet,) = read_benchmark(tmp_path / "t.csv").train
    assert triplet == Triplet("all.train.0", "a", ("x; y, z",), "b", "all")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t.csv: there are no triplets in it"),
        ("reference,text,target\n", "t.csv: there are no triplets in it"),
        ("reference,text\na,b\n", 't.csv, line 1: the column "target" is missing; there are reference, text'),
        ("reference,text,target,text\na,b,c,d\n", 't.csv, line 1: the column "text" is there twice'),
        ("reference,text,target\na,x y,b\na,x\n", "t.csv, line 3: 2 cells, but the header has 3 columns"),
        ("reference,text,target\na,x y,b,c\n", "t.csv, line 2: 4 cells, but the header has 3 columns"),
        ('reference,text,target\na,"x\ny",b\na,,b\n', 't.csv, line 4: "text" is missing'),
        ("reference,text,target\n,x y,b\n", 't.csv, line 2: "reference" is missing'),
        ("reference,text,target\na,x y,\n", 't.csv, line 2: "target" is missing'),
        ("reference,text,target\na,...,b\n", 't.csv, line 2: "text" has no word in it'),
        ('reference,text,target\na,"never closed,b\nc,d,e\n', "t.csv, line 2: not valid CSV"),
        ("reference,text,target,id\na,x y,b,1\nc,z z,d,1\n", 't.csv, line 3: the id "1" was used before'),
    ],
)
def test_tables_that_are_refused(tmp_path, text, message):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataError) as caught:
        read_benchmark(tmp_path / "t.csv")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n\n", "t.jsonl: there are no triplets in it"),
        ('{"reference": "a"', "t.jsonl, line 1: not valid JSON at column 18"),
        ('\n{"reference": "a", "text": "x y"}', 't.jsonl, line 2: "target" is missing'),
        ("[1]\n", "t.jsonl, line 1: an object is expected, not a list"),
        (
            '{"reference": "a", "text": 3, "target": "b"}',
            't.jsonl, line 1: "text" must be a text or a list of',
        ),
        (
            '{"reference": "a", "text": "x", "target": "b", "split": [1]}',
            't.jsonl, line 1: "split" must be a text',
        ),
    ],
)
def test_json_lines_that_are_refused(tmp_path, text, message):
    (tmp_path / "t.jsonl").write_text(text)
    with pytest.raises(DataError) as caught:
        read_benchmark(tmp_path / "t.jsonl")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_another_encoding_is_named_with_its_line(tmp_path, suffix):
    path = write(tmp_path / f"t{suffix}", [{"reference": "a", "text": "x", "target": "b"}])
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[-1].replace(b"x", b"ros\xe9"))
    with pytest.raises(DataError, match=rf"^t\{suffix}, line 2: the encoding is not UTF-8\n.*iconv"):
        read_benchmark(path)


def test_a_broken_parquet_file(tmp_path):
    path = write(tmp_path / "t.parquet", ROWS)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"^t\.parquet: not a whole Parquet file"):
        read_benchmark(path)


def test_a_parquet_file_without_a_column(tmp_path):
    path = write(tmp_path / "t.parquet", [{"reference": "a", "target": "b"}])
    with pytest.raises(DataError, match=r'^t\.parquet: the column "text" is missing'):
        read_benchmark(path)


def test_a_test_split_needs_no_targets(tmp_path):
    (tmp_path / "t.csv").write_text("reference,text,target,split\na,x y,b,train\nc,z z,,test\n")
    (query_set,) = read_benchmark(tmp_path / "t.csv").splits["test"]
    assert query_set.queries[0].target is None
    assert query_set.gallery == ("c",)


def test_columns_that_are_not_used_warn_once(tmp_path):
    (tmp_path / "t.csv").write_text("reference,text,target,price\na,x y,b,1\nc,z z,d,2\n")
    assert (
        't.csv, line 2: the key "price" is not used (in 2 entries)'
        in read_benchmark(tmp_path / "t.csv").warnings
    )


def test_repeated_triplets_are_counted(tmp_path):
    (tmp_path / "t.csv").write_text("reference,text,target\na,x y,b\na,x y,b\n")
    assert "t.csv, line 3: the same triplet as t.csv, line 2" in read_benchmark(tmp_path / "t.csv").warnings


def test_many_rows_keep_their_order(tmp_path):
    """More rows than one chunk holds."""
    path = tmp_path / "t.csv"
    path.write_text("reference,text,target\n" + "".join(f"r{i},word {i},t{i}\n" for i in range(21_000)))
    train = read_tabular(path, ImageStore.empty(tmp_path), Findings(strict=True)).train
    assert len(train) == 21_000
    assert train.column("reference") == [f"r{i}" for i in range(21_000)]


names = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=8).filter(str.strip)
captions = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=30).filter(
    clean
)


@given(st.lists(st.tuples(names, captions, names), min_size=1, max_size=5))
def test_whatever_is_written_is_read_back(tmp_path_factory, rows):
    """Any ids and captions survive CSV, JSON lines and Parquet: quotes, delimiters, line ends, scripts."""
    folder = tmp_path_factory.mktemp("rows")
    records = [{"reference": r, "text": t, "target": g} for r, t, g in rows]
    for name in ("t.csv", "t.tsv", "t.jsonl", "t.parquet"):
        train = read_benchmark(write(folder / name, records)).train
        assert [(x.reference, x.captions[0], x.target) for x in train] == rows, name


@given(st.binary(max_size=300))
def test_random_bytes_as_a_table_give_a_data_error(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("bytes")
    for suffix in (".csv", ".jsonl", ".parquet"):
        (folder / f"t{suffix}").write_bytes(data)
        with pytest.raises(DataError, match=rf"^t\{suffix}"):
            read_benchmark(folder / f"t{suffix}")
