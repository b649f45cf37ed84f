"""Many results side by side: by hand, and nothing mixed that does not belong together."""

from __future__ import annotations

import csv
import io
import json
import re

import numpy as np
import pytest

from triptych.errors import UsageError
from triptych.evaluation import formats
from triptych.evaluation.comparison import Unfinished, compare, query_values
from triptych.evaluation.comparison_tables import comparison_notes, comparison_tables, matching, records
from triptych.evaluation.protocols import CIRR, REFERENCE_REMOVED
from triptych.evaluation.quoted import quoted_rows

OFFICIAL = next(row.gallery_hash for row in quoted_rows() if row.data == "fashioniq")


def test_the_mean_over_seeds_and_its_deviation(make_result) -> None:
    results = [make_result("intent", seed) for seed in (0, 1, 2)]
    (group,) = compare(results).groups
    figures = [result.evaluation.row("composed", "kept").mean["R@10"] for result in results]
    np.testing.assert_allclose(group.figures("R@10"), figures)
    (table, *_) = comparison_tables(compare(results))
    assert table.header == ("method", "noise", "seeds", "R@10", "R@50", "Avg")
    assert table.rows[0][:3] == ("intent", "mix 50 %", "0, 1, 2")
    assert table.rows[0][3] == f"{np.mean(figures):.1f} ± {np.std(figures, ddof=1):.1f}"


def test_other_settings_are_no_other_seeds(make_result) -> None:
    results = [
        make_result("intent", 0, {"training.epochs": "20", "method.mu": "1"}),
        make_result("intent", 1, {"training.epochs": "30", "method.mu": "1"}),
    ]
    assert [group.method for group in compare(results).groups] == [
        "intent (training.epochs=20)",
        "intent (training.epochs=30)",
    ]


def test_noise_levels_do_not_mix_and_come_in_order(make_result) -> None:
    groups = compare([make_result("rcl"), make_result("rcl", 1, ratio=None), make_result("intent")]).groups
    assert [group.name for group in groups] == ["rcl, none", "rcl, mix 50 %", "intent, mix 50 %"]


def test_a_paired_difference_by_hand(make_result) -> None:
    """The mean of the categories' mean differences; its interval is narrower than that of unpaired samples."""
    ours, base = make_result("intent", spread=15.0), make_result("rcl")
    comparison = compare([ours, base], baseline="rcl", samples=400)
    by_place = {(each.metric, each.reference): each for each in comparison.differences}
    for (metric, reference), each in by_place.items():
        mine, theirs = (r.evaluation.row("composed", reference).mean[metric] for r in (ours, base))
        assert each.value == pytest.approx(mine - theirs, abs=1e-9)
        assert each.low <= each.value <= each.high
    assert {metric for metric, _ in by_place} == {"R@10", "R@50", "Avg"}
    assert {each.baseline.method for each in comparison.differences} == {"rcl"}


def test_the_same_run_differs_by_nothing(make_result) -> None:
    twin = make_result("intent", 0, {"method.mu": "2"})
    comparison = compare(
        [make_result("intent", 0, {"method.mu": "1"}), twin], baseline="intent-0", samples=50
    )
    assert {(each.value, each.low, each.high) for each in comparison.differences} == {(0.0, 0.0, 0.0)}
    assert not any(each.is_clear for each in comparison.differences)


