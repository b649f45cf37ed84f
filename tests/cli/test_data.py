"""``triptych data check`` and ``info``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from triptych.cli.data import app
from triptych.errors import DataError, UsageError

runner = CliRunner()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two good training triplets and one query, with odd names."""
    rows = [
        ("dress [new]", "衬衫", "is red", "t1", "train"),
        ("衬衫", "naïve café 👗", "is longer", "t2", "train"),
        ("dress [new]", "衬衫", "has stripes", "v1", "val"),
    ]
    lines = ["reference,target,text,id,split", *(",".join(row) for row in rows)]
    (tmp_path / "triplets.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "LICENSE").write_text("CC0 [1.0]\n")
    (tmp_path / "images").mkdir()
    for name in ("dress [new]", "衬衫", "naïve café 👗"):
        Image.new("RGB", (4, 4)).save(tmp_path / "images" / f"{name}.png")
    return tmp_path


def test_good_data(data):
    result = runner.invoke(app, ["check", str(data)])
    assert result.exit_code == 0
    assert "2 good training triplets, 1 good queries; 3 of 3 pictures decoded." in result.stdout
    assert "Training would work." in result.stdout


def test_names_stay_intact(data):
    """Brackets are not markup, and long lines are not broken."""
    long = "naïve café 👗 [red] " + "x" * 150
    with (data / "triplets.csv").open("a", encoding="utf-8") as file:
        file.write(f"dress [new],{long},is red,t3,train\n")
    result = runner.invoke(app, ["check", str(data)])
    assert result.exit_code == 1
    assert f'error: triplets.csv, line 5: there is no picture "{long}" (field "target")' in result.stdout
    assert "Training would fail." in result.stdout


def test_limit(data):
    with (data / "triplets.csv").open("a", encoding="utf-8") as file:
        file.writelines(f"gone{i},衬衫,is red,x{i},train\n" for i in range(8))
    result = runner.invoke(app, ["check", str(data), "--limit", "3"])
    assert result.stdout.count("error: ") == 3
    assert "... and 5 more like this" in result.stdout
    assert runner.invoke(app, ["check", str(data), "--limit", "0"]).stdout.count("error: ") == 8


def test_check_as_json(data):
    (data / "images" / "衬衫.png").write_bytes(b"no")
    result = runner.invoke(app, ["check", str(data), "--json"])
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["counts"] == {"image_not_an_image": 1}
    assert report["findings"][0]["file"] == "images/衬衫.png"
    assert (report["triplets"], report["queries"], report["decoded"]) == (2, {"val": {"all": 1}}, 2)


def test_pictures_given(data, tmp_path_factory):
    empty = tmp_path_factory.mktemp("empty")
    result = runner.invoke(app, ["check", str(data), "--images", str(empty)])
    assert result.exit_code == 1
    assert "there are no pictures" in result.stdout


def test_info(data):
    result = runner.invoke(app, ["info", str(data)])
    assert result.exit_code == 0
    assert "licence: LICENSE: CC0 [1.0]" in result.stdout
    assert 't1: dress [new] + "is red" -> 衬衫' in result.stdout
    assert f"pictures: 3 in {data / 'images'}" in result.stdout


def test_info_as_json(data):
    facts = json.loads(runner.invoke(app, ["info", str(data), "--json", "--sample", "1"]).stdout)
    assert facts["train"] == {"all": 2}
    assert facts["splits"] == {"val": {"all": {"queries": 1, "gallery": 2, "with_several_answers": 0}}}
    assert [row["triplet_id"] for row in facts["sample"]] == ["t2"]
    assert (facts["pictures"], facts["warnings"]) == (3, [])


def test_the_sample_is_never_larger_than_the_data(data):
    assert (
        len(json.loads(runner.invoke(app, ["info", str(data), "--json", "--sample", "9"]).stdout)["sample"])
        == 2
    )


def test_errors_reach_the_caller(data, tmp_path_factory):
    """main() turns them into a message and an exit code."""
    assert isinstance(runner.invoke(app, ["check", str(data / "nowhere")]).exception, UsageError)
    assert isinstance(runner.invoke(app, ["info", str(tmp_path_factory.mktemp("x"))]).exception, DataError)


@pytest.mark.parametrize("arguments", [["check"], ["info"], ["check", "x", "--limit", "-1"], ["chekc"]])
def test_wrong_usage(arguments):
    assert runner.invoke(app, arguments).exit_code == 2


@pytest.mark.parametrize("verb", ["check", "info"])
def test_help_teaches(verb):
    text = runner.invoke(app, [verb, "--help"]).stdout
    assert "--images" in text
    assert "--json" in text
