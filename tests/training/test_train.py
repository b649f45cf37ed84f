"""Whole runs: what the settings ask for is what is trained."""

import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from triptych.errors import DataError, TriptychError, UsageError
from triptych.noise import inject
from triptych.training.loop import Interrupted, Watcher
from triptych.training.model import load_model, read_weights
from triptych.training.run import Run
from triptych.training.train import resume, training_table
from triptych.triplets import Benchmark, TripletTable

RunSmall = Callable[..., Run]


def weights(run: Run) -> bytes:
    return (run.last / "model.safetensors").read_bytes()


def steps(run: Run) -> list[dict[str, Any]]:
    return [entry for entry in run.metrics() if entry["kind"] == "step"]


def test_a_run_folder_holds_everything(small_run: Run) -> None:
    names = {path.name for path in small_run.folder.iterdir()}
    expected = {"config.json", "environment.json", "metrics.jsonl", "checkpoint.safetensors", "best", "last"}
    expected.add("cleanliness.parquet")
    assert names == expected
    validations = [entry for entry in small_run.metrics() if entry["kind"] == "validation"]
    assert len(validations) == 3
    for entry in validations:
        assert set(entry["metrics"]) == {"kept", "removed"}
        assert {"R@1", "R@10", "R@50", "mAP@5"} <= set(entry["metrics"]["kept"])
        kept = entry["metrics"]["kept"]
        assert entry["score"] == pytest.approx((kept["R@10"] + kept["R@50"]) / 2)
        assert 0 < entry["within_image_cosine"] < 1
    assert sum("term_gradients" in entry for entry in steps(small_run)) == 4  # steps 0, 4, 8, 12 of 15
    assert all({"p_positive", "p_negative"} <= set(entry["diagnostics"]) for entry in steps(small_run))


def test_progress_is_told(run_small: RunSmall, tmp_path: Path) -> None:
    seen: list[Any] = []
    stages: list[tuple[str, int, int]] = []
    watcher = Watcher(
        on_step=seen.append,
        on_epoch=lambda epoch, result, improved: seen.append((epoch, result.score(), improved)),
    )
    run_small(
        cache=tmp_path / "cache",
        watcher=watcher,
        stages=lambda *told: stages.append(told),
        training={"epochs": 1, "batch_size": 20},
    )
    assert [(told.epoch, told.step, told.steps) for told in seen[:2]] == [(0, 1, 2), (0, 2, 2)]
    assert seen[0].losses["total"] > 0
    assert seen[2][0] == 0
    assert seen[2][2] is True
    assert {what for what, _, _ in stages} == {"image tokens", "validation image tokens"}
    assert stages[-1][1] == stages[-1][2] == 24


def test_dropping_noise_is_training_on_the_clean_triplets(run_small: RunSmall, bench: Benchmark) -> None:
    noise = inject(bench.train, kind="mix", ratio=0.5, seed=7)
    assert 5 < len(noise.noisy_ids) < 21
    clean = replace(bench, train=bench.train.without(noise.noisy_ids))
    training = {"epochs": 1, "batch_size": 10}
    oracle = run_small(noise=noise, drop_noisy=True, training=training)
    assert weights(oracle) == weights(run_small(data=clean, training=training))
    assert weights(oracle) != weights(run_small(noise=noise, training=training))


def test_a_noise_curriculum_starts_with_less(run_small: RunSmall, bench: Benchmark) -> None:
    """Up to its last stage the run is that of the lighter manifest; a rate of 0 is the clean data."""
    noise = inject(bench.train, kind="mix", ratio=0.5, seed=7)
    training = {"epochs": 2, "batch_size": 10}
    run = run_small(noise=noise, training={**training, "noise_curriculum": [0.0, 0.5]})
    clean, noisy = run_small(training=training), run_small(noise=noise, training=training)

    def losses(run: Run, epoch: int) -> list[float]:
        return [entry["losses"]["total"] for entry in steps(run) if entry["epoch"] == epoch]

    assert losses(run, 0) == losses(clean, 0) != losses(noisy, 0)
    assert losses(run, 1) != losses(clean, 1)
    with pytest.raises(UsageError, match="needs a manifest"):
        run_small(training={**training, "noise_curriculum": [0.2]})
    with pytest.raises(UsageError, match="must not fall"):
        run_small(noise=noise, training={**training, "noise_curriculum": [0.5, 0.2]})


def test_the_training_table(bench: Benchmark) -> None:
    noise = inject(bench.train, kind="text", ratio=0.5, seed=1)
    noisy, clean = training_table(bench, noise), training_table(bench, noise, drop_noisy=True)
    assert noisy.triplet_ids == bench.train.triplet_ids
    changed = {t.triplet_id for t, old in zip(noisy, bench.train, strict=True) if t != old}
    assert changed == noise.noisy_ids
    assert set(clean.triplet_ids) == set(bench.train.triplet_ids) - noise.noisy_ids
    assert training_table(bench, None).fingerprint() == bench.train.fingerprint()


def test_tables_that_cannot_be_trained_on(bench: Benchmark) -> None:
    nothing = replace(bench, train=TripletTable.from_triplets([]))
    with pytest.raises(DataError, match="there are no training triplets"):
        training_table(nothing, None)
    name = bench.train.triplet_ids[3]
    targetless = replace(bench, train=bench.train.replace("target", {name: None}))
    with pytest.raises(DataError, match=f"1 training triplets have no target, such as {name}"):
        training_table(targetless, None)


