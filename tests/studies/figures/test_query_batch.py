"""Queries and draws of them: the same each time, and a batch whose right answers are on the diagonal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.errors import DataError, UsageError
from triptych.studies.figures.query_batch import KnownQuery, drawn, known_queries, one_batch


def query(name: str, *answers: str) -> KnownQuery:
    return KnownQuery(name, "all", "r", "text", answers[0], answers)


def test_the_queries_of_the_tiny_data(bench) -> None:
    queries = known_queries(bench, "val")
    assert len(queries) == 12
    assert {each.category for each in queries} == {"plain", "tinted"}
    several = [each for each in queries if len(each.answers) > 1]
    assert len(several) == 2
    assert all(each.answers[0] == each.target for each in queries)
    assert several[0].text == "not red and same shape in another colour"
    with pytest.raises(UsageError, match='no split "test"'):
        known_queries(bench, "test")


@given(
    st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=3, unique=True), min_size=2),
    st.integers(0, 9),
)
def test_no_target_of_a_batch_answers_another_query(answers: list[list[str]], seed: int) -> None:
    queries = [query(str(at), *own) for at, own in enumerate(answers)]
    try:
        batch = one_batch(queries, 4, seed)
    except DataError:
        return
    assert 2 <= len(batch) <= 4
    for one in batch:
        assert not any(one.target in other.answers for other in batch if other is not one)
    assert batch == one_batch(queries, 4, seed)
    assert batch == sorted(batch, key=lambda each: int(each.triplet_id))


def test_a_batch_of_one_target_is_none() -> None:
    with pytest.raises(DataError, match="fewer than two"):
        one_batch([query("1", "a"), query("2", "a")], 4, 0)


def test_a_draw_keeps_the_order_and_depends_on_its_name() -> None:
    items = list(range(50))
    once = drawn(items, 5, 0, "x")
    assert once == sorted(once) == drawn(items, 5, 0, "x")
    assert once != drawn(items, 5, 0, "y")
    assert drawn(items, 99, 0, "x") == items
