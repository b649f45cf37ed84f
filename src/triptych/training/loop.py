"""The training loop: readable, resumable at any step, on accelerate."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from triptych.backbones.base import Backbone
from triptych.errors import DataError, TriptychError, UsageError
from triptych.evaluation import Evaluation, NoiseInfo
from triptych.files import write_json
from triptych.methods.base import Losses, Method, Phase, TripletBatch
from triptych.randomness import derive_seed
from triptych.training.checkpoint import Progress, load_checkpoint, save_checkpoint
from triptych.training.cleanliness import CleanlinessRecord
from triptych.training.config import RunConfig
from triptych.training.evaluate import SplitEvaluator
from triptych.training.groups import parameter_groups
from triptych.training.loader import TripletLoader
from triptych.training.model import Model, load_tensors, save_model, trained_tensors
from triptych.training.run import Run
from triptych.training.schedule import learning_rate_factor

_RECORD = "cleanliness of this epoch"


class Interrupted(TriptychError):
    """The run was stopped by the user; it is saved."""

    exit_code = 130


@dataclass(frozen=True)
class Step:
    """What a progress display may show after a step."""

    epoch: int
    epochs: int
    step: int
    steps: int
    losses: dict[str, float]
    triplets_per_second: float


@dataclass(frozen=True)
class Watcher:
    """Callbacks of a training run; a command line draws bars from them."""

    on_step: Callable[[Step], None] = lambda step: None
    on_epoch: Callable[[int, Evaluation, bool], None] = lambda epoch, result, improved: None


@dataclass(frozen=True)
class Epoch:
    """The epoch context that a method gets."""

    epoch: int
    epochs: int
    seed: int
    resumed: bool
    backbone: Backbone
    scoring: Callable[[], Iterator[TripletBatch]]


class Learner(nn.Module):
    """Backbone and method as the one module that is optimised."""

    def __init__(self, backbone: Backbone, method: Method) -> None:
        super().__init__()
        self.backbone = backbone
        self.method = method

    def forward(self, batch: TripletBatch) -> Losses:
        """Return the method's loss terms."""
        return self.method.losses(batch, self.backbone)