def test_seeds_are_averaged_before_the_bootstrap(make_result) -> None:
    ours, base = [make_result("intent", s) for s in (0, 1)], [make_result("rcl", s) for s in (0, 1)]
    values = [
        np.mean([query_values(r.evaluation, "kept")["R@10"][0] for r in side], axis=0)
        for side in (ours, base)
    ]
    groups = np.array(query_values(ours[0].evaluation, "kept")["R@10"][1])
    by_hand = np.mean([(values[0] - values[1])[groups == name].mean() for name in ("dress", "shirt")])
    found = compare([*ours, *base], baseline="rcl", samples=20).differences
    assert next(d.value for d in found if (d.metric, d.reference) == ("R@10", "kept")) == pytest.approx(
        by_hand
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"protocol": REFERENCE_REMOVED},
            r"differ in protocol: fashioniq .*: rcl-0; reference-removed .*: intent-0",
        ),
        (
            {"gallery_hash": "ef" * 32},
            r"differ in gallery: dress 500, .*\(hash abababababab\): rcl-0; .*intent-0",
        ),
        ({"captions": "first"}, "differ in way to join captions: fixed: rcl-0; first: intent-0"),
    ],
)
def test_what_does_not_belong_together_is_refused_and_named(make_result, options, message: str) -> None:
    with pytest.raises(UsageError, match="cannot stand in one table") as caught:
        compare([make_result("rcl"), make_result("intent", **options)])
    assert re.search(message, str(caught.value))


def test_unfinished_runs_are_named_counted_and_in_no_mean(make_result) -> None:
    waiting = [Unfinished("intent-mix-0.5-seed2", "still training")]
    comparison = compare([make_result("intent", 0), make_result("intent", 1)], waiting)
    assert len(comparison.groups[0].results) == 2
    notes = comparison_notes(comparison)
    assert "1 runs are not finished and are in no mean: intent-mix-0.5-seed2 (still training)." in notes
    with pytest.raises(UsageError, match=r"no finished result \(intent-mix-0.5-seed2: still training\)"):
        compare([], waiting)


def test_an_unknown_baseline(make_result) -> None:
    results = [make_result("intent"), make_result("rcl")]
    with pytest.raises(
        UsageError, match="--baseline tme: no run and no method is called so; methods: intent, rcl"
    ):
        compare(results, baseline="tme")
    with pytest.raises(UsageError, match="no other method was trained with the same noise"):
        compare([results[0], make_result("rcl", ratio=None)], baseline="rcl")


def test_results_without_ranks_get_no_difference_and_are_named(make_result) -> None:
    old = make_result("rcl")
    old = type(old)(old.name, old.evaluation.model_copy(update={"ranks": ()}), 0, {})
    comparison = compare([make_result("intent"), old], baseline="rcl")
    assert comparison.differences == ()
    assert any("evaluate these again: rcl-0" in note for note in comparison.notes)


def test_seeds_that_are_not_the_same_everywhere_are_said(make_result) -> None:
    notes = compare([make_result("intent", 0), make_result("intent", 1), make_result("rcl", 0)]).notes
    assert any(
        "The seeds are not the same everywhere: intent, mix 50 %: 0, 1; rcl, mix 50 %: 0" in n for n in notes
    )
    twice = compare([make_result("intent", 0), make_result("intent", 0)]).notes
    assert any("holds a seed more than once: 0, 0" in note for note in twice)


def test_the_honesty_rows(make_result) -> None:
    result = make_result("intent")
    row = {}
    for table in comparison_tables(compare([result]))[-2:]:
        row |= dict(zip(table.header, table.rows[0], strict=True))
    evaluation = result.evaluation
    assert row["kept"] == f"{evaluation.row('composed', 'kept').mean['R@10']:.1f}"
    assert row["removed"] == f"{evaluation.row('composed', 'removed').mean['R@10']:.1f}"
    assert row["image-only"] == f"{evaluation.row('image-only', 'kept').mean['R@10']:.1f}"
    assert row["text-only"] == f"{evaluation.row('text-only', 'kept').mean['R@10']:.1f}"
    assert row["mAP@5*"] == f"{evaluation.row('composed', 'kept').mean['mAP@5']:.1f}"
    wordings = sorted(evaluation.row(name, "kept").mean["R@10"] for name in ("composed", 'text "B and A"'))
    assert row["over wordings"] == f"{wordings[0]:.1f} to {wordings[1]:.1f}"
    assert row["effective noise"] == "41.0 %"
    assert row["seeds"] == "0"


