"""Results as lines: retention, ranks and sensitivity by hand, and what cannot be drawn."""

from dataclasses import replace

import pytest

from triptych.errors import UsageError
from triptych.studies.figures.result_lines import (
    draw_method_ranks,
    draw_retention,
    draw_sensitivity,
    method_ranks,
    noise_table,
    noise_tables,
    retention,
    sensitivity,
)


@pytest.fixture
def results(result):
    return [
        result("intent", None, 40.0),
        result("intent", 0.5, 28.0, seed=0),
        result("intent", 0.5, 32.0, seed=1),
        result("rcl", None, 50.0),
        result("rcl", 0.2, 40.0),
        result("rcl", 0.5, 30.0),
        result("rde", 0.5, 10.0),
        result("rde", 0.5, 99.0, seed=3, dropped=True),
    ]


def test_the_table_has_means_over_seeds_and_holes(results) -> None:
    table = noise_table(results, "R@10", "kept")
    assert (table.rates, table.kind) == ((0.0, 0.2, 0.5), "mix")
    assert table.values == {
        "intent": (40.0, None, 30.0),
        "rcl": (50.0, 40.0, 30.0),
        "rde": (None, None, 10.0),
    }
    assert table.runs["intent"] == (1, 0, 2)
    assert table.spread["intent"] == pytest.approx((0.0, 0.0, 8**0.5))
    assert noise_table(results, "R@10", "removed").values["rde"] == (None, None, 11.0)


def test_retention_by_hand(results) -> None:
    table = noise_table(results, "R@10", "kept")
    lines = retention(table)
    assert lines["intent"].at == (0.0, 50.0)
    assert lines["intent"].mean == (100.0, 75.0)
    assert lines["intent"].spread == pytest.approx((0.0, 100 * 8**0.5 / 40))
    assert lines["rcl"].mean == (100.0, 80.0, 60.0)
    assert "rde" not in lines
    figure = draw_retention(lines, table, "R@10", "kept")
    assert figure.axes[0].get_xlabel() == "triplets drawn to be wrong (mix), percent"


def test_ranks_by_hand(results) -> None:
    """At 50 % intent and rcl have 30 each and share places 1 and 2."""
    tables = noise_tables(results, "R@10", None)
    ranks = method_ranks(tables["toy/val"])
    assert ranks == {"intent": (2.0, None, 1.5), "rcl": (1.0, 1.0, 1.5), "rde": (None, None, 3.0)}
    figure = draw_method_ranks(tables, "R@10")
    assert figure.axes[0].get_ylim() == (3.6, 0.4)


def test_two_data_sets_are_two_panels(results, result) -> None:
    more = [result("intent", 0.2, 1.0, data="other"), result("rcl", 0.2, 2.0, data="other")]
    tables = noise_tables([*results, *more], "R@10", None)
    assert list(tables) == ["toy/val", "other/val"]
    assert len(draw_method_ranks(tables, "R@10").axes) == 2
    with pytest.raises(UsageError, match="cannot stand in one table"):
        noise_table([*results, *more], "R@10", "kept")


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ([], "no finished result"),
        ([("rcl", 0.5, 1.0, {}), ("rcl", 0.2, 1.0, {"kind": "hard"})], "2 kinds of noise"),
        ([("rcl", 0.5, 1.0, {"dropped": True})], "left the wrong triplets out"),
    ],
)
def test_what_is_no_table_of_noise(result, made, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        noise_table([result(*each[:3], **each[3]) for each in made], "R@10", "kept")


def test_two_results_for_one_place_are_not_mixed(result) -> None:
    with pytest.raises(UsageError, match="are both rcl at 0 % noise"):
        noise_table([result("rcl", None, 1.0), result("rcl", 0.0, 2.0)], "R@10", "kept")


def test_a_rate_that_was_not_written_down(result) -> None:
    """The real rate stands in for the one that was asked for; noise is never taken for clean training."""
    old = result("rcl", 0.4, 1.0)
    for ratio, asked in ((0.4, None), (None, None)):
        noise = old.evaluation.noise.model_copy(update={"asked": asked, "ratio": ratio})
        changed = replace(old, evaluation=old.evaluation.model_copy(update={"noise": noise}))
        if ratio is not None:
            assert noise_table([changed], "R@10", "kept").rates == (0.4,)
        else:
            with pytest.raises(UsageError, match="rate of its noise is not known"):
                noise_table([changed], "R@10", "kept")


def test_an_unknown_metric_and_no_clean_run(result) -> None:
    with pytest.raises(UsageError, match=r'no metric "R@7"; it has: R@10'):
        noise_table([result("rcl", 0.5, 1.0)], "R@7", "kept")
    with pytest.raises(UsageError, match="train one without --noise"):
        retention(noise_table([result("rcl", 0.5, 1.0)], "R@10", "kept"))


def test_sensitivity_takes_the_default_where_nothing_is_said(result) -> None:
    """Conesep's omega is 0.5 unless the run says otherwise; two seeds make a mean."""
    results = [
        result("conesep", 0.5, 20.0, method__omega="0.9"),
        result("conesep", 0.5, 10.0, seed=0),
        result("conesep", 0.5, 14.0, seed=1),
    ]
    lines, names = sensitivity(results, "method.omega", "R@10", "kept")
    (line,) = lines.values()
    assert names is None
    assert (line.at, line.mean, line.runs) == ((0.5, 0.9), (12.0, 20.0), (2, 1))
    assert line.spread == pytest.approx((8**0.5, 0.0))
    figure = draw_sensitivity(lines, names, "method.omega", "R@10", "kept")
    assert figure.axes[0].get_ylabel() == "R@10, percent (reference kept)"


def test_named_values_stand_in_alphabetical_order(result) -> None:
    results = [result("conesep", 0.5, 1.0), result("conesep", 0.5, 2.0, method__boundary="empirical")]
    lines, names = sensitivity(results, "method.boundary", "R@10", "kept")
    assert names == ("empirical", "gaussian")
    assert next(iter(lines.values())).mean == (2.0, 1.0)
    figure = draw_sensitivity(lines, names, "method.boundary", "R@10", "kept")
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["empirical", "gaussian"]


def test_runs_that_differ_in_more_or_in_nothing(result) -> None:
    one, other = (
        result("conesep", 0.5, 1.0),
        result("conesep", 0.5, 1.0, method__omega="0.9", method__zeta="1"),
    )
    with pytest.raises(UsageError, match=r"not only in method\.omega but in method\.zeta"):
        sensitivity([one, other], "method.omega", "R@10", "kept")
    with pytest.raises(UsageError, match=r"all 1 runs have method\.omega = 0\.5"):
        sensitivity([one], "method.omega", "R@10", "kept")
    with pytest.raises(UsageError, match=r'no setting "method\.omga"; it has: .*method\.omega'):
        sensitivity([one, other], "method.omga", "R@10", "kept")
