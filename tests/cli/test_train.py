"""``triptych train``: whole runs, and every way to ask for one wrongly."""

import json
import shutil
from pathlib import Path

import pytest

from triptych.noise import NoiseManifest, inject
from triptych.triplets import read_benchmark

pytestmark = pytest.mark.usefixtures("lite_weights")

QUICK = ("--epochs", 1, "--batch-size", 20, "--method", "infonce")


@pytest.fixture
def data_copy(tiny_benchmark: Path, tmp_path: Path) -> Path:
    """A copy of the tiny data that a test may spoil."""
    return Path(shutil.copytree(tiny_benchmark, tmp_path / "tiny"))


def rewrite(path: Path, change) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def test_a_run_from_options_recipe_and_set(triptych, tiny_benchmark: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "noise.json"
    inject(read_benchmark(tiny_benchmark).train, kind="mix", ratio=0.5, seed=1).write(manifest)
    recipe = tmp_path / "own.toml"
    recipe.write_text('[method]\nname = "infonce"\n[training]\nepochs = 9\nbatch_size = 10\n')
    out = tmp_path / "run"
    outcome = triptych(
        *("train", "--data", tiny_benchmark, "--recipe", recipe, "-o", out, "--noise", manifest),
        *("--epochs", 2, "--set", "method.temperature=0.1", "--set", "backbone.layers=1"),
    )
    assert outcome.code == 0, outcome.err
    config = json.loads((out / "config.json").read_text())
    assert config["method"] == {"name": "infonce", "temperature": 0.1}
    assert config["backbone"] == {"name": "lite", "layers": 1}
    assert (config["training"]["epochs"], config["training"]["batch_size"]) == (2, 10)
    assert NoiseManifest.read(out / "noise.json") == NoiseManifest.read(manifest)
    assert "epoch 1/2" in outcome.err
    assert "epoch 2/2" in outcome.err
    assert "R@10" in outcome.err
    assert f"best model: {out}/best (epoch " in outcome.out
    assert f"Next: triptych evaluate {out}" in outcome.out


def test_drop_noisy_leaves_the_wrong_triplets_out(triptych, tiny_benchmark: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "noise.json"
    noise = inject(read_benchmark(tiny_benchmark).train, kind="text", ratio=0.6, seed=1)
    noise.write(manifest)
    clean = 40 - len(noise.noisy_ids)
    asked = ("train", "--data", tiny_benchmark, "--noise", manifest, "--drop-noisy", "-o", tmp_path / "run")
    outcome = triptych(*asked, "--method", "infonce", "--epochs", 1, "--batch-size", clean + 1)
    assert outcome.code == 2
    assert f"larger than the data ({clean} training triplets)" in outcome.said
    assert not (tmp_path / "run").exists()


def test_a_finished_run_resumes_to_the_same_end(triptych, tiny_run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(tiny_run, tmp_path / "run")
    before = (copy / "last" / "model.safetensors").read_bytes()
    outcome = triptych("train", "--resume", copy)
    assert outcome.code == 0, outcome.err
    assert (copy / "last" / "model.safetensors").read_bytes() == before
    assert "best model" in outcome.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--set", "method.alhpa=1"), 'method intent: unknown setting "alhpa"; known here: '),
        (
            ("--set", "training.epoch=1"),
            'run: unknown setting "training.epoch"; known here: epochs, batch_size',
        ),
        (("--set", "backbone.layer=1"), 'backbone lite: unknown setting "layer"; known here: image_size'),
        (("--set", "optimizer.lr=1"), 'unknown section "optimizer"; known: method, training, backbone, data'),
        (("--set", "training.epochs=many"), 'setting "training.epochs": Input should be a valid integer'),
        (("--epochs", 0), 'setting "training.epochs": Input should be greater than or equal to 1 (got 0)'),
        (("--set", "method.name=3"), 'unknown method "3"'),
        (("--method", "intnt"), 'unknown method "intnt"; did you mean "intent"?'),
        (("--backbone", "light"), 'unknown backbone "light"; there are: lite'),
        (("--recipe", "nothere"), 'there is no recipe "nothere"'),
        (
            ("--batch-size", 41),
            "a batch of 41 is larger than the data (40 training triplets). Use --batch-size 40",
        ),
        (("--drop-noisy",), "--drop-noisy needs a manifest"),
        (("--set", "training.validate_on=vla"), 'tiny has no split "vla"; it has: val'),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_wrong_settings_are_exit_code_2(
    options: tuple[object, ...], message: str, triptych, tiny_benchmark: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    outcome = triptych("train", "--data", tiny_benchmark, "-o", out, "--batch-size", 8, *options)
    assert outcome.code == 2
    assert message in outcome.said
    assert outcome.out == ""
    assert not out.exists()


def test_data_and_a_run_folder_must_be_named(triptych, tiny_benchmark: Path, tmp_path: Path) -> None:
    assert "--data DATA" in triptych("train", "-o", tmp_path / "run").said
    assert "-o RUN" in triptych("train", "--data", tiny_benchmark).said
    assert triptych("train").code == 2


def test_a_folder_in_use_is_refused_and_kept(triptych, tiny_benchmark: Path, tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    outcome = triptych("train", "--data", tiny_benchmark, "-o", tmp_path, *QUICK)
    assert outcome.code == 2
    assert f"{tmp_path} is there already and not empty. Choose another folder with -o" in outcome.said
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]
    outcome = triptych("train", "--data", tiny_benchmark, "-o", tmp_path / "precious.txt", *QUICK)
    assert outcome.code == 2
    assert (tmp_path / "precious.txt").read_text() == "mine"


def test_noise_of_other_data_is_exit_code_1(triptych, tiny_benchmark: Path, data_copy: Path) -> None:
    captions = data_copy / "captions" / "cap.plain.train.json"
    rewrite(captions, lambda entries: [{**entry, "captions": ["is other"]} for entry in entries])
    manifest = data_copy / "noise.json"
    inject(read_benchmark(data_copy).train, kind="text", ratio=1.0, seed=0).write(manifest)
    out = data_copy / "run"
    outcome = triptych("train", "--data", tiny_benchmark, "--noise", manifest, "-o", out, *QUICK)
    assert outcome.code == 1
    assert str(manifest) in outcome.said
    assert "This manifest is of other data" in outcome.said
    assert not out.exists()


def test_a_missing_manifest_is_exit_code_1(triptych, tiny_benchmark: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    outcome = triptych(
        "train", "--data", tiny_benchmark, "--noise", tmp_path / "none.json", "-o", out, *QUICK
    )
    assert outcome.code == 1
    assert "there is no such noise manifest" in outcome.said


def test_a_missing_picture_is_exit_code_1_with_its_id(triptych, data_copy: Path) -> None:
    (data_copy / "images" / "plain-small-red-circle.png").unlink()
    outcome = triptych("train", "--data", data_copy, "-o", data_copy / "run", *QUICK)
    assert outcome.code == 1
    assert 'there is no picture "plain-small-red-circle"' in outcome.said
    assert "triptych data check" in outcome.said


def test_an_empty_gallery_is_exit_code_1(triptych, data_copy: Path) -> None:
    (data_copy / "image_splits" / "split.plain.val.json").write_text("[]")
    outcome = triptych("train", "--data", data_copy, "-o", data_copy / "run", *QUICK)
    assert outcome.code == 1
    assert "split.plain.val.json: the gallery has no picture" in outcome.said


def test_a_category_without_queries_is_exit_code_1(triptych, data_copy: Path) -> None:
    (data_copy / "captions" / "cap.plain.val.json").write_text("[]")
    (data_copy / "ground_truth_multi.json").unlink()
    outcome = triptych("train", "--data", data_copy, "-o", data_copy / "run", *QUICK)
    assert outcome.code == 1
    assert "cap.plain.val.json: there are no triplets in it" in outcome.said


def test_only_a_run_can_be_resumed(triptych, tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "nowhere", tiny_run / "best", tiny_run / "config.json"):
        outcome = triptych("train", "--resume", folder)
        assert outcome.code in (1, 2)
        assert str(folder) in outcome.said
        assert "there is no run here" in outcome.said


def test_a_resumed_run_takes_no_settings(triptych, tiny_run: Path) -> None:
    outcome = triptych(
        "train", "--resume", tiny_run, "--seed", 0, "--method", "rcl", "--set", "training.seed=1"
    )
    assert outcome.code == 2
    assert "leave out --method, --seed, --set" in outcome.said


def test_init_must_be_a_model_that_fits(
    triptych, tiny_run: Path, tiny_benchmark: Path, tmp_path: Path
) -> None:
    asked = ("train", "--data", tiny_benchmark, "-o", tmp_path / "run", *QUICK)
    outcome = triptych(*asked, "--init", tmp_path)
    assert outcome.code == 1
    assert "there is no model here" in outcome.said
    outcome = triptych(*asked, "--init", tiny_run, "--set", "backbone.layers=1")
    assert outcome.code == 1
    assert "does not fit" in outcome.said
    assert not (tmp_path / "run").exists()
