"""The loop itself: stops, saves, resumes, diagnoses. Validation is scripted, so that scores are what a test needs."""

import math
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from triptych.backbones.token_cache import TokenCache
from triptych.errors import DataError
from triptych.methods.base import Losses, Phase
from triptych.methods.infonce import InfoNCE
from triptych.training.cleanliness import read_cleanliness
from triptych.training.config import RunConfig
from triptych.training.learner import Learner
from triptych.training.loader import TripletLoader
from triptych.training.loop import Interrupted, Trainer, Watcher
from triptych.training.model import build_method, load_model
from triptych.training.processes import make_accelerator
from triptych.training.run import Run
from triptych.training.schedule import learning_rate_factor
from triptych.triplets import Benchmark

SEED = 0


class Scripted:
    """Stands for validation: gives the next score of a list, the last one ever after."""

    def __init__(self, scores: Sequence[float]) -> None:
        self.scores = list(scores)

    def evaluate(self, model: Any, **_: Any) -> Any:
        assert not model.backbone.training
        score = self.scores.pop(0) if len(self.scores) > 1 else self.scores[0]
        return SimpleNamespace(
            score=lambda: score, row=lambda name, reference: SimpleNamespace(mean={"R@10": score})
        )

    def within_image_cosine(self, model: Any) -> float:
        return 0.5


@pytest.fixture
def make(
    bench: Benchmark, fresh: Callable[[], Any], sizes: dict[str, Any], tmp_path: Path
) -> Callable[..., Trainer]:
    """Make a trainer on a run folder; on one that exists, it goes on."""
    encoder = fresh()
    cache = TokenCache(encoder)
    keys = cache.add_images(bench.images, bench.train.image_ids(), encoder)

    def build(
        name: str = "run",
        *,
        scores: Sequence[float] = (10.0,),
        method: str = "infonce",
        watcher: Watcher | None = None,
        rows: int = 40,
        **training: Any,
    ) -> Trainer:
        settings = {"epochs": 2, "batch_size": 10, "captions": "random4", "seed": SEED, **training}
        config = RunConfig.parse(
            {"data": "tiny", "backbone": sizes, "method": {"name": method}, "training": settings}
        )
        backbone = fresh()
        loader = TripletLoader(
            bench.train.take(range(rows)),
            cache,
            keys,
            bench.images,
            backbone,
            batch_size=config.training.batch_size,
            captions="random4",
            seed=config.training.seed,
        )
        folder = tmp_path / name
        run = Run(folder) if folder.exists() else Run.create(folder, config)
        learner = Learner(backbone, build_method(config.method, backbone))
        evaluator: Any = Scripted(scores)
        return Trainer(run, config, learner, loader, evaluator, watcher=watcher)

    return build


def steps(trainer: Trainer) -> list[dict[str, Any]]:
    return [entry for entry in trainer.run.metrics() if entry["kind"] == "step"]


def validations(trainer: Trainer) -> list[dict[str, Any]]:
    return [entry for entry in trainer.run.metrics() if entry["kind"] == "validation"]


def outcome(trainer: Trainer) -> tuple[bytes, bytes, bytes, list[dict[str, Any]]]:
    """Everything that must be the same at the end of two runs; speed may differ."""
    run = trainer.run
    for entry in (entries := run.metrics()):
        entry.pop("triplets_per_second", None)
    weights = [(folder / "model.safetensors").read_bytes() for folder in (run.best, run.last)]
    return weights[0], weights[1], run.checkpoint.read_bytes(), entries


