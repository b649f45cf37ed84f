"""``triptych evaluate``."""

import json
import shutil
from pathlib import Path

import pytest

from triptych.evaluation import Evaluation
from triptych.triplets import read_benchmark


def test_the_tables_name_what_they_rest_on(triptych, tiny_run: Path, tiny_benchmark: Path) -> None:
    outcome = triptych("evaluate", tiny_run, "--bootstrap", 50)
    assert outcome.code == 0, outcome.err
    text = " ".join(outcome.out.split())
    for row in ("composed", "image-only", "text-only", "empty text", "average reference"):
        for reference in ("kept", "removed"):
            assert f"{row} {reference} " in text
    assert "run on tiny/val, percent" in text
    assert "method infonce, backbone lite, epoch " in text
    assert "Trained with noise: mix50.json (" in text
    assert "gallery: plain 12, tinted 12 images" in text
    assert read_benchmark(tiny_benchmark).gallery_hash("val")[:12] in text
    assert "95 % bootstrap interval (50 draws, seed 0)" in text
    assert "mAP@10" in text


def test_json_is_printed_alone_and_equals_the_file(triptych, tiny_run: Path, tmp_path: Path) -> None:
    quick = ("--no-context", "--bootstrap", 0)
    printed = triptych("evaluate", tiny_run, *quick, "--json", "-")
    result = Evaluation.model_validate_json(printed.out)
    assert {row.name for row in result.rows} == {"composed"}
    assert result.noise is not None
    assert (result.noise.name, result.noise.kind) == ("mix50.json", "mix")
    assert triptych("evaluate", tiny_run, *quick, "--json", tmp_path / "result.json").code == 0
    assert Evaluation.read(tmp_path / "result.json") == result


def test_the_ranking_is_the_same_in_little_memory(triptych, tiny_run: Path) -> None:
    quick = ("evaluate", tiny_run, "--no-context", "--bootstrap", 0, "--json", "-")
    assert triptych(*quick, "--memory-mb", 1).out == triptych(*quick).out


def test_the_protocol_decides_the_headline(triptych, tiny_run: Path) -> None:
    quick = ("evaluate", tiny_run, "--no-context", "--bootstrap", 0, "--json", "-")
    rows = json.loads(triptych(*quick, "--protocol", "reference-removed").out)["rows"]
    assert [row["reference"] for row in rows] == ["removed", "kept"]
    assert [row["reference"] for row in json.loads(triptych(*quick).out)["rows"]] == ["kept", "removed"]


def test_markdown_goes_to_a_file(triptych, tiny_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.md"
    outcome = triptych("evaluate", tiny_run, "--no-context", "--bootstrap", 0, "--markdown", "-o", out)
    assert (outcome.code, outcome.out) == (0, "")
    assert "| composed | kept | plain |" in out.read_text()


def test_categories_a_line_each_with_what_they_rest_on(triptych, tiny_run: Path) -> None:
    outcome = triptych("evaluate", tiny_run, "--no-context", "--bootstrap", 0, "--by-category")
    text = " ".join(outcome.out.split())
    assert "composed kept plain" in text
    assert "composed removed tinted" in text
    assert "Model: run (method infonce" in text


def test_a_model_folder_needs_data(triptych, tiny_run: Path, tiny_benchmark: Path) -> None:
    outcome = triptych("evaluate", tiny_run / "last")
    assert outcome.code == 2
    assert "say which data: --data DATA" in outcome.said
    quick = ("--no-context", "--bootstrap", 0, "--json", "-")
    own = json.loads(triptych("evaluate", tiny_run / "last", "--data", tiny_benchmark, *quick).out)
    run = json.loads(triptych("evaluate", tiny_run, "--checkpoint", "last", *quick).out)
    assert own["rows"] == run["rows"]
    assert own["model"]["name"] == "last"


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--split", "test"), 2, 'tiny has no split "test"; it has: val'),
        (("--checkpoint", "first"), 2, 'unknown checkpoint "first"; choose one of: best, last'),
        (
            ("--protocol", "coco"),
            2,
            'unknown protocol "coco"; choose one of: fashioniq, reference-removed, cirr',
        ),
        (("--data", "/nowhere"), 2, "/nowhere: there is no such file or folder"),
        (("--json", "-", "--markdown"), 2, "leave out --markdown and -o"),
    ],
)
def test_wrong_options(options: tuple[str, ...], code: int, message: str, triptych, tiny_run: Path) -> None:
    outcome = triptych("evaluate", tiny_run, *options)
    assert (outcome.code, outcome.out) == (code, "")
    assert message in outcome.said


def test_what_is_no_model_is_named(triptych, tmp_path: Path, tiny_benchmark: Path) -> None:
    outcome = triptych("evaluate", tmp_path, "--data", tiny_benchmark)
    assert outcome.code == 1
    assert f"{tmp_path}: there is no model here" in outcome.said
    assert triptych("evaluate", tmp_path / "gone", "--data", tiny_benchmark).code == 2
    assert triptych("evaluate", tmp_path).code == 1


def test_a_run_without_a_last_model_says_so(triptych, tiny_run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(tiny_run, tmp_path / "run")
    shutil.rmtree(copy / "last")
    outcome = triptych("evaluate", copy, "--checkpoint", "last")
    assert outcome.code == 1
    assert "this run has no last model yet" in outcome.said
    assert "or take --checkpoint best" in outcome.said


def test_a_picture_that_is_gone_is_named(
    triptych, tiny_run: Path, tiny_benchmark: Path, tmp_path: Path
) -> None:
    data = shutil.copytree(tiny_benchmark, tmp_path / "tiny")
    (data / "images" / "plain-large-red-circle.png").unlink()
    outcome = triptych("evaluate", tiny_run, "--data", data)
    assert outcome.code == 1
    assert 'there is no picture "plain-large-red-circle"' in outcome.said


def test_damaged_weights_are_named(triptych, tiny_run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(tiny_run, tmp_path / "run")
    weights = copy / "best" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    outcome = triptych("evaluate", copy)
    assert outcome.code == 1
    assert f"{weights}: the weights cannot be read" in outcome.said
