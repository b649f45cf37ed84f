"""Filters: what is understood, and that nothing else reaches the table."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.search.filter_tree import to_sql
from triptych.search.filters import FilterError, parse_filter

COLUMNS = {
    "id": pa.string(),
    "price": pa.float64(),
    "stock": pa.int64(),
    "new": pa.bool_(),
    "Base Colour": pa.string(),
}


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("id = 'a'", "`id` = 'a'"),
        ("price<=5", "`price` <= 5.0"),
        ("stock <> -3", "`stock` <> -3"),
        ("stock = 2.5", "`stock` = 2.5"),
        ("new = true", "`new` = TRUE"),
        ("\"Base Colour\" = 'red'", "`Base Colour` = 'red'"),
        ("`Base Colour` is not null", "`Base Colour` IS NOT NULL"),
        ("id = 'it''s'", "`id` = 'it''s'"),
        ("id in ('a','b')", "`id` IN ('a', 'b')"),
        ("id not in ('a')", "`id` NOT IN ('a')"),
        ("price between 1 and 2", "(`price` BETWEEN 1.0 AND 2.0)"),
        ("id LIKE 'a%'", "`id` LIKE 'a%'"),
        (
            "not id = 'a' and price > 1 or new = false",
            "(((NOT `id` = 'a') AND `price` > 1.0) OR `new` = FALSE)",
        ),
        ("(id = 'a' or id = 'b') and price > 1", "((`id` = 'a' OR `id` = 'b') AND `price` > 1.0)"),
    ],
)
def test_what_is_written(text: str, written: str) -> None:
    assert to_sql(parse_filter(text, COLUMNS)) == written


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the filter is empty"),
        ("  ", "the filter is empty"),
        (
            "gone = 1",
            r'no column "gone"; a filter may name: id \(text\), price \(number\), .*new \(truth value\)',
        ),
        ("ID = 'a'", 'no column "ID"'),
        ("id = 'a'; DROP TABLE images", "at character 9 there is '; DROP TAB'"),
        ("id = 'a' -- rest", "at character 10"),
        ("id = 'a' UNION SELECT 1", 'there is "UNION", expected AND, OR or the end'),
        ("1 = 1", 'there is "1", expected a column'),
        ("id = (SELECT id FROM images)", r"expected a 'text', a number"),
        ("length(id) > 3", 'no column "length"'),
        ("id = id", "expected a 'text'"),
        ("id = 'open", "at character 6"),
        ("id =", "it ends, expected"),
        ("(id = 'a'", r'it ends, expected "\)"'),
        ("id = 3", 'the column "id" holds texts, but is compared with the number 3'),
        ("price = 'x'", "holds numbers, but is compared with the text"),
        ("price LIKE 'x'", "LIKE needs texts"),
        ("new < true", "compare it with = or !="),
        ("stock = 99999999999999999999", "too large"),
        ("price = 1e999", "too large"),
        ("price = nan", "expected a 'text', a number"),
        ("(" * 40 + "id = 'a'" + ")" * 40, "nested more than 30"),
        ("NOT " * 40 + "id = 'a'", "nested more than 30"),
        ("id = '" + "x" * 4000 + "'", "at most 4,000"),
        ("id IN (" + ",".join(["'a'"] * 400) + ")", "more than 500 words"),
        ("id = 'a\0b'", "at character 6"),
        ("`id`` = 'a'", "no column|cannot be read"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(FilterError, match=message):
        parse_filter(text, COLUMNS)


@given(st.text(max_size=60))
def test_any_text_is_a_value_and_nothing_more(text: str) -> None:
    quoted = text.replace("'", "''")
    if "\0" in text:
        return
    assert to_sql(parse_filter(f"id = '{quoted}'", COLUMNS)) == f"`id` = '{quoted}'"


@given(st.text(alphabet="ab'\"`()=<>,;- \n0.19eINOT", max_size=80))
def test_no_input_does_more_than_be_refused(text: str) -> None:
    try:
        written = to_sql(parse_filter(text, COLUMNS))
    except FilterError:
        return
    outside = "".join(written.split("'")[::2])
    assert ";" not in outside
    assert "--" not in outside
