"""Whatever holds a model can be scored: a run, its folder, a model folder, a loaded model."""

from dataclasses import replace
from pathlib import Path

import pytest

import triptych
from triptych.errors import DataError, UsageError
from triptych.training.model import load_model
from triptych.training.run import Run
from triptych.training.source import open_model
from triptych.triplets import TripletTable, read_benchmark


def test_the_same_model_scores_the_same_however_it_is_given(tiny_run: Path, tiny_benchmark: Path) -> None:
    data = read_benchmark(tiny_benchmark)
    given = (Run(tiny_run), tiny_run, str(tiny_run), tiny_run / "best", load_model(tiny_run))
    results = [triptych.evaluate(source, data, samples=0) for source in given]
    assert all(result.rows == results[0].rows for result in results)
    assert [result.model.name for result in results] == ["run", "run", "run", "best", "model"]


def test_a_run_tells_its_noise_by_the_name_it_was_given(tiny_run: Path, tiny_benchmark: Path) -> None:
    result = triptych.evaluate(tiny_run, tiny_benchmark, samples=0)
    assert result.noise is not None
    manifest = triptych.NoiseManifest.read(tiny_run / "noise.json")
    assert result.noise.name == "mix50.json"
    assert result.noise.fingerprint == manifest.fingerprint()
    assert result.noise.ratio == manifest.ratio_real


def test_best_and_last_are_told_apart(tiny_run: Path) -> None:
    assert open_model(tiny_run, checkpoint="last").model.info["epoch"] == 2
    best = next(entry for entry in reversed(Run(tiny_run).metrics()) if entry.get("improved"))
    assert open_model(tiny_run).model.info["epoch"] == best["epoch"] + 1
    with pytest.raises(UsageError, match='unknown checkpoint "first"; choose one of: best, last'):
        open_model(tiny_run, checkpoint="first")


def test_what_is_no_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such folder"):
        open_model(tmp_path / "gone")
    with pytest.raises(DataError, match="there is no model here"):
        open_model(tmp_path)


def test_an_empty_gallery_and_a_category_without_queries(tiny_run: Path, tiny_benchmark: Path) -> None:
    data = read_benchmark(tiny_benchmark)
    plain, tinted = data.splits["val"]
    empty = replace(data, splits={"val": (replace(plain, gallery=()), tinted)})
    with pytest.raises(DataError, match="category plain of split val has an empty gallery"):
        triptych.evaluate(tiny_run, empty)
    silent = replace(data, splits={"val": (plain, replace(tinted, queries=TripletTable.from_triplets([])))})
    with pytest.raises(DataError, match="category tinted of split val has no queries"):
        triptych.evaluate(tiny_run, silent)


def test_a_protocol_is_named_or_given(tiny_run: Path, tiny_benchmark: Path) -> None:
    result = triptych.evaluate(tiny_run, tiny_benchmark, protocol="reference-removed", samples=0)
    assert result.row().reference == "removed"
    with pytest.raises(UsageError, match='unknown protocol "coco"'):
        triptych.evaluate(tiny_run, tiny_benchmark, protocol="coco")
