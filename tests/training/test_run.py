"""The run folder: settings with a hash, metrics that end where the checkpoint ends."""

import json
from pathlib import Path
from typing import Any

import pytest

from triptych.errors import DataError, UsageError
from triptych.noise import NoiseManifest, inject
from triptych.training.config import RunConfig, settings_hash
from triptych.training.run import Run
from triptych.triplets import Benchmark

CONFIG = RunConfig.parse({"data": "/data", "training": {"epochs": 3}})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


def test_round_trip(folder: Path, bench: Benchmark) -> None:
    noise = inject(bench.train, kind="mix", ratio=0.5, seed=0)
    run = Run.create(folder, CONFIG, noise)
    opened, config = Run.open(folder)
    assert config == CONFIG
    assert opened.folder == run.folder == folder
    assert NoiseManifest.read(opened.noise) == noise
    assert run.metrics() == []
    environment = json.loads((folder / "environment.json").read_text())
    assert environment["packages"]["torch"].count(".") == 2


def test_a_folder_in_use_is_refused(folder: Path) -> None:
    folder.mkdir()
    Run.create(folder, CONFIG)  # empty is fine
    with pytest.raises(UsageError, match="not empty") as caught:
        Run.create(folder, CONFIG)
    assert f"--resume {folder}" in str(caught.value)


def test_settings_changed_by_hand_are_refused(folder: Path) -> None:
    Run.create(folder, CONFIG)
    path = folder / "config.json"
    values = json.loads(path.read_text())
    values["training"]["epochs"] = 4
    path.write_text(json.dumps(values))
    with pytest.raises(DataError, match="do not match their hash") as caught:
        Run.open(folder)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there is no run here"),
        ("{cut", "not valid JSON"),
        ("[]", "no run here"),
        ("{}", "no run here"),
    ],
)
def test_what_is_no_run(folder: Path, content: str | None, said: str) -> None:
    folder.mkdir()
    if content is not None:
        (folder / "config.json").write_text(content)
    with pytest.raises(DataError, match=said):
        Run.open(folder)


def test_metrics_are_cut_to_what_the_checkpoint_vouches_for(folder: Path) -> None:
    run = Run.create(folder, CONFIG)
    for step in range(5):
        run.log({"kind": "step", "step": step, "text": "a\u2028b é"})
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "st')  # a kill in the middle of a line
    assert [entry["step"] for entry in run.metrics()] == [0, 1, 2, 3, 4]
    assert run.truncate_metrics(3) == 3
    run.log({"step": "again"})
    assert [entry["step"] for entry in run.metrics()] == [0, 1, 2, "again"]
    assert run.truncate_metrics(9) == 4
    (folder / "metrics.jsonl").unlink()
    assert run.truncate_metrics(9) == 0
    assert run.metrics() == []


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"data": "x", "trainig": {}}, 'unknown setting "trainig"'),
        ({"data": "x", "training": {"epoch": 3}}, 'unknown setting "training.epoch"; known here: epochs'),
        ({"data": "x", "training": {"batch_size": 1}}, '"training.batch_size".*greater than or equal to 2'),
        ({"data": "x", "training": {"schedule": "linear"}}, "'cosine', 'constant' or 'onecycle'"),
        ({}, '"data".*required'),
    ],
)
def test_wrong_settings_are_named(values: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        RunConfig.parse(values)


def test_the_hash_is_of_every_setting() -> None:
    values = json.loads(CONFIG.model_dump_json())
    assert RunConfig.parse(values).fingerprint() == CONFIG.fingerprint()
    for change in ({"noise": "n.json"}, {"drop_noisy": True}, {"method": {"name": "rcl"}}, {"init": "x"}):
        assert RunConfig.parse({**values, **change}).fingerprint() != CONFIG.fingerprint()


def test_a_run_of_a_version_that_knew_fewer_settings_is_opened(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", CONFIG)
    path = run.folder / "config.json"
    values = json.loads(path.read_text())
    del values["training"]["noise_curriculum"], values["hash"]
    path.write_text(json.dumps({"hash": settings_hash(values), **values}))
    assert Run.open(run.folder)[1] == CONFIG
