"""Ranks of every query in a result's JSON: what goes in comes out, and it is small."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from triptych.errors import DataError
from triptych.evaluation.protocols import CIRR
from triptych.evaluation.queries import NO_SUBSET, QueryRanks
from triptych.evaluation.ranking import UNRANKED
from triptych.evaluation.report import Evaluation
from triptych.evaluation.stored_ranks import StoredRanks

RANKS = QueryRanks(
    split="val",
    category="all",
    gallery_size=9,
    triplet_ids=("a", "b", "c"),
    target=np.array([0, 5, 8]),
    reference=np.array([UNRANKED, 0, 3]),
    answers=(np.array([0, 2]), np.array([], dtype=np.int64), np.array([8])),
    subset=np.array([NO_SUBSET, 0, 4]),
)


def test_what_goes_in_comes_out() -> None:
    back = StoredRanks.pack(RANKS).unpack()
    assert len(back) == 3
    for name in ("target", "reference", "subset"):
        np.testing.assert_array_equal(getattr(back, name), getattr(RANKS, name))
    assert [own.tolist() for own in back.answers] == [[0, 2], [], [8]]
    for reference in ("kept", "removed"):
        for own, other in zip(back.figures(CIRR, reference), RANKS.figures(CIRR, reference), strict=True):
            assert {name: values.tolist() for name, values in own.items()} == {
                name: values.tolist() for name, values in other.items()
            }


def test_other_queries_have_another_hash() -> None:
    other = QueryRanks(**{**vars(RANKS), "triplet_ids": ("a", "c", "b")})
    assert StoredRanks.pack(RANKS).queries != StoredRanks.pack(other).queries


def test_six_thousand_queries_take_little_room() -> None:
    random = np.random.default_rng(0)
    ranks = random.integers(0, 6000, 6016)
    part = QueryRanks("val", "all", 6000, tuple(map(str, range(6016))), ranks, ranks + 1, (ranks[:0],) * 6016)
    assert len(StoredRanks.pack(part).model_dump_json()) < 50_000


def test_an_evaluation_of_an_older_version_is_read(make_evaluation, tmp_path: Path) -> None:
    evaluation = make_evaluation()
    path = tmp_path / "evaluation.json"
    evaluation.write(path)
    assert Evaluation.read(path) == evaluation
    values = json.loads(path.read_text())
    for name in ("ranks", "captions"):
        del values[name]
    for name in ("subset_ks", "averages", "shown"):
        del values["protocol"][name]
    del values["model"]["seed"]
    for row in values["rows"]:
        del row["aspects"], row["mean"]["Avg"]
    path.write_text(json.dumps(values))
    older = Evaluation.read(path)
    assert older.ranks == ()
    assert older.score() == evaluation.score()


@pytest.mark.parametrize("broken", ["!", "AAAA", ""])
def test_damage_is_named(broken: str) -> None:
    stored = StoredRanks.pack(RANKS).model_copy(update={"target": broken})
    with pytest.raises(DataError, match="the ranks of all are damaged"):
        stored.unpack()