def test_a_run_learns_and_logs(make: Callable[..., Trainer]) -> None:
    trainer = make(epochs=8, batch_size=20, term_gradients_every=4, warmup_epochs=1, learning_rate=0.01)
    progress = trainer.train()
    assert progress.finished
    assert (progress.epoch, progress.step, progress.best_epoch) == (8, 0, 1)
    entries = steps(trainer)
    assert [(entry["epoch"], entry["step"]) for entry in entries] == [
        (e, s) for e in range(8) for s in range(2)
    ]
    losses = [entry["losses"]["total"] for entry in entries]
    assert sum(losses[-4:]) < 0.9 * sum(losses[:4])
    for number, entry in enumerate(entries):
        factor = learning_rate_factor(number, total_steps=16, warmup_steps=2, kind="cosine")
        assert entry["learning_rate"] == pytest.approx(0.01 * factor)
        assert ("term_gradients" in entry) == (number % 4 == 0)
        assert 0 <= entry["diagnostics"]["p_negative"] <= 1
        assert 0 <= entry["diagnostics"]["p_positive"] <= 1
        assert entry["triplets_per_second"] > 0
    term, value = next(iter(entries[0]["term_gradients"].items()))
    assert set(entries[0]["losses"]) == {"total", term}
    assert value == pytest.approx(entries[0]["gradient_norm"], rel=1e-4)  # one term of weight 1
    assert [entry["within_image_cosine"] for entry in validations(trainer)] == [0.5] * 8
    assert validations(trainer)[0]["metrics"] == {"kept": {"R@10": 10.0}, "removed": {"R@10": 10.0}}


def test_the_rate_may_fall_over_more_epochs_than_there_are(make: Callable[..., Trainer]) -> None:
    """SPRC on CIRR: 50 epochs of a cycle of 80."""
    settings = {"schedule": "onecycle", "warmup_epochs": 1, "learning_rate": 1e-4}
    trainer = make(epochs=2, horizon_epochs=5, batch_size=20, **settings)
    trainer.train()
    factors = [
        learning_rate_factor(number, total_steps=10, warmup_steps=2, kind="onecycle") for number in range(4)
    ]
    assert [entry["learning_rate"] for entry in steps(trainer)] == pytest.approx([1e-4 * f for f in factors])


def test_the_same_seed_gives_the_same_bytes(make: Callable[..., Trainer]) -> None:
    torch.manual_seed(1)
    first, second, other = make("a"), make("b"), make("c", seed=1)
    for trainer in (first, second, other):
        torch.rand(7)  # whatever a program drew before
        trainer.train()
    assert outcome(first) == outcome(second)
    assert outcome(first)[1] != outcome(other)[1]


def test_the_callers_random_numbers_are_left_alone(make: Callable[..., Trainer]) -> None:
    trainer = make(epochs=1)
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    trainer.train()
    assert torch.equal(torch.rand(3), expected)


def test_ctrl_c_saves_and_the_run_goes_on_to_the_same_end(make: Callable[..., Trainer]) -> None:
    """Stopped after any step, also the last of an epoch, it ends in the bytes of an undisturbed run."""
    whole = make("whole", epochs=2)
    whole.train()
    before = signal.getsignal(signal.SIGINT)
    for stop in (1, 4, 6):
        seen = []

        def press(step: Any, seen: list[Any] = seen, stop: int = stop) -> None:
            seen.append(step)
            if len(seen) == stop:
                os.kill(os.getpid(), signal.SIGINT)

        name = f"stopped{stop}"
        trainer = make(name, epochs=2, watcher=Watcher(on_step=press))
        with pytest.raises(Interrupted, match="nothing is lost") as caught:
            trainer.train()
        assert caught.value.exit_code == 130
        assert f"triptych train --resume {trainer.run.folder}" in str(caught.value)
        assert f"in epoch {(stop - 1) // 4 + 1} after step {(stop - 1) % 4 + 1}" in str(caught.value)
        assert signal.getsignal(signal.SIGINT) == before
        assert len(seen) == len(steps(trainer)) == stop
        again = make(name, epochs=2)
        again.train()
        assert outcome(again) == outcome(whole)


def test_ctrl_c_in_validation_stops_at_the_end_of_the_epoch(make: Callable[..., Trainer]) -> None:
    def press(epoch: int, *_: Any) -> None:
        if epoch == 0:
            os.kill(os.getpid(), signal.SIGINT)

    trainer = make(watcher=Watcher(on_epoch=press))
    with pytest.raises(Interrupted, match="stopped after epoch 1;"):
        trainer.train()
    assert len(steps(trainer)) == 4


