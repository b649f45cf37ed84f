"""The papers' figures: complete, and wrong averages found as the specification lists them."""

from __future__ import annotations

import re
from pathlib import Path

from triptych.evaluation.quoted import as_printed, misprints, quoted_rows
from triptych.triplets import read_benchmark

METHODS = {"ssn", "cala", "sprc", "rcl", "rde", "tme", "habit", "intent", "conesep"}


def test_every_method_and_noise_rate_of_both_data_sets_is_there() -> None:
    rows = quoted_rows()
    assert len(rows) == len({(row.data, row.method, row.noise) for row in rows}) == 2 * 9 * 4
    assert {row.method for row in rows} == METHODS
    assert {row.noise for row in rows} == {0.0, 0.2, 0.5, 0.8}
    assert all(0 < value < 100 for row in rows for own in row.categories.values() for value in own.values())


def test_appendix_c_follows_from_the_cells(shared: Path) -> None:
    text = (shared / "spec" / "methods.md").read_text()
    listed = re.findall(
        r"^\| (FashionIQ|CIRR) \| (\w+) (\d+) % \| (.+?) \| ([\d.]+).*?\| ([\d.]+)", text, flags=re.MULTILINE
    )
    assert len(listed) == 6
    wrong = {
        (m.row.data, m.row.method, round(100 * m.row.noise), m.metric): (m.printed, m.recomputed)
        for m in misprints()
    }
    for data, method, noise, column, printed, recomputed in listed:
        metric = "Avg" if column.startswith("Avg") else re.findall(r"R@\d+", column)[0]
        key = (data.lower(), method.lower(), int(noise), metric)
        assert wrong.pop(key) == (float(printed), float(recomputed))
    assert {key[3] for key in wrong} == {"Avg"}, "what is left are the averages of those averages"
    assert {key[:3] for key in wrong} <= {("fashioniq", "cala", 50), ("fashioniq", "sprc", 80)}


def test_derived_averages_of_the_ablation_tables() -> None:
    """Spec 2.3: the papers' R@K at 20 % on CIRR."""
    at_20 = {row.method: row.mean for row in quoted_rows() if (row.data, row.noise) == ("cirr", 0.2)}
    assert [as_printed(at_20[name]["R@K"]) for name in ("intent", "habit", "conesep")] == [
        "80.17",
        "79.94",
        "80.66",
    ]


def test_galleries_are_the_official_ones(shared: Path) -> None:
    hashes = {(row.data, row.split): row.gallery_hash for row in quoted_rows()}
    for (data, split), found in hashes.items():
        assert read_benchmark(shared / "data" / data).gallery_hash(split) == found
