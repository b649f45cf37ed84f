"""``triptych noise inject`` and ``show``."""

import json

import pytest
from PIL import Image
from typer.testing import CliRunner

from triptych.cli.noise import app
from triptych.errors import DataError, UsageError
from triptych.noise import KINDS, NoiseManifest
from triptych.triplets import read_benchmark

runner = CliRunner()


@pytest.fixture
def data(tmp_path):
    """Twenty training triplets of two categories in pictures of five greys."""
    folder = tmp_path / "data"
    for name in ("captions", "image_splits", "images"):
        (folder / name).mkdir(parents=True)
    for category in ("dress", "shirt"):
        ids = [f"{category}{i}" for i in range(10)]
        entries = [
            {"target": ids[i], "candidate": ids[i - 1], "captions": [f"make it {i}", "other"]}
            for i in range(10)
        ]
        for split in ("train", "val"):
            (folder / "captions" / f"cap.{category}.{split}.json").write_text(json.dumps(entries))
            (folder / "image_splits" / f"split.{category}.{split}.json").write_text(json.dumps(ids))
        for i, image_id in enumerate(ids):
            Image.new("L", (8, 8), 25 * i).save(folder / "images" / f"{image_id}.png")
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_inject_writes_a_manifest_and_says_what_it_did(data, tmp_path, kind):
    out = tmp_path / "manifest.json"
    arguments = ["inject", str(data), "--kind", kind, "--ratio", "0.5", "--seed", "1", "-o", str(out)]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    manifest = NoiseManifest.read(out, read_benchmark(data).train)
    assert (manifest.kind, manifest.seed, manifest.ratio_asked) == (kind, 1, 0.5)
    assert 0 < len(manifest.corruptions) <= 10
    assert f"real {manifest.ratio_real:.2%}" in result.stdout
    assert f"{len(manifest.corruptions)} of 20 triplets" in result.stdout
    assert manifest.fingerprint()[:16] in result.stdout


def test_show_summarises(data, tmp_path):
    out = tmp_path / "manifest.json"
    runner.invoke(app, ["inject", str(data), "--kind", "text", "-o", str(out)])
    result = runner.invoke(app, ["show", str(out), str(data), "--sample", "2"])
    assert result.exit_code == 0, result.output
    assert "dress" in result.stdout
    assert "shirt" in result.stdout
    assert result.stdout.count(" became ") == 2
    assert "seed 42" in result.stdout


def test_show_refuses_other_data(data, tmp_path):
    out = tmp_path / "manifest.json"
    runner.invoke(app, ["inject", str(data), "--kind", "text", "-o", str(out)])
    path = data / "captions" / "cap.dress.train.json"
    path.write_text(path.read_text().replace("make it", "turn it into"))
    result = runner.invoke(app, ["show", str(out), str(data)])
    assert isinstance(result.exception, DataError)
    assert "other data" in str(result.exception)


@pytest.mark.parametrize("arguments", [["--kind", "salt"], ["--ratio", "1.5"], ["--seed", "-3"]])
def test_wrong_usage_writes_nothing(data, tmp_path, arguments):
    result = runner.invoke(app, ["inject", str(data), "-o", str(tmp_path / "m.json"), *arguments])
    assert isinstance(result.exception, UsageError)
    assert not (tmp_path / "m.json").exists()


def test_help_teaches_every_kind():
    result = runner.invoke(app, ["inject", "--help"], env={"COLUMNS": "200"})
    for kind, meaning in KINDS.items():
        assert kind in result.output
        assert meaning[:40] in result.output
