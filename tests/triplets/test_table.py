"""TripletTable: rows keyed by id."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.triplets import Triplet, TripletTable

ROWS = [
    Triplet("t0", "a", ("is red",), "b", "hat"),
    Triplet("t1", "b", ("is long", "and blue"), None, "bag", ("b", "c", "d")),
    Triplet("t2", "a", ("is wide",), "c", "hat"),
]


@pytest.fixture
def table():
    return TripletTable.from_triplets(ROWS)


def test_rows_come_back(table):
    assert list(table) == ROWS
    assert [table[i] for i in (0, 1, 2, -1)] == [*ROWS, ROWS[2]]
    assert table.column("captions") == [row.captions for row in ROWS]
    assert table.column("group") == [None, ("b", "c", "d"), None]


def test_ids_and_names(table):
    assert table.triplet_ids == ["t0", "t1", "t2"]
    assert (table.row_of("t1"), "t1" in table, "t9" in table) == (1, True, False)
    assert table.categories == ["hat", "bag"]
    assert table.image_ids() == ["a", "b", "c"]
    with pytest.raises(KeyError):
        table.row_of("t9")


def test_take_without_and_concat(table):
    assert table.take(np.array([2, 0])).triplet_ids == ["t2", "t0"]
    assert table.without(["t1"]).triplet_ids == ["t0", "t2"]
    assert list(TripletTable.concat([table.take([0]), table.take([1, 2])])) == ROWS
    assert len(TripletTable.concat([])) == 0


def test_replace_changes_one_field_of_the_named_rows(table):
    changed = table.replace("target", {"t2": "d"})
    assert [row.target for row in changed] == ["b", None, "d"]
    assert [row.target for row in table] == ["b", None, "c"], "a table never changes"
    assert table.replace("captions", {"t0": ("x", "y")})[0].captions == ("x", "y")


def test_ids_must_be_unique():
    with pytest.raises(ValueError, match=r"repeated: \['t0'\]"):
        TripletTable.from_triplets([ROWS[0], ROWS[0]])


@given(st.permutations(range(3)))
def test_the_fingerprint_knows_the_order(order):
    table = TripletTable.from_triplets(ROWS)
    assert (table.take(order).fingerprint() == table.fingerprint()) == (list(order) == [0, 1, 2])