def test_quoted_rows_only_where_the_setting_is_the_same(make_result) -> None:
    official = [make_result(name, gallery_hash=OFFICIAL) for name in ("intent", "infonce")]
    comparison = compare(official)
    (row,) = matching(comparison, "same")
    assert (row.method, row.noise, row.reference) == ("intent", 0.5, "removed")
    kept, removed, *_ = comparison_tables(comparison)
    assert not any(kept.quoted), "INTENT takes the reference out: its figures do not stand beside others"
    quoted = [cells for at, cells in enumerate(removed.rows) if removed.is_quoted(at)]
    assert quoted == [("intent (quoted [1])", "mix 50 %", "", "52.52", "73.32", "62.92")]
    notes = comparison_notes(comparison)
    assert any(
        "[1] Quoted, not measured here: INTENT (AAAI 2026), Table 2; ConeSep, Table 1" in n for n in notes
    )
    assert len(matching(comparison, "papers")) == 36
    assert matching(comparison, "none") == ()
    assert matching(compare([make_result("intent")]), "papers") == (), "another gallery"
    cala = compare([make_result("cala", gallery_hash=OFFICIAL)])
    assert any("for cala at 50 %: R@10 24.83 in place of 25.83" in note for note in comparison_notes(cala))


def test_cirr_of_val_stands_beside_no_figures_of_the_server(make_result) -> None:
    comparison = compare([make_result("intent", protocol=CIRR)])
    assert matching(comparison, "papers") == ()
    assert any("are of test1, from the server" in note for note in comparison_notes(comparison))


def test_records_hold_every_figure_unrounded(make_result) -> None:
    comparison = compare(
        [make_result("intent", 0), make_result("intent", 1), make_result("rcl")], baseline="rcl"
    )
    rows = list(csv.DictReader(io.StringIO(formats.to_csv(records(comparison)))))
    own = [
        row
        for row in rows
        if (row["kind"], row["method"], row["query"], row["reference"], row["category"], row["metric"])
        == ("measured", "intent", "composed", "removed", "mean", "R@10")
    ]
    (row,) = own
    figures = comparison.groups[0].figures("R@10", reference="removed")
    assert float(row["value"]) == figures.mean()
    assert float(row["sd"]) == figures.std(ddof=1)
    assert (row["runs"], row["seeds"]) == ("2", "0 1")
    assert {row["kind"] for row in rows} == {"measured", "difference"}
    assert {row["category"] for row in rows} == {"mean", "dress", "shirt"}
    values = json.loads(formats.to_json(records(comparison), ["x"], data="shop"))
    assert (values["data"], values["notes"], len(values["figures"])) == ("shop", ["x"], len(rows))


def test_latex_is_escaped_and_balanced(make_result) -> None:
    comparison = compare([make_result("a_b"), make_result("rcl")], baseline="rcl")
    text = formats.to_latex(comparison_tables(comparison, by_category=True), comparison_notes(comparison))
    assert "a\\_b" in text
    assert "mix 50 \\%" in text
    for columns, body in re.findall(
        r"begin\{tabular\}\{([lr]+)\}(.*?)\\end\{tabular\}", text, flags=re.DOTALL
    ):
        lines = [line for line in body.splitlines() if line.endswith("\\\\")]
        assert {line.count(" & ") + 1 for line in lines} == {len(columns)}
        assert len(lines) >= 2
    for word in ("table", "tabular"):
        assert text.count(f"\\begin{{{word}}}") == text.count(f"\\end{{{word}}}") > 0
    assert text.count("\\toprule") == text.count("\\midrule") == text.count("\\bottomrule")


def test_markdown_holds_tables_and_notes(make_result) -> None:
    comparison = compare([make_result("intent", gallery_hash=OFFICIAL)])
    text = formats.to_markdown(comparison_tables(comparison), comparison_notes(comparison))
    assert "| *intent (quoted [1])* |" in text
    assert "- Protocol: fashioniq" in text
