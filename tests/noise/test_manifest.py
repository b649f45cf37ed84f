"""A manifest says which triplets are wrong, and refuses data that it was not made for."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.errors import DataError, UsageError
from triptych.noise import Corruption, NoiseManifest, inject
from triptych.triplets.table import Triplet, TripletTable


def table_of(n):
    return TripletTable.from_triplets(
        Triplet(f"id{i}", f"r{i}", (f"text {i}", f"or «{i}»"), f"t{i}", "ab"[i % 2]) for i in range(n)
    )


def by_row(corrupted, n=3, **changes):
    return {
        "kind": "mix",
        "sigma": 0.5,
        "seed": 42,
        "categories": ["good"],
        "offsets": {"good": 0},
        "num_triplets": n,
        "corrupted": corrupted,
    } | changes


def good_table():
    return TripletTable.from_triplets(
        Triplet(f"good.train.{i}", f"r{i}", (f"a{i}", f"b{i}"), f"t{i}", "good") for i in range(3)
    )


def write(path, value):
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


@given(st.integers(0, 30), st.floats(0, 1), st.integers(0, 99), st.sampled_from(["mix", "text", "target"]))
def test_written_and_read_again_it_is_the_same(tmp_path_factory, n, ratio, seed, kind):
    table = table_of(n)
    manifest = inject(table, kind=kind, ratio=ratio, seed=seed)
    path = tmp_path_factory.mktemp("noise") / "manifest.json"
    manifest.write(path)
    again = NoiseManifest.read(path, table)
    assert again == manifest
    assert again.fingerprint() == manifest.fingerprint()
    assert again.path == path
    assert again.apply(table).fingerprint() == manifest.apply(table).fingerprint()


def test_the_file_says_everything_on_a_line(tmp_path):
    table = table_of(10)
    manifest = inject(table, kind="text", ratio=0.5, seed=1)
    manifest.write(tmp_path / "m.json")
    text = (tmp_path / "m.json").read_text(encoding="utf-8")
    content = json.loads(text)
    assert content["ratio_asked"] == 0.5
    assert content["ratio_real"] == len(manifest.corruptions) / 10
    assert content["table_fingerprint"] == table.fingerprint()
    first = manifest.corruptions[0]
    line = {"triplet_id": first.triplet_id, "field": "text", "old": list(first.old), "new": list(first.new)}
    assert "  " + json.dumps(line, ensure_ascii=False) in [entry.rstrip(",") for entry in text.splitlines()]


def test_counts_by_category_and_field():
    corruptions = (
        Corruption("id0", "text", ("a",), ("b",)),
        Corruption("id1", "text", ("a",), ("b",)),
        Corruption("id2", "target", "t2", "t9"),
    )
    manifest = NoiseManifest("mix", 0, 0.3, 10, "", corruptions)
    assert manifest.counts() == {("all", "text"): 2, ("all", "target"): 1}
    assert manifest.counts(table_of(10)) == {("a", "text"): 1, ("b", "text"): 1, ("a", "target"): 1}
    assert manifest.ratio_real == 0.3
    assert (manifest.field_of("id2"), manifest.field_of("id5")) == ("target", None)


def test_other_data_is_refused_by_triplet_and_field(tmp_path):
    manifest = inject(table_of(20), kind="target", ratio=0.5, seed=0)
    manifest.write(tmp_path / "m.json")
    manifest = NoiseManifest.read(tmp_path / "m.json")
    first = manifest.corruptions[0]
    with pytest.raises(DataError, match=rf"m\.json: triplet {first.triplet_id} is not in the data"):
        manifest.apply(table_of(20).without([first.triplet_id]))
    changed = table_of(20).replace("target", {first.triplet_id: "elsewhere"})
    with pytest.raises(
        DataError, match=rf'target of triplet {first.triplet_id} is "elsewhere"(.|\n)*other data'
    ):
        NoiseManifest.read(tmp_path / "m.json", changed)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": "x"}, "seed"),
        ({"kind": "salt"}, "kind"),
        ({"ratio_asked": 2}, "ratio_asked"),
        ({"colour": 1}, "colour"),
        (
            {"corruptions": [{"triplet_id": "id0", "field": "text", "old": "a", "new": ["b"]}]},
            "entry 0.*list",
        ),
        (
            {"corruptions": [{"triplet_id": "id0", "field": "target", "old": "a", "new": "a"}]},
            "entry 0.*equal",
        ),
        ({"corruptions": [{"triplet_id": "id0", "field": "target", "old": "a"}]}, "entry 0.*new"),
        (
            {"corruptions": [{"triplet_id": "id0", "field": "target", "old": "t0", "new": "b"}] * 2},
            "entry 1.*twice",
        ),
    ],
)
def test_a_damaged_manifest_is_refused_by_name(tmp_path, change, message):
    inject(table_of(9), kind="mix", ratio=1.0, seed=0).write(tmp_path / "m.json")
    content = json.loads((tmp_path / "m.json").read_text(encoding="utf-8")) | change
    with pytest.raises(DataError, match=message) as error:
        NoiseManifest.read(write(tmp_path / "bad.json", content))
    assert "bad.json" in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '"x"', "null", "\x00"])
def test_a_file_that_is_no_manifest(tmp_path, text):
    (tmp_path / "m.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"m\.json"):
        NoiseManifest.read(tmp_path / "m.json", table_of(3))


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(DataError, match="no such noise manifest"):
        NoiseManifest.read(tmp_path / "none.json")
    with pytest.raises(DataError, match="cannot be read"):
        NoiseManifest.read(tmp_path)


def test_a_manifest_by_rows(tmp_path):
    corrupted = [
        {"index": 0, "category": "good", "row": 0, "field": "captions", "from": 2, "value": ["a2", "b2"]},
        {"index": 1, "category": "good", "row": 1, "field": "candidate", "from": 1, "value": "r1"},
        {"index": 2, "category": "good", "row": 2, "field": "target", "from": 0, "value": "t0"},
    ]
    path = write(tmp_path / "m.json", by_row(corrupted, sigma=1.0))
    manifest = NoiseManifest.read(path, good_table())
    assert manifest.corruptions == (
        Corruption("good.train.0", "text", ("a0", "b0"), ("a2", "b2")),
        Corruption("good.train.2", "target", "t2", "t0"),
    )
    assert (manifest.fixed_points, manifest.ratio_asked, manifest.seed) == (1, 1.0, 42)
    with pytest.raises(UsageError, match="training table"):
        NoiseManifest.read(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"index": 7, "row": 7}, '"index" is 7, but there are only 3'),
        ({"index": -1}, '"index" is -1'),
        ({"row": 1}, "row 1 of good is another"),
        ({"category": "dress"}, "category dress"),
        ({"from": 9}, '"from" is 9'),
        ({"value": "a string"}, "list"),
        ({"field": "colour"}, "field"),
    ],
)
def test_a_wrong_row_is_refused_by_name(tmp_path, change, message):
    item = {"index": 0, "category": "good", "row": 0, "field": "captions", "from": 2, "value": ["a2", "b2"]}
    with pytest.raises(DataError, match=f"entry 0: .*{message}"):
        NoiseManifest.read(write(tmp_path / "m.json", by_row([item | change])), good_table())


def test_rows_of_other_data_are_refused(tmp_path):
    item = {"index": 3, "category": "good", "row": 3, "field": "target", "from": 0, "value": "t0"}
    with pytest.raises(DataError, match="row 3 of category good is not in the data"):
        NoiseManifest.read(write(tmp_path / "m.json", by_row([item], n=9)), good_table())
    with pytest.raises(DataError, match="made for 9 triplets, but the data has 3"):
        NoiseManifest.read(write(tmp_path / "m.json", by_row([], n=9)), good_table())


def test_a_value_that_is_not_of_its_row_is_refused(tmp_path):
    """A manifest of another version of the data would otherwise pass unseen."""
    item = {"index": 0, "category": "good", "row": 0, "field": "target", "from": 1, "value": "t2"}
    with pytest.raises(DataError, match="entry 0"):
        NoiseManifest.read(write(tmp_path / "m.json", by_row([item])), good_table())


def test_the_index_out_of_range_that_was_shipped(shared):
    path = shared / "data" / "bad-inputs" / "annotations" / "noise.index_out_of_range.json"
    with pytest.raises(DataError, match="7"):
        NoiseManifest.read(path, good_table())


@pytest.mark.parametrize(
    ("name", "count", "fields"),
    [
        ("mix-0.2-seed42", 2400, {"reference", "text", "target"}),
        ("mix-0.8-seed42", 9600, {"reference", "text", "target"}),
        ("hard-0.5-seed42", 6000, {"text"}),
    ],
)
def test_the_files_of_fashion_products(shared, name, count, fields):
    folder = shared / "data" / "fashion-products"
    rows = []
    for path in sorted((folder / "captions").glob("cap.*.train.json")):
        category = path.name.split(".")[1]
        for row, entry in enumerate(json.loads(path.read_text(encoding="utf-8"))):
            captions = tuple(entry["captions"])
            triplet_id = f"{category}.train.{row}"
            rows.append(Triplet(triplet_id, entry["candidate"], captions, entry["target"], category))
    table = TripletTable.from_triplets(rows)
    manifest = NoiseManifest.read(folder / "noise" / f"{name}.json", table)
    assert len(manifest.corruptions) == count
    assert {c.field for c in manifest.corruptions} == fields
    assert manifest.ratio_real == manifest.ratio_asked == count / 12000
    noisy = manifest.apply(table)
    assert sum(a != b for a, b in zip(table, noisy, strict=True)) == count
