"""``triptych compare``: runs, grids and result files in one table."""

import json
import shutil
from pathlib import Path

import pytest

from triptych.evaluation import Evaluation


@pytest.fixture(scope="module")
def runs(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three finished runs of two methods, one that still trains, and one that was not evaluated."""
    from triptych.training.evaluate import evaluate
    from triptych.training.run import Run

    _, config = Run.open(tiny_run)
    result = evaluate(tiny_run, config.data, context=True, phrasings=True, samples=0)
    folder = tmp_path_factory.mktemp("runs")
    made = {}
    for name, method, seed in (
        ("a0", "rcl", 0),
        ("a1", "rcl", 1),
        ("b0", "tme", 0),
        ("half", "tme", 1),
        ("bare", "tme", 2),
    ):
        made[name] = folder / name
        (folder / name / "last").mkdir(parents=True)
        settings = {
            "hash": "x",
            "data": "d",
            "method": {"name": method},
            "training": {"seed": seed, "epochs": 2},
        }
        (folder / name / "config.json").write_text(json.dumps(settings))
        shutil.copy(tiny_run / "noise.json", folder / name / "noise.json")
        if name != "half":
            (folder / name / "last" / "model.safetensors").write_bytes(b"")
        if name not in ("half", "bare"):
            model = result.model.model_copy(update={"name": name, "method": method, "seed": seed})
            result.model_copy(update={"model": model}).write(folder / name / "evaluation-best.json")
    return made


def test_evaluate_leaves_its_result_in_the_run(triptych, tiny_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(tiny_run, tmp_path / "run")
    shutil.rmtree(run / "evaluation-best.json", ignore_errors=True)
    assert triptych("evaluate", run, "--no-context", "--bootstrap", 0).code == 0
    assert Evaluation.read(run / "evaluation-best.json").model.name == "run"
    outcome = triptych("compare", run)
    assert outcome.code == 0, outcome.err
    assert "infonce" in outcome.out


def test_means_seeds_and_what_is_not_finished(triptych, runs: dict[str, Path]) -> None:
    outcome = triptych("compare", *runs.values(), "--baseline", "rcl", "--bootstrap", 50)
    assert outcome.code == 0, outcome.err
    text = " ".join(outcome.out.split())
    assert "rcl mix 50 % 0, 1 " in text
    assert "± 0.0" in text, "the same result twice"
    assert "3 finished runs" in text
    assert "2 runs are not finished and are in no mean: half (still training" in text
    assert "bare (not evaluated; run `triptych evaluate" in text
    assert "+0.0 [+0.0, +0.0]" in text
    assert "effective" in text


def test_every_format(triptych, runs: dict[str, Path], tmp_path: Path) -> None:
    names = ("t.txt", "t.md", "t.tex", "t.csv", "t.json", "t.html")
    options = [item for name in names for item in ("-o", tmp_path / name)]
    outcome = triptych("compare", runs["a0"], runs["b0"], "--by-category", *options)
    assert (outcome.code, outcome.out) == (0, ""), outcome.err
    texts = {name: (tmp_path / name).read_text() for name in names}
    assert "| rcl | mix 50 % | 0 |" in texts["t.md"]
    assert "\\toprule" in texts["t.tex"]
    assert texts["t.csv"].startswith("kind,method,noise,")
    assert json.loads(texts["t.json"])["protocol"]["name"] == "fashioniq"
    assert "<table>" in texts["t.html"]
    assert "http" not in texts["t.html"].replace("http-equiv", "")
    assert all("plain" in text for text in texts.values())
    printed = triptych("compare", runs["a0"], runs["b0"], "--by-category", "--format", "markdown")
    assert printed.out == texts["t.md"]


def test_a_grid_names_its_unfinished_cells(triptych, runs: dict[str, Path], tmp_path: Path) -> None:
    grid = tmp_path / "grid"
    for name in ("a0", "b0", "half"):
        shutil.copytree(runs[name], grid / name)
    (grid / "grid.json").write_text("{}")
    (grid / "a0" / "cell.json").write_text("{}")
    outcome = triptych("compare", grid)
    assert outcome.code == 0, outcome.err
    text = " ".join(outcome.out.split())
    assert "1 finished runs" in text
    assert "2 runs are not finished and are in no mean: b0 (the cell is not finished); half" in text


def test_result_files_and_last_models(triptych, runs: dict[str, Path], tmp_path: Path) -> None:
    file = shutil.copy(runs["a0"] / "evaluation-best.json", tmp_path / "x.json")
    assert "rcl" in triptych("compare", file).out
    outcome = triptych("compare", runs["a0"], "--checkpoint", "last")
    assert outcome.code == 2
    assert "no finished result (a0: not evaluated" in outcome.said


def test_other_galleries_are_refused(triptych, runs: dict[str, Path], tmp_path: Path) -> None:
    other = Evaluation.read(runs["b0"] / "evaluation-best.json")
    other.model_copy(update={"gallery_hash": "0" * 64}).write(tmp_path / "other.json")
    outcome = triptych("compare", runs["a0"], tmp_path / "other.json")
    assert outcome.code == 2
    assert "these results cannot stand in one table" in outcome.said
    assert "they differ in gallery" in outcome.said
    assert "b0" in outcome.said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("/nowhere",), "/nowhere: there is no such file or folder"),
        (("{a0}", "{a0}"), "is named twice"),
        (("{a0}", "-o", "x.pdf"), "x.pdf: end its name in one of .txt, .md, .tex, .csv, .json, .html"),
        (("{a0}", "--baseline", "who"), "no run and no method is called so; methods: rcl"),
        (("{empty}",), "there is no run, no grid and no result here"),
    ],
)
def test_wrong_usage(arguments, message: str, triptych, runs: dict[str, Path], tmp_path: Path) -> None:
    places = {"a0": runs["a0"], "empty": tmp_path}
    outcome = triptych("compare", *(argument.format(**places) for argument in arguments))
    assert outcome.code == 2
    assert message in outcome.said


def test_a_file_that_is_no_result(triptych, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    outcome = triptych("compare", tmp_path / "x.json")
    assert outcome.code == 1
    assert "is not an evaluation" in outcome.said