def test_noise_of_other_data_is_refused_before_a_folder_is_made(
    run_small: RunSmall, bench: Benchmark, tmp_path: Path
) -> None:
    other = bench.train.replace("captions", {name: ("other",) for name in bench.train.triplet_ids[:30]})
    inject(other, kind="text", ratio=1.0, seed=0).write(tmp_path / "noise.json")
    with pytest.raises(DataError, match="This manifest is of other data"):
        run_small(tmp_path / "run", noise=tmp_path / "noise.json")
    with pytest.raises(UsageError, match="drop-noisy needs a manifest"):
        run_small(tmp_path / "run", drop_noisy=True)
    assert not (tmp_path / "run").exists()


FROZEN = {"epochs": 1, "batch_size": 40, "learning_rate": 1e-12, "weight_decay": 0}
"""One step that moves nothing: where the run ends is where it began."""


def test_init_starts_from_a_model(run_small: RunSmall, aligned: Path, small_run: Run) -> None:
    without = load_model(run_small(training=FROZEN).last)
    for source in (aligned, small_run.folder, small_run.last):
        run = run_small(init=source, training=FROZEN)
        began = load_model(run.last).backbone.trained_state()
        given = load_model(source).backbone.trained_state()
        assert max(float((began[name] - given[name]).abs().max()) for name in given) < 1e-6
        assert (began["query_tokens"] - without.backbone.trained_state()["query_tokens"]).abs().max() > 1e-3


def test_init_of_another_size_is_refused(
    run_small: RunSmall, aligned: Path, sizes: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="does not fit the one that is trained") as caught:
        run_small(tmp_path / "run", init=aligned, backbone={**sizes, "queries": 5})
    assert str(aligned) in str(caught.value)
    assert "query_tokens" in str(caught.value)
    assert "same --backbone settings" in str(caught.value)
    with pytest.raises(DataError, match="there is no model here"):
        run_small(tmp_path / "run", init=tmp_path)
    assert not (tmp_path / "run").exists()


def test_a_run_goes_on_without_the_model_that_it_began_with(
    run_small: RunSmall, aligned: Path, tmp_path: Path
) -> None:
    """Its weights are in the checkpoint, and it ends as if nothing had happened."""
    training = {"batch_size": 20}
    whole = run_small(init=aligned, training=training)
    start = shutil.copytree(aligned, tmp_path / "start")
    run = run_small(tmp_path / "whole", init=start, training=training)
    assert weights(run) == weights(whole)

    def stop(step: Any) -> None:
        if (step.epoch, step.step) == (1, 1):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        run_small(tmp_path / "run", init=start, watcher=Watcher(on_step=stop), training=training)
    shutil.rmtree(start)
    assert weights(resume(tmp_path / "run")) == weights(whole)


def test_a_run_does_not_go_on_with_changed_or_missing_data(
    run_small: RunSmall, tiny_benchmark: Path, tmp_path: Path
) -> None:
    data = shutil.copytree(tiny_benchmark, tmp_path / "data")
    stop = Watcher(on_epoch=lambda *told: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(Interrupted):
        run_small(tmp_path / "run", data=data, watcher=stop, training={"batch_size": 20})
    captions = data / "captions" / "cap.plain.train.json"
    before = captions.read_text()
    captions.write_text(before.replace("make it", "let it be"))
    with pytest.raises(DataError, match="have changed since this run began") as caught:
        resume(tmp_path / "run")
    assert str(data) in str(caught.value)
    captions.write_text(before)
    picture = data / "images" / "plain-small-red-circle.png"
    shutil.copy(data / "images" / "plain-small-red-square.png", picture)
    with pytest.raises(DataError, match="have changed since this run began"):
        resume(tmp_path / "run")
    shutil.rmtree(data)
    with pytest.raises(TriptychError, match=str(data)):
        resume(tmp_path / "run")


def test_intent_with_live_pixels_in_the_first_two_epochs(run_small: RunSmall) -> None:
    method = {"name": "intent", "vic_schedule": "first2"}
    run = run_small(method=method, training={"epochs": 3, "batch_size": 20})
    terms = [set(entry["losses"]) - {"total"} for entry in steps(run)]
    assert terms == [{"robust", "sod", "caco"}] * 4 + [{"robust", "sod"}] * 2
    assert steps(run)[0]["losses"]["caco"] > 0
    gradients = steps(run)[0]["term_gradients"]
    assert set(gradients) == {"robust", "sod", "caco"}
    assert min(gradients.values()) > 0


def test_intent_with_a_bank_encodes_it_once(run_small: RunSmall, tmp_path: Path) -> None:
    told: list[str] = []

    def train(**switches: Any) -> Run:
        told.clear()
        return run_small(
            method={"name": "intent", "counterfactual_bank": 4, **switches},
            training={"epochs": 1, "batch_size": 20},
            cache=tmp_path / "cache",
            stages=lambda what, done, total: told.append(what),
        )

    first = train()
    assert "counterfactual tokens" in told
    assert all("caco" in entry["losses"] for entry in steps(first))
    second = train()
    assert told == []
    assert weights(first) == weights(second)
    train(window_ratio=0.25)
    assert set(told) == {"counterfactual tokens"}


@pytest.mark.parametrize("method", ["rcl", "infonce"])
def test_other_methods_run(run_small: RunSmall, method: str) -> None:
    run = run_small(method=method, training={"epochs": 1, "batch_size": 20, "precision": "bf16"})
    assert all(torch.isfinite(value).all() for value in read_weights(run.last)[0].values())
