"""The claims: neighbours by hand, gradients by hand, alterations that change what they should, and the reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from triptych.studies.altered_references import alterations, score_altered
from triptych.studies.backlash import backlash, nearest_clean, training_queries
from triptych.studies.cells import Study
from triptych.studies.claims import BEFORE, CLAIMS, claim_lines, claim_report
from triptych.studies.reproduce import Choice
from triptych.studies.run_cells import run_cells
from triptych.studies.term_gradients import term_gradients
from triptych.triplets import read_benchmark
from triptych.triplets.rendered import render_benchmark
from triptych.triplets.rendered_again import other_backgrounds

CHOICE = Choice({"tiny": "fashioniq"})


def test_nearest_clean_by_hand() -> None:
    """On a circle at 0, 10, 50 and 180 degrees the wrong one at 0 has 10 as its nearest, then 50."""
    angles = torch.deg2rad(torch.tensor([0.0, 10.0, 50.0, 180.0]))
    queries = torch.stack([angles.cos(), angles.sin()], dim=1)
    wrong = np.array([True, False, False, False])
    assert nearest_clean(queries, wrong, 1).tolist() == [1]
    assert nearest_clean(queries, wrong, 2).tolist() == [1, 2]
    assert nearest_clean(queries, wrong, 9).tolist() == [1, 2, 3]
    assert nearest_clean(queries, ~wrong, 1).tolist() == [0]
    assert nearest_clean(queries, np.zeros(4, dtype=bool), 1).tolist() == []


def test_gradients_by_hand() -> None:
    metrics = [
        {"kind": "step", "epoch": 0, "term_gradients": {"rob": 4.0, "ul": 0.01}},
        {"kind": "step", "epoch": 0, "term_gradients": {"rob": 2.0, "ul": 0.01}},
        {"kind": "step", "epoch": 0},
        {"kind": "step", "epoch": 1, "term_gradients": {"rob": 0.5, "ul": 0.05}},
        {"kind": "validation", "epoch": 1},
    ]
    rows = [(each.term, each.epoch, each.norm, each.is_inert) for each in term_gradients(metrics)]
    assert rows == [
        ("rob", 1, 3.0, False),
        ("rob", 2, 0.5, False),
        ("ul", 1, 0.01, True),
        ("ul", 2, 0.05, False),
    ]
    assert term_gradients([]) == []


def test_alterations_stay_pictures_and_grow_with_strength() -> None:
    draws = torch.Generator().manual_seed(0)
    pixels, other = torch.rand(2, 1, 3, 64, 64, generator=draws)
    far: dict[str, list[float]] = {}
    for name, _, alter in alterations():
        altered = alter(pixels, other, torch.Generator().manual_seed(3))
        assert altered.shape == pixels.shape
        assert altered.min() >= 0
        assert altered.max() <= 1
        far.setdefault(name, []).append(float((altered - pixels).abs().mean()))
    assert set(far) == {"spectrum mix", "blur", "jitter"}
    for distances in far.values():
        assert distances[0] > 0
        assert distances == sorted(distances)


def test_things_stay_over_another_background(tmp_path: Path) -> None:
    """The picture changes, and changes nowhere that all of its background was hidden."""
    render_benchmark(tmp_path / "r", seed=3, train=12, val=12)
    data = read_benchmark(tmp_path / "r")
    redraw = other_backgrounds(tmp_path / "r", seed=1)
    again = other_backgrounds(tmp_path / "r", seed=2)
    assert redraw is not None
    assert again is not None
    names = sorted({name for part in data.splits["val"] for name in part.gallery})[:12]
    same, changed = [], []
    for name in names:
        old = np.asarray(data.images.load(name), dtype=int)
        one, two = (np.asarray(each(name), dtype=int) for each in (redraw, again))
        things = (one == two).all(axis=2)  # what two other backgrounds do not change
        same.append(np.median(np.abs(old - one)[things]))  # JPEG alone
        changed.append(np.median(np.abs(old - one)[~things]))
    assert np.mean(same) < 4
    assert np.mean(changed) > 10
    assert isinstance(redraw(names[0]), Image.Image)


def test_other_data_has_no_backgrounds_to_change(tiny_benchmark: Path) -> None:
    assert other_backgrounds(tiny_benchmark) is None


def test_plain_references_are_the_evaluation_itself(tiny_run: Path, tiny_model: Any, bench: Any) -> None:
    from triptych.evaluation import REFERENCE_REMOVED
    from triptych.training.evaluate import evaluate

    small = replace(bench, splits={"val": bench.splits["val"][:1]})
    found = score_altered(tiny_model, small)
    plain = evaluate(tiny_run, small, protocol=REFERENCE_REMOVED, samples=0).row()
    assert found[0].recalls == plain.mean
    assert len(found) == 1 + len(list(alterations()))
    again = score_altered(tiny_model, small)
    assert found == again


def test_a_model_is_its_own_before(tiny_run: Path, tiny_model: Any, bench: Any) -> None:
    from triptych.noise import NoiseManifest

    noise = NoiseManifest.read(tiny_run / "noise.json", bench.train)
    queries = training_queries(bench, noise)
    assert sum(len(part.queries) for part in queries.splits["train"]) == len(bench.train)
    first, second = backlash(tiny_model, [("a", tiny_model), ("b", tiny_model)], bench, noise)
    assert replace(first, model="b") == second
    close, rest, wrong = first.counts
    assert close + rest + wrong == len(bench.train)
    assert wrong == len(noise.noisy_ids)


def test_reports_of_trained_cells(
    lite_weights: None, tiny_benchmark: Path, tmp_path: Path, tiny_runs: list[tuple[str, ...]]
) -> None:
    lines = {name: claim_lines(name, "tiny", CHOICE, {}) for name in CLAIMS}
    assert lines["backlash"][0].label == BEFORE
    assert lines["backlash"][0].cells[0].settings == (
        ("training.epochs", "2"), ("training.horizon_epochs", "12"),
    )  # fmt: skip
    cells = tuple(dict.fromkeys(line.cells[0] for name in ("backlash", "terms") for line in lines[name]))
    study = Study({"tiny": tiny_benchmark}, tmp_path / "s", cells)
    run_cells(study)
    near = claim_report("backlash", study, lines["backlash"])
    assert [row[0] for row in near.tables[0].rows] == [line.label for line in lines["backlash"]]
    assert near.unfinished == ()
    terms = claim_report("terms", study, lines["terms"])
    assert {row[0] for row in terms.tables[0].rows} == {"habit", "intent", "conesep"}
    assert {row[2] for row in terms.tables[0].rows} >= {"robust"}
    missing = claim_report("references", study, lines["references"])
    assert any("2 runs are not finished" in note for note in missing.notes)  # rcl and intent.A1
