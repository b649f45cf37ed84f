"""The training loop: readable, resumable at any step, on accelerate."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from triptych.backbones.base import Backbone
from triptych.errors import DataError, TriptychError
from triptych.evaluation import Evaluation, NoiseInfo
from triptych.files import write_json
from triptych.methods.base import Losses, Phase, TripletBatch
from triptych.randomness import derive_seed
from triptych.training.checkpoint import Progress, load_checkpoint, save_checkpoint
from triptych.training.cleanliness import CleanlinessRecord
from triptych.training.config import RunConfig
from triptych.training.evaluate import SplitEvaluator
from triptych.training.groups import parameter_groups
from triptych.training.learner import Learner
from triptych.training.loader import TripletLoader
from triptych.training.model import Model, load_tensors, save_model, trained_tensors
from triptych.training.processes import Processes, make_accelerator
from triptych.training.run import Run
from triptych.training.schedule import learning_rate_factor
from triptych.training.stop import Stop

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


class Trainer:
    """Trains a method on a loader's triplets and writes the run folder.

    Args:
        run: the folder.
        config: the settings.
        learner: what is trained.
        loader: the batches.
        evaluator: validates after every epoch.
        noise: named in reports.
        watcher: callbacks of the process that writes.
        accelerator: as :func:`~triptych.training.processes.make_accelerator` makes it.
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
        accelerator: Any = None,
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
        self._stop = Stop()

        self.accelerator = accelerator or make_accelerator(self.settings.precision)
        self.processes = Processes.of(self.accelerator)
        learner.to(self.accelerator.device)
        micro_batch = self.settings.micro_batch
        if self.processes.count > 1 or (micro_batch or loader.batch_size) < loader.batch_size:
            learner.split(self.processes, micro_batch)
        self.peak = self.settings.learning_rate or learner.backbone.default_learning_rate
        parameters, groups = parameter_groups(learner, tower=self.settings.tower_rate / self.peak)
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
        with self.processes.main_first():  # files of a memory are made once; all write the same into them
            learner.method.remember(triplet_ids, on_disk)
        self.cleanliness = CleanlinessRecord(run.cleanliness, triplet_ids)
        if run.checkpoint.is_file():
            tensors, remembered, self.progress = load_checkpoint(run.checkpoint, optimizer, parameters)
            self._refuse_other_data()
            load_tensors(learner.backbone, learner.method, tensors)
            self.cleanliness.present.copy_(remembered.pop(_RECORD))
            if learner.method.memory is not None:
                learner.method.memory.load_state(remembered)
        self._metrics_lines = run.truncate_metrics(self.progress.metrics_lines) if self.processes.main else 0
        if self.progress.scaler and self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(self.progress.scaler)
        self.raw_optimizer = optimizer
        self.optimizer = self.accelerator.prepare(optimizer)

    def train(self) -> Progress:
        """Train to the end, from wherever the run stands.

        Raises:
            Interrupted: the user stopped it; a checkpoint was written.
            DataError: a loss is not finite; the last checkpoint is kept.
        """
        progress = self.progress
        device = self.accelerator.device
        with self._stop.listening(), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            while not progress.finished:
                self._train_epoch(progress.epoch)
                self._end_epoch(progress.epoch)
                if self.processes.any(self._stop.asked) and not progress.finished:
                    raise self._interrupted()
        return progress

    def _train_epoch(self, epoch: int) -> None:
        loader, progress, learner = self.loader, self.progress, self.learner
        texts = loader.texts(epoch)
        with self.processes.main_first():
            learner.backbone.prepare_texts([*texts, *learner.method.reads(epoch, texts)])
        self._begin_epoch(epoch)
        started, first = time.monotonic(), progress.step
        for batch in loader.epoch(epoch, first, learner.method.needs(epoch)):
            entry = self._step(epoch, progress.step, batch)
            progress.step += 1
            speed = (progress.step - first) * loader.batch_size / max(time.monotonic() - started, 1e-9)
            self._log({**entry, "triplets_per_second": round(speed, 1)})
            if self.processes.main:
                told = epoch, self.settings.epochs, progress.step, loader.steps_per_epoch
                self.watcher.on_step(Step(*told, entry["losses"], speed))
            if self.processes.any(self._stop.asked):
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
                Epoch(epoch, settings.epochs, settings.seed, resumed, self.learner.passes, scoring)
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
        with self.accelerator.autocast():
            losses: Losses = self.learner(batch)
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
        self.accelerator.backward(total)
        self.learner.gather_gradients(self.processes)
        limit = self.settings.clip_norm or math.inf
        norm = self.accelerator.clip_grad_norm_(self.learner.parameters(), limit)
        finite = bool(torch.isfinite(norm))
        entry["gradient_norm"] = float(norm) if finite else None
        if self.accelerator.scaler is None and not finite:  # a scaler passes such a step over
            raise self._not_finite("gradient", epoch, step, batch, values)
        self.optimizer.step()
        self.optimizer.zero_grad()  # here, so that the next forward pass does not lie beside old gradients
        if losses.cleanliness is not None:
            self.cleanliness.note(batch.triplet_ids, losses.cleanliness)
        return entry

    def _term_gradients(self, losses: Losses) -> dict[str, float]:
        """Return the norm of each weighted term's gradient: a term near zero moves nothing."""
        named = {name: value for name, value in self.learner.named_parameters() if value.requires_grad}
        norms = {}
        for name, value, weight in losses:
            term = weight * value.mean()
            if term.requires_grad:
                gradients = torch.autograd.grad(
                    term, list(named.values()), retain_graph=True, allow_unused=True
                )
                found = {key: each for key, each in zip(named, gradients, strict=True) if each is not None}
                self.processes.sum([each for key, each in found.items() if key.startswith("backbone.")])
                present: list[Tensor] = [gradient.norm() for gradient in found.values()]
                norms[name] = float(torch.stack(present).norm()) if present else 0.0
            else:
                norms[name] = 0.0
        return norms

    def _end_epoch(self, epoch: int) -> None:
        progress, learner, main = self.progress, self.learner, self.processes.main
        if main:
            self.cleanliness.end_epoch(epoch)
        learner.eval()
        info = {"epoch": epoch + 1, "epochs": self.settings.epochs}
        model = Model(learner.backbone, learner.method, self._models(), info)
        result = self._evaluate(model) if main else None
        score = self.processes.of_main(result.score() if result else 0.0)
        improved = progress.best_score is None or score > progress.best_score
        if improved:
            progress.best_score, progress.best_epoch, progress.epochs_without_gain = score, epoch + 1, 0
            self._save_model(self.run.best, {**info, "score": score})
        else:
            progress.epochs_without_gain += 1
        if result:
            figures = {side: result.row("composed", side).mean for side in ("kept", "removed")}
            self._log(
                {
                    "kind": "validation",
                    "epoch": epoch,
                    "score": score,
                    "improved": improved,
                    "metrics": figures,
                    "within_image_cosine": self.evaluator.within_image_cosine(model),
                }
            )
        progress.epoch, progress.step = epoch + 1, 0
        patience = self.settings.patience
        progress.finished = epoch + 1 >= self.settings.epochs or bool(
            patience and progress.epochs_without_gain >= patience - 1
        )
        if progress.finished:
            self._save_model(self.run.last, {**info, "score": score})
        self._save()
        if result:
            self.watcher.on_epoch(epoch, result, improved)

    def _evaluate(self, model: Model) -> Evaluation:
        return self.evaluator.evaluate(
            model, name=self.run.folder.name, noise=self.noise, model_seed=self.settings.seed
        )

    def _models(self) -> dict[str, Any]:
        return {"backbone": self.config.backbone, "method": self.config.method}

    def _save_model(self, folder: Path, info: dict[str, Any]) -> None:
        if self.processes.main:
            save_model(folder, self.learner.backbone, self.learner.method, self._models(), info)

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
        if self.processes.main:
            self.run.log(entry)
            self._metrics_lines += 1

    def _save(self) -> None:
        if not self.processes.main:
            return
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
        if self.processes.main:
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
