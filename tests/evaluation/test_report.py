"""The report: figures by hand, a JSON round trip, and the tables that people read."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError
from rich.console import Console

from triptych.errors import DataError, UsageError
from triptych.evaluation.protocols import FASHIONIQ, REFERENCE_REMOVED, Protocol
from triptych.evaluation.queries import QueryRanks
from triptych.evaluation.ranking import UNRANKED
from triptych.evaluation.report import Evaluation, ModelInfo, NoiseInfo, assemble, summarise
from triptych.evaluation.tables import rich_table, to_markdown, to_tables


def ranks(category: str, target: list[int], reference: list[int], answers: list[list[int]]) -> QueryRanks:
    return QueryRanks(
        split="val",
        category=category,
        gallery_size=100,
        triplet_ids=tuple(f"{category}/{n}" for n in range(len(target))),
        target=np.array(target),
        reference=np.array(reference),
        answers=tuple(np.array(own, dtype=np.int64) for own in answers),
    )


DRESS = ranks("dress", [0, 1, 10, 60], [5, 0, 0, 0], [[0, 2], [], [], []])
SHIRT = ranks("shirt", [0, 0], [UNRANKED, 1], [[], []])


def an_evaluation(**options: object) -> Evaluation:
    return assemble(
        {"composed": [DRESS, SHIRT], "image-only": [SHIRT_LIKE_DRESS, SHIRT]},
        FASHIONIQ,
        **{
            "data": "shop",
            "gallery_hash": "ab" * 32,
            "model": ModelInfo(name="run-1", method="rcl", backbone="lite", epoch=3),
            "noise": NoiseInfo(name="mix-50.json", fingerprint="cd" * 32, kind="mix", ratio=0.41),
            "seed": 7,
            "samples": 50,
            **options,
        },
    )


SHIRT_LIKE_DRESS = ranks("dress", [20, 20, 20, 20], [0, 0, 0, 0], [[20], [], [], []])


def test_rows_by_hand() -> None:
    kept, removed = summarise([DRESS, SHIRT], FASHIONIQ, samples=0)
    assert (kept.reference, removed.reference) == ("kept", "removed")
    assert kept.categories["dress"]["R@1"] == 25.0
    assert kept.categories["dress"]["R@10"] == 50.0
    assert removed.categories["dress"]["R@1"] == 50.0
    assert removed.categories["dress"]["R@10"] == 75.0
    assert kept.mean["R@10"] == 75.0  # (50 + 100) / 2, not 4 of 6
    assert kept.categories["dress"]["mAP@5"] == pytest.approx(100 * (1 + 2 / 3) / 2)
    assert kept.mean["mAP@5"] == kept.categories["dress"]["mAP@5"]
    assert "mAP@5" not in kept.categories["shirt"]
    assert (kept.num_queries, kept.num_with_answers) == (6, 1)
    assert kept.intervals == {}


def test_the_headline_comes_first() -> None:
    assert [row.reference for row in summarise([DRESS], REFERENCE_REMOVED, samples=0)] == ["removed", "kept"]


def test_intervals_hold_the_mean_and_stay_in_range() -> None:
    kept, _ = summarise([DRESS, SHIRT], FASHIONIQ, samples=200)
    assert set(kept.intervals) == set(kept.mean)
    for metric, (low, high) in kept.intervals.items():
        assert 0 <= low <= kept.mean[metric] <= high <= 100
    assert kept.intervals["R@5"][0] < kept.intervals["R@5"][1]


def test_categories_must_be_named_once() -> None:
    with pytest.raises(UsageError, match="at least one category, each once"):
        summarise([], FASHIONIQ)
    with pytest.raises(UsageError, match="at least one category, each once"):
        summarise([DRESS, DRESS], FASHIONIQ)


def test_rows_of_other_galleries_do_not_mix() -> None:
    options = {"data": "x", "gallery_hash": "", "model": ModelInfo(name="m", method="m", backbone="b")}
    with pytest.raises(UsageError, match="same galleries"):
        assemble({"composed": [DRESS, SHIRT], "image-only": [DRESS]}, FASHIONIQ, **options)
    with pytest.raises(UsageError, match="same galleries"):
        assemble({}, FASHIONIQ, **options)


def test_rows_are_found_by_name_and_the_selection_score_is_the_headlines() -> None:
    evaluation = an_evaluation()
    assert evaluation.row().reference == "kept"
    assert evaluation.row("composed", "removed").reference == "removed"
    assert evaluation.score() == (75.0 + 87.5) / 2
    with pytest.raises(UsageError, match='no row "text-only"; it has: composed, image-only'):
        evaluation.row("text-only")
    short = Protocol(name="short", headline="kept", ks=(1,), selection=("R@10",))
    with pytest.raises(UsageError, match="selects by R@10"):
        assemble(
            {"composed": [DRESS]}, short, data="x", gallery_hash="", model=evaluation.model, samples=0
        ).score()


def test_json_round_trip_names_everything(tmp_path: Path) -> None:
    evaluation = an_evaluation()
    path = tmp_path / "evaluation.json"
    evaluation.write(path)
    assert Evaluation.read(path) == evaluation
    stored = json.loads(path.read_text())
    assert stored["protocol"]["name"] == "fashioniq"
    assert stored["gallery_sizes"] == {"dress": 100, "shirt": 100}
    assert stored["gallery_hash"] == "ab" * 32
    assert stored["noise"]["name"] == "mix-50.json"
    assert [(row["name"], row["reference"]) for row in stored["rows"]] == [
        ("composed", "kept"),
        ("composed", "removed"),
        ("image-only", "kept"),
        ("image-only", "removed"),
    ]


def test_an_evaluation_does_not_change() -> None:
    with pytest.raises(ValidationError):
        an_evaluation().data = "other"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"evaluation.json: is not an evaluation"),
        ('{"format": "other"}', r'evaluation.json: .*field "format"'),
        ("[]", r"evaluation.json: is not an evaluation"),
    ],
)
def test_a_file_that_is_no_evaluation(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "evaluation.json"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        Evaluation.read(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        Evaluation.read(tmp_path / "none.json")


def test_notes_count_what_was_left_out() -> None:
    part = ranks("dress", [0, 3], [0, 1], [[0], []])
    odd = QueryRanks(**{**vars(part), "without_target": 3, "answers_outside": 2})
    evaluation = assemble(
        {"composed": [odd, SHIRT]},
        FASHIONIQ,
        data="x",
        gallery_hash="",
        model=ModelInfo(name="m", method="m", backbone="b"),
        samples=0,
    )
    assert evaluation.notes == (
        "3 queries without a known target were left out.",
        "mAP is over the 1 of 4 queries whose right answers are known.",
        "mAP is absent where no right answers are known: shirt.",
        "2 right answers outside the gallery were left out.",
        "The target of 1 queries is their reference: where that is removed, they are misses.",
    )
    assert (
        assemble(
            {"composed": [SHIRT]}, FASHIONIQ, data="x", gallery_hash="", model=evaluation.model, samples=0
        ).notes
        == ()
    )


def test_the_tables_of_means() -> None:
    recall, precision = to_tables(an_evaluation())
    assert recall.header == ("query", "reference", "R@1", "R@5", "R@10", "R@50")
    assert precision.header == ("query", "reference", "mAP@5", "mAP@10", "mAP@25", "mAP@50")
    assert [row[:2] for row in recall.rows] == [
        ("composed", "kept"),
        ("composed", "removed"),
        ("image-only", "kept"),
        ("image-only", "removed"),
    ]
    assert recall.headline == (True, False, True, False)
    assert recall.rows[0][4].startswith("75.0 [")
    assert to_tables(an_evaluation(samples=0))[0].rows[0][4] == "75.0"
    assert "percent" in recall.title
    assert any("mix-50.json" in note for note in recall.notes)
    assert any("dress 100, shirt 100 images (hash abababababab)" in note for note in recall.notes)


def test_the_tables_of_categories() -> None:
    recall, precision = to_tables(an_evaluation(), by_category=True)
    assert recall.header == ("query", "reference", "category", "R@1", "R@5", "R@10", "R@50")
    assert recall.rows[0][:4] == ("composed", "kept", "dress", "25.0")
    assert precision.rows[1] == ("composed", "kept", "shirt", "–", "–", "–", "–")
    assert len(recall.rows) == len(precision.rows) == 8


def test_without_known_answers_there_is_no_table_of_precision() -> None:
    model = ModelInfo(name="m", method="m", backbone="b")
    evaluation = assemble({"composed": [SHIRT]}, FASHIONIQ, data="x", gallery_hash="", model=model, samples=0)
    assert [table.header[2] for table in to_tables(evaluation)] == ["R@1"]


def test_markdown_is_a_table_a_reader_can_trust() -> None:
    text = to_markdown(an_evaluation(data="a|b"))
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert lines[1] == "| --- | --- | ---: | ---: | ---: | ---: |"
    assert len({line.count("|") for line in lines[:6]}) == 1
    assert "headline: reference kept" in text


def test_the_terminal_shows_names_with_brackets_as_they_are_and_fits_80_columns() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    evaluation = an_evaluation(data="[red]shop")
    for by_category in (False, True):
        for table in to_tables(evaluation, by_category=by_category):
            console.print(rich_table(table))
    text = console.export_text()
    assert "[red]shop" in text
    assert "image-only" in text
    assert "[100.0–100.0]" in text
    assert "…" not in text