def test_a_second_ctrl_c_stops_at_once(make: Callable[..., Trainer]) -> None:
    def press(step: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        make(watcher=Watcher(on_step=press)).train()


def test_sigterm_is_a_stop_too(make: Callable[..., Trainer]) -> None:
    with pytest.raises(Interrupted):
        make(watcher=Watcher(on_step=lambda step: os.kill(os.getpid(), signal.SIGTERM))).train()


def test_it_runs_outside_the_main_thread(make: Callable[..., Trainer]) -> None:
    """There it leaves signals to the program."""
    trainer = make(epochs=1)
    thread = threading.Thread(target=trainer.train)
    thread.start()
    thread.join()
    assert trainer.progress.finished


def break_at(
    monkeypatch: pytest.MonkeyPatch, number: int, broken: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """Let the loss of step ``number`` (from 1) be changed by ``broken``."""
    calls, losses = [], InfoNCE.losses

    def spoiled(self: InfoNCE, batch: Any, backbone: Any) -> Losses:
        calls.append(batch.triplet_ids)
        terms = losses(self, batch, backbone)
        if len(calls) != number:
            return terms
        return Losses(**{name: broken(value) for name, value, _ in terms})

    monkeypatch.setattr(InfoNCE, "losses", spoiled)


def test_nan_in_a_loss_stops_and_keeps_what_is_good(
    make: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """NaN in step 7, checkpoints after 2, 4 (the epoch's end) and 6."""
    break_at(monkeypatch, 7, lambda value: value * math.nan)
    trainer = make(checkpoint_every=2)
    with pytest.raises(DataError, match="the loss is not finite in epoch 2, step 3") as caught:
        trainer.train()
    expected = [trainer.loader._ids[row] for row in trainer.loader.order(1)[20:30]]
    assert expected[0] in str(caught.value)
    assert "10 triplets" in str(caught.value)
    report = (trainer.run.folder / "not-finite.json").read_text()
    assert all(f'"{name}"' in report for name in expected)
    monkeypatch.undo()
    kept = make()
    assert (kept.progress.epoch, kept.progress.step) == (1, 2)
    state = kept.learner.state_dict()
    assert all(torch.isfinite(value).all() for value in state.values() if value.is_floating_point())
    assert load_file(trainer.run.best / "model.safetensors")
    assert len(steps(kept)) == 6


def test_nan_in_a_gradient_stops_before_the_weights_take_it(
    make: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """√0 is 0, and its slope is infinite: the loss looks well, and the last step of an epoch would be saved."""
    break_at(monkeypatch, 4, lambda value: value + (value - value.detach()).abs().sqrt())
    trainer = make(clip_norm=0)
    with pytest.raises(DataError, match="the gradient is not finite in epoch 1, step 4"):
        trainer.train()
    weights = trainer.learner.backbone.trained_state().values()
    assert all(torch.isfinite(value).all() for value in weights)
    assert not trainer.run.best.exists()


@pytest.mark.parametrize(
    ("patience", "scores", "epochs"),
    [
        (3, [10, 9, 8, 20], 3),  # epoch 4 would be 3 after the best
        (3, [10, 9, 11, 9, 9, 30], 5),
        (3, [10, 10, 10, 10], 3),  # as good is no gain
        (1, [10, 20], 1),
        (0, [10, 9, 8, 7, 6, 5], 6),
        (10, [10, 9, 8, 7, 6, 5], 6),
    ],
)
def test_early_stopping(
    make: Callable[..., Trainer], patience: int, scores: list[float], epochs: int
) -> None:
    trainer = make(scores=scores, patience=patience, epochs=6, batch_size=40)
    trainer.train()
    assert len(validations(trainer)) == epochs
    assert load_model_epoch(trainer.run.last) == epochs
    assert load_model_epoch(trainer.run.best) == 1 + scores.index(max(scores[:epochs]))


def load_model_epoch(folder: Path) -> int:
    from triptych.training.model import read_weights

    return int(read_weights(folder)[1]["epoch"])


def test_best_is_a_copy_that_only_a_better_one_replaces(make: Callable[..., Trainer]) -> None:
    copies: list[bytes] = []
    improvements: list[bool] = []
    trainer = make(scores=[10, 20, 15, 20], epochs=4, batch_size=40)

    def keep(epoch: int, result: Any, improved: bool) -> None:
        copies.append((trainer.run.best / "model.safetensors").read_bytes())
        improvements.append(improved)

    trainer.watcher = Watcher(on_epoch=keep)
    trainer.train()
    assert improvements == [True, True, False, False]
    assert copies[0] != copies[1] == copies[2] == copies[3]
    assert [entry["improved"] for entry in validations(trainer)] == improvements
    last = trainer.run.last / "model.safetensors"
    assert last.read_bytes() != copies[3]
    with torch.no_grad():
        trainer.learner.backbone.query_tokens.zero_()
    loaded = load_model(trainer.run.best)
    assert loaded.info == {"epoch": 2, "epochs": 4, "score": 20}
    assert loaded.backbone.trained_state()["query_tokens"].abs().sum() > 0


def test_a_finished_run_stays_as_it_is(make: Callable[..., Trainer]) -> None:
    trainer = make(epochs=1)
    trainer.train()
    before = outcome(trainer)
    again = make(epochs=1)
    again.train()
    assert outcome(again) == before


def test_it_does_not_go_on_with_other_data(make: Callable[..., Trainer]) -> None:
    make(epochs=1).train()
    with pytest.raises(DataError, match="have changed since this run began"):
        make(epochs=1, rows=39)


def test_gradient_norms_of_every_term(make: Callable[..., Trainer]) -> None:
    """INTENT without pixels: two terms, of which each moves something."""
    trainer = make(epochs=1, method="rcl")
    trainer.train()
    assert set(steps(trainer)[0]["term_gradients"]) == {"robust"}
    assert steps(trainer)[0]["term_gradients"]["robust"] > 0
    quiet = make("quiet", epochs=1, term_gradients_every=0)
    quiet.train()
    assert not any("term_gradients" in entry for entry in steps(quiet))


def test_gradients_are_clipped(make: Callable[..., Trainer]) -> None:
    """The norm is logged before clipping; afterwards it is the limit."""
    trainer = make(epochs=1, clip_norm=0.01, batch_size=40)
    norms = []

    def look(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        values = [value for group in optimizer.param_groups for value in group["params"]]
        norms.append(torch.stack([v.grad.norm() for v in values if v.grad is not None]).norm())

    trainer.raw_optimizer.register_step_pre_hook(look)
    trainer.train()
    assert steps(trainer)[0]["gradient_norm"] > 0.1
    assert norms
    for norm in norms:
        assert norm == pytest.approx(0.01, rel=1e-3)
    assert all(value.grad is None for value in trainer.learner.parameters())  # freed before the next step


def test_mixed_precision_on_a_cpu(make: Callable[..., Trainer]) -> None:
    """bf16 in the passes, float32 in weights; and another precision before or after it in the same process."""
    make("before", epochs=1).train()
    trainer = make(epochs=1, precision="bf16")
    trainer.train()
    full = make("after", epochs=1)
    full.train()
    first, exact = (steps(t)[0]["losses"]["total"] for t in (trainer, full))
    assert first != exact
    assert first == pytest.approx(exact, rel=0.05)
    assert {value.dtype for value in load_file(trainer.run.last / "model.safetensors").values()} == {
        torch.float32
    }


@pytest.fixture
def scaled(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float], None]]:
    """Let trainers run in fp16 with a gradient scaler on a CPU, which accelerate leaves to GPUs."""

    def begin(scale: float) -> None:
        def made(precision: str) -> Any:
            accelerator: Any = make_accelerator("no")
            accelerator.state._mixed_precision = precision
            accelerator.native_amp = True
            accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
            return accelerator

        monkeypatch.setattr("triptych.training.loop.make_accelerator", made)

    yield begin
    make_accelerator("bf16")  # the state is one a process: the next "no" makes a new one


def test_fp16_with_a_scaler(make: Callable[..., Trainer], scaled: Callable[[float], None]) -> None:
    """Gradients are unscaled before they are clipped and logged; the scale goes on where a run goes on."""
    full = make("full", epochs=1)
    full.train()
    scaled(1024.0)
    trainer = make(epochs=1, precision="fp16")
    trainer.train()
    half, exact = steps(trainer)[0], steps(full)[0]
    assert half["losses"]["total"] != exact["losses"]["total"]
    assert half["losses"]["total"] == pytest.approx(exact["losses"]["total"], rel=0.05)
    assert half["gradient_norm"] == pytest.approx(exact["gradient_norm"], rel=0.1)
    trainer.accelerator.scaler.update(77.0)
    trainer._save()
    assert make(epochs=1, precision="fp16").accelerator.scaler.get_scale() == 77


def test_fp16_passes_over_steps_that_overflow(
    make: Callable[..., Trainer], scaled: Callable[[float], None]
) -> None:
    """At a scale of 2^40 every half-precision gradient is infinite: no weight moves, and the scale is halved."""
    scaled(2.0**40)
    trainer = make(epochs=1, precision="fp16", clip_norm=1.0)
    before = {name: value.clone() for name, value in trainer.learner.named_parameters()}
    trainer.train()
    assert [entry["gradient_norm"] for entry in steps(trainer)] == [None] * 4
    assert all(torch.equal(value, before[name]) for name, value in trainer.learner.named_parameters())
    assert trainer.accelerator.scaler.get_scale() == 2.0**36
    assert trainer.progress.finished


class Choosy(InfoNCE):
    """Trains one part only in its first epoch, at a rate of its own."""

    name = "choosy"

    def phase(self, epoch: int) -> Phase:
        return Phase(("backbone.query_tokens",), constant_rate=True) if epoch == 0 else Phase()

    def rate(self, parameter: str) -> float:
        return 0.5 if parameter == "backbone.query_tokens" else 1.0


def choosy(trainer: Trainer) -> Trainer:
    """Make the trainer again with that method."""
    method = Choosy(Choosy.Config(), trainer.learner.backbone.shape)
    learner = Learner(trainer.learner.backbone, method)
    return Trainer(trainer.run, trainer.config, learner, trainer.loader, trainer.evaluator)


def test_a_phase_trains_what_it_names(make: Callable[..., Trainer]) -> None:
    trainer = choosy(make(epochs=1, learning_rate=0.01))
    before = {name: value.clone() for name, value in trainer.learner.named_parameters()}
    trainer.train()
    changed = {n for n, value in trainer.learner.named_parameters() if not torch.equal(value, before[n])}
    assert changed == {"backbone.query_tokens"}
    assert {entry["learning_rate"] for entry in steps(trainer)} == {0.01}
    assert sorted(group["lr"] for group in trainer.raw_optimizer.param_groups) == [0.005, 0.01]


def test_after_the_phase_all_is_trained(make: Callable[..., Trainer]) -> None:
    trainer = choosy(make(epochs=2, learning_rate=0.01))
    before = {
        name: value.clone() for name, value in trainer.learner.named_parameters() if value.requires_grad
    }
    trainer.train()
    still = {
        n for n, value in trainer.learner.named_parameters() if n in before and torch.equal(value, before[n])
    }
    assert not [name for name in still if "query_tokens" in name or "projection" in name]


def test_cleanliness_is_recorded(make: Callable[..., Trainer]) -> None:
    trainer = make(epochs=2)
    trainer.train()
    ids, values = read_cleanliness(trainer.run.cleanliness)
    assert sorted(ids) == sorted(trainer.loader.table.triplet_ids)
    assert ((values >= 0) & (values <= 1)).all()
    assert len(set(values.tolist())) > 10