class Trainer:
    """Trains a method on a loader's triplets and writes the run folder.

    Args:
        run: the folder.
        config: the settings.
        learner: what is trained.
        loader: the batches.
        evaluator: validates after every epoch.
        noise: named in reports.
        watcher: callbacks.
    """

    def __init__(
        self,
        run: Run,
        config: RunConfig,
        learner: Learner,
        loader: TripletLoader,
        evaluator: SplitEvaluator,
        *,
        noise: NoiseInfo | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        self.run, self.config, self.learner, self.loader, self.evaluator = (
            run,
            config,
            learner,
            loader,
            evaluator,
        )
        self.settings = config.training
        self.noise, self.watcher = noise, watcher or Watcher()
        self.progress = Progress()
        self.phase = Phase()
        self._stop = False

        self.accelerator = accelerator(self.settings.mixed_precision, learner.backbone.device)
        self.peak = self.settings.learning_rate or learner.backbone.default_learning_rate
        parameters, groups = parameter_groups(learner, learner.method)
        self.names = list(parameters)
        optimizer = torch.optim.AdamW(
            groups,
            lr=self.peak,
            betas=self.settings.betas,
            eps=1e-7,
            weight_decay=self.settings.weight_decay,
        )
        triplet_ids = loader.table.triplet_ids
        on_disk = run.folder / "memory" if self.settings.memory == "disk" else None
        learner.method.remember(triplet_ids, on_disk)
        self.cleanliness = CleanlinessRecord(run.cleanliness, triplet_ids)
        if run.checkpoint.is_file():
            tensors, remembered, self.progress = load_checkpoint(run.checkpoint, optimizer, parameters)
            self._refuse_other_data()
            load_tensors(learner.backbone, learner.method, tensors)
            self.cleanliness.present.copy_(remembered.pop(_RECORD))
            if learner.method.memory is not None:
                learner.method.memory.load_state(remembered)
        self._metrics_lines = run.truncate_metrics(self.progress.metrics_lines)
        if self.progress.scaler and self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(self.progress.scaler)
        self.raw_optimizer = optimizer
        self.module, self.optimizer = self.accelerator.prepare(learner, optimizer)

    def train(self) -> Progress:
        """Train to the end, from wherever the run stands.

        Raises:
            Interrupted: the user stopped it; a checkpoint was written.
            DataError: a loss is not finite; the last checkpoint is kept.
        """
        progress = self.progress
        with self._graceful_stop(), torch.random.fork_rng(devices=[]):
            while not progress.finished:
                self._train_epoch(progress.epoch)
                self._end_epoch(progress.epoch)
                if self._stop and not progress.finished:
                    raise self._interrupted()
        return progress

    def _train_epoch(self, epoch: int) -> None:
        loader, progress, learner = self.loader, self.progress, self.learner
        texts = loader.texts(epoch)
        learner.backbone.prepare_texts([*texts, *learner.method.reads(epoch, texts)])
        self._begin_epoch(epoch)
        started, first = time.monotonic(), progress.step
        for batch in loader.epoch(epoch, first, learner.method.needs(epoch)):
            entry = self._step(epoch, progress.step, batch)
            progress.step += 1
            speed = (progress.step - first) * loader.batch_size / max(time.monotonic() - started, 1e-9)
            self._log({**entry, "triplets_per_second": round(speed, 1)})
            self.watcher.on_step(
                Step(
                    epoch, self.settings.epochs, progress.step, loader.steps_per_epoch, entry["losses"], speed
                )
            )
            if self._stop:
                self._save()
                raise self._interrupted()
            if progress.step % self.settings.checkpoint_every == 0:
                self._save()

    def _begin_epoch(self, epoch: int) -> None:
        """Let the method prepare, and choose what is trained."""
        method, settings, resumed = self.learner.method, self.settings, self.progress.step > 0
        if method.memory is not None:
            method.memory.begin_epoch(epoch, resumed=resumed)
        self.learner.eval()
        with torch.no_grad():
            scoring = partial(self.loader.scoring, epoch)
            method.begin_epoch(
                Epoch(epoch, settings.epochs, settings.seed, resumed, self.learner.backbone, scoring)
            )
        self.phase = method.phase(epoch)
        named = dict(self.learner.named_parameters())
        for name in self.names:
            named[name].requires_grad_(not self.phase.only or name.startswith(self.phase.only))
        self.learner.train()

    def _step(self, epoch: int, step: int, batch: TripletBatch) -> dict[str, Any]:
        total_steps = self.loader.steps_per_epoch * (self.settings.horizon_epochs or self.settings.epochs)
        global_step = epoch * self.loader.steps_per_epoch + step
        factor = learning_rate_factor(
            global_step,
            total_steps=total_steps,
            warmup_steps=round(self.settings.warmup_epochs * self.loader.steps_per_epoch),
            kind=self.settings.schedule,
        )
        if self.phase.constant_rate:
            factor = 1.0
        for group in self.raw_optimizer.param_groups:
            group["lr"] = self.peak * factor * group["factor"]
        torch.manual_seed(derive_seed(self.settings.seed, "dropout", epoch, step))
        losses: Losses = self.module(batch)
        total = losses.total()
        values = {name: float(value.detach().mean()) for name, value, _ in losses}
        if not torch.isfinite(total):
            raise self._not_finite("loss", epoch, step, batch, values)
        entry: dict[str, Any] = {
            "kind": "step",
            "epoch": epoch,
            "step": step,
            "losses": {"total": float(total.detach()), **values},
            "diagnostics": {name: float(value) for name, value in losses.diagnostics.items()},
            "learning_rate": self.peak * factor,
        }
        every = self.settings.term_gradients_every
        if every and global_step % every == 0:
            entry["term_gradients"] = self._term_gradients(losses)
        self.optimizer.zero_grad()
        self.accelerator.backward(total)
        limit = self.settings.clip_norm or math.inf
        norm = self.accelerator.clip_grad_norm_(self.module.parameters(), limit)
        entry["gradient_norm"] = float(norm)
        if self.accelerator.scaler is None and not torch.isfinite(norm):  # a scaler passes such a step over
            raise self._not_finite("gradient", epoch, step, batch, values)
        self.optimizer.step()
        if losses.cleanliness is not None:
            self.cleanliness.note(batch.triplet_ids, losses.cleanliness)
        return entry

    def _term_gradients(self, losses: Losses) -> dict[str, float]:
        """Return the norm of each weighted term's gradient: a term near zero moves nothing."""
        parameters = [value for value in self.learner.parameters() if value.requires_grad]
        norms = {}
        for name, value, weight in losses:
            term = weight * value.mean()
            if term.requires_grad:
                gradients = torch.autograd.grad(term, parameters, retain_graph=True, allow_unused=True)
                present: list[Tensor] = [gradient.norm() for gradient in gradients if gradient is not None]
                norms[name] = float(torch.stack(present).norm()) if present else 0.0
            else:
                norms[name] = 0.0
        return norms

    def _end_epoch(self, epoch: int) -> None:
        progress, learner = self.progress, self.learner
        self.cleanliness.end_epoch(epoch)
        learner.eval()
        info = {"epoch": epoch + 1, "epochs": self.settings.epochs}
        settings = {"backbone": self.config.backbone, "method": self.config.method}
        model = Model(learner.backbone, learner.method, settings, info)
        result = self.evaluator.evaluate(
            model, name=self.run.folder.name, noise=self.noise, model_seed=self.settings.seed
        )
        score = result.score()
        improved = progress.best_score is None or score > progress.best_score
        if improved:
            progress.best_score, progress.best_epoch, progress.epochs_without_gain = score, epoch + 1, 0
            save_model(self.run.best, learner.backbone, learner.method, settings, {**info, "score": score})
        else:
            progress.epochs_without_gain += 1
        self._log(
            {
                "kind": "validation",
                "epoch": epoch,
                "score": score,
                "improved": improved,
                "metrics": {
                    reference: result.row("composed", reference).mean for reference in ("kept", "removed")
                },
                "within_image_cosine": self.evaluator.within_image_cosine(model),
            }
        )
        progress.epoch, progress.step = epoch + 1, 0
        patience = self.settings.patience
        progress.finished = epoch + 1 >= self.settings.epochs or bool(
            patience and progress.epochs_without_gain >= patience - 1
        )
        if progress.finished:
            save_model(self.run.last, learner.backbone, learner.method, settings, {**info, "score": score})
        self._save()
        self.watcher.on_epoch(epoch, result, improved)

    def _interrupted(self) -> Interrupted:
        progress = self.progress
        done = f"in epoch {progress.epoch + 1} after step {progress.step}"
        return Interrupted(
            f"stopped {done if progress.step else f'after epoch {progress.epoch}'}; nothing is lost.\n"
            f"  Go on with: triptych train --resume {self.run.folder}"
        )

    def _refuse_other_data(self) -> None:
        if self.progress.data not in ("", self.loader.fingerprint):
            raise DataError(
                "the training triplets or their pictures have changed since this run began",
                file=self.config.data,
                mend="Put the data back as it was, or start a new run.",
            )

    def _log(self, entry: dict[str, Any]) -> None:
        self.run.log(entry)
        self._metrics_lines += 1

    def _save(self) -> None:
        self.progress.metrics_lines = self._metrics_lines
        self.progress.data = self.loader.fingerprint
        memory, scaler = self.learner.method.memory, self.accelerator.scaler
        self.progress.scaler = scaler.state_dict() if scaler is not None else {}
        save_checkpoint(
            self.run.checkpoint,
            trained_tensors(self.learner.backbone, self.learner.method),
            self.raw_optimizer,
            self.names,
            self.progress,
            {_RECORD: self.cleanliness.present, **(memory.state() if memory is not None else {})},
        )

    def _not_finite(
        self, what: str, epoch: int, step: int, batch: TripletBatch, values: dict[str, float]
    ) -> DataError:
        details = {
            "what": what,
            "epoch": epoch,
            "step": step,
            "losses": values,
            "triplets": batch.triplet_ids,
        }
        write_json(self.run.folder / "not-finite.json", details)
        terms = ", ".join(f"{name} = {value}" for name, value in values.items())
        shown = ", ".join(batch.triplet_ids[:4])
        return DataError(
            f"the {what} is not finite in epoch {epoch + 1}, step {step + 1} ({terms}); "
            f"the batch held {len(batch)} triplets: {shown}, ... (all are listed in not-finite.json)",
            file=self.run.folder,
            mend="The last checkpoint and best/ are kept. Lower the learning rate (--set training.learning_rate=...) "
            "or look at these triplets with `triptych data check`.",
        )

    @contextmanager
    def _graceful_stop(self) -> Iterator[None]:
        """Let Ctrl-C and SIGTERM end the run after the present step; a second Ctrl-C ends it at once."""

        def stop(number: int, frame: FrameType | None) -> None:
            if self._stop:
                raise KeyboardInterrupt
            self._stop = True

        try:
            before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # not in the main thread: the caller handles its own signals
            yield
            return
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def accelerator(mixed_precision: str, device: torch.device) -> Any:
    """Make the accelerator, and refuse what would silently not be distributed.

    Raises:
        UsageError: several processes were started, or fp16 is asked of a CPU.
    """
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    if mixed_precision == "fp16" and device.type == "cpu":
        raise UsageError("fp16 needs a GPU; use training.mixed_precision = bf16 or no")
    if AcceleratorState._shared_state and AcceleratorState().mixed_precision != mixed_precision:
        AcceleratorState._reset_state()  # it is one a process, and an earlier run had another precision
    if int(os.environ.get("WORLD_SIZE", "1")) != 1:
        raise UsageError(
            "this version trains in one process; start it without torchrun or `accelerate launch`"
        )
    return Accelerator(mixed_precision=mixed_precision, cpu=device.type == "cpu")
