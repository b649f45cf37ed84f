"""Sheets of results: the same ranks as an evaluation, and failures that are drawn, not picked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.errors import UsageError
from triptych.studies.figures.board import RIGHT
from triptych.studies.figures.query_batch import known_queries
from triptych.studies.figures.result_sheets import Sheet, best_pictures, draw_sheet, with_failures
from triptych.training.evaluate import evaluate


@pytest.fixture(scope="module")
def sheet(opened, bench) -> Sheet:
    queries = known_queries(bench, "val")
    vectors = opened.queries([each.reference for each in queries], [each.text for each in queries])
    return Sheet(tuple(queries), (best_pictures(opened, queries, vectors, "val", "tiny"),))


def test_the_ranks_are_those_of_an_evaluation(sheet: Sheet, tiny_run, bench) -> None:
    result = evaluate(tiny_run, bench, samples=0)
    expected = [int(rank) + 1 for part in result.ranks for rank in part.unpack().target_ranks("removed")]
    assert list(sheet.columns[0].target_rank) == expected


def test_five_pictures_without_the_reference(sheet: Sheet) -> None:
    column = sheet.columns[0]
    for query, found, place in zip(sheet.queries, column.found, column.target_rank, strict=True):
        assert len(set(found)) == 5
        assert query.reference not in found
        assert (query.target in found) == (place <= 5)
        if place <= 5:
            assert found[place - 1] == query.target


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=30),
    st.integers(1, 8),
    st.integers(0, 3),
    st.integers(0, 5),
)
def test_so_many_failures_as_asked_for_where_there_are(
    ranks: list[int], count: int, failures: int, seed: int
) -> None:
    failures = min(failures, count)
    rows = with_failures(ranks, count, failures, seed)
    assert len(rows) == len(set(rows)) == min(count, len(ranks))
    failed = [ranks[row] != 1 for row in rows]
    assert sum(failed) >= min(failures, sum(rank != 1 for rank in ranks))
    assert failed == sorted(failed)
    assert rows == with_failures(ranks, count, failures, seed)


def test_more_failures_than_queries() -> None:
    with pytest.raises(UsageError, match="0 to 2 failures"):
        with_failures([1, 2, 3], 2, 3, 0)


def test_right_answers_are_framed(sheet: Sheet, bench) -> None:
    part = sheet.only([3, 0])
    assert part.queries == (sheet.queries[3], sheet.queries[0])
    figure = draw_sheet(part, bench.images.load)
    framed = [patch for patch in figure.axes[0].patches if patch.get_linewidth() > 1]
    answers = sum(
        name in query.answers
        for query, found in zip(part.queries, part.columns[0].found, strict=True)
        for name in found
    )
    assert len(framed) == 2 + answers  # the targets and the right answers
    assert RIGHT == "#009e73"
    words = [text.get_text() for text in figure.axes[0].texts]
    for place in part.columns[0].target_rank:
        assert f"target at {place}" + ("" if place == 1 else "  (failure)") in words
    calm = draw_sheet(part, bench.images.load, failures=False)
    assert not any("failure" in text.get_text() for text in calm.axes[0].texts)
