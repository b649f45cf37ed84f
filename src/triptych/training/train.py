"""Train: from data and settings to a run folder; and resume one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from triptych.backbones.base import Backbone
from triptych.backbones.registry import configure as configure_backbone
from triptych.backbones.registry import create_backbone, settled
from triptych.backbones.token_cache import TokenCache
from triptych.errors import DataError, UsageError
from triptych.methods.registry import configure as configure_method
from triptych.methods.registry import refuse_unfit
from triptych.noise import NoiseManifest, lighter, rate_of_epoch
from triptych.training.bank import Intervention, build_bank
from triptych.training.config import RunConfig
from triptych.training.evaluate import SplitEvaluator, noise_info
from triptych.training.learner import Learner
from triptych.training.loader import BankRows, TripletLoader
from triptych.training.loop import Trainer, Watcher
from triptych.training.model import (
    Model,
    build_method,
    load_tensors,
    model_folder,
    read_settings,
    read_weights,
)
from triptych.training.processes import Processes, make_accelerator
from triptych.training.run import Run
from triptych.training.splits import find_split
from triptych.triplets import Benchmark, TripletTable, read_benchmark
from triptych.triplets.missing import table_without_missing, without_missing

Stages = Callable[[str, int, int], None]
"""Called with (what is being done, done, total) for the work before the first step."""


def train(
    data: Benchmark | str | Path,
    folder: str | Path,
    *,
    method: str | Mapping[str, Any] = "intent",
    backbone: str | Mapping[str, Any] | None = None,
    noise: NoiseManifest | str | Path | None = None,
    drop_noisy: bool = False,
    leave_out_missing: bool = False,
    init: str | Path | None = None,
    training: Mapping[str, Any] | None = None,
    images: str | Path | None = None,
    cache: str | Path | None = None,
    watcher: Watcher | None = None,
    stages: Stages | None = None,
) -> Run:
    """Train a method on triplets and write a run folder.

    Args:
        data: a benchmark or its path.
        folder: the run folder; must be new or empty.
        method: a name, or ``{"name": ..., switches}``.
        backbone: a name, or ``{"name": ..., sizes}``; what is not said is as in ``init``, else lite's default.
        noise: a manifest that corrupts the training triplets.
        drop_noisy: leave the manifest's triplets out instead: what a perfect filter would reach.
        leave_out_missing: leave out the triplets, queries and gallery pictures whose pictures are not there; the
            manifest is of all triplets, and is applied first.
        init: a model folder whose backbone weights to start from, such as ``align`` writes.
        training: settings of :class:`~triptych.training.config.TrainingConfig`.
        images: where the pictures are, if not beside the triplets.
        cache: the token cache's folder; by default the user's cache folder.
        watcher: callbacks for progress.
        stages: callback for the work before the first step.

    Returns:
        The finished run.

    Raises:
        UsageError: a setting is unknown or does not fit.
        DataError: data, noise or init cannot be used.
        Interrupted: stopped by Ctrl-C; the run can be resumed.
    """
    benchmark = (
        data if isinstance(data, Benchmark) else read_benchmark(data, images=Path(images) if images else None)
    )
    config = RunConfig.parse(
        {
            "data": str(benchmark.path.resolve()),
            "images": str(Path(images).resolve()) if images else None,
            "noise": str(noise) if isinstance(noise, str | Path) else "given" if noise else None,
            "drop_noisy": drop_noisy,
            "leave_out_missing": leave_out_missing,
            "init": str(Path(init).resolve()) if init else None,
            "backbone": _backbone_settings(backbone, init),
            "method": {"name": method} if isinstance(method, str) else dict(method),
            "training": dict(training or {}),
        }
    )
    if noise is not None and not isinstance(noise, NoiseManifest):
        noise = NoiseManifest.read(Path(noise), benchmark.train)
    if drop_noisy and noise is None:
        raise UsageError("--drop-noisy needs a manifest: which triplets to leave out?")
    Run.refuse_used(Path(folder))
    parts = _Parts(config, benchmark, noise, cache, stages)
    with parts.processes.main_first():
        parts.prepare(stages)
    run = Run(Path(folder))
    if parts.processes.main:
        Run.create(run.folder, config, noise)
    parts.processes.wait()
    parts.trainer(run, watcher).train()
    return run


def resume(
    folder: str | Path,
    *,
    data: Benchmark | None = None,
    cache: str | Path | None = None,
    watcher: Watcher | None = None,
    stages: Stages | None = None,
) -> Run:
    """Go on with a run from its last checkpoint; it ends in the weights that an uninterrupted run has.

    Args:
        folder: the run.
        data: the benchmark, where the run was not given all that lies at its path; by default it is read again.
        cache: the token cache's folder; by default the user's cache folder.
        watcher: callbacks for progress.
        stages: callback for the work before the first step.

    Raises:
        DataError: the folder is no run, or its data is gone or has changed.
    """
    run, config = Run.open(Path(folder))
    benchmark = data or read_benchmark(config.data, images=Path(config.images) if config.images else None)
    noise = NoiseManifest.read(run.noise, benchmark.train) if config.noise else None
    parts = _Parts(config, benchmark, noise, cache, stages, started=run.checkpoint.is_file())
    with parts.processes.main_first():
        if parts.processes.main:
            run.sweep()
        parts.prepare(stages)
    parts.trainer(run, watcher).train()
    return run


def _backbone_settings(given: str | Mapping[str, Any] | None, init: str | Path | None) -> dict[str, Any]:
    """Fill in what was not said of the backbone: from the model that it starts from, if that has the same one."""
    said = {"name": given} if isinstance(given, str) else dict(given or {})
    if init is not None and (model_folder(Path(init)) / "model.safetensors").is_file():
        start = read_settings(model_folder(Path(init)))["backbone"]
        if said.get("name", start["name"]) == start["name"]:
            return settled({**start, **said})
    return settled({"name": "lite", **said})


class _Parts:
    """What a run is put together from: all of it is checked before a folder is made, what is quick first."""

    def __init__(
        self,
        config: RunConfig,
        benchmark: Benchmark,
        noise: NoiseManifest | None,
        cache: str | Path | None,
        stages: Stages | None,
        *,
        started: bool = False,
    ) -> None:
        there = without_missing(benchmark) if config.leave_out_missing else benchmark
        self.config, self.benchmark, self.noise = config, there, noise
        self.table = self._there(training_table(benchmark, noise, drop_noisy=config.drop_noisy))
        _check(config, benchmark, self.table, noise)
        self.accelerator = make_accelerator(config.training.precision)
        self.processes = Processes.of(self.accelerator)
        self.lighter = {
            rate: self._there(training_table(benchmark, lighter(noise, rate)))
            for rate in config.training.noise_curriculum
            if noise is not None
        }
        seed = config.training.seed
        report = stages or (lambda what, done, total: None)
        self.backbone = create_backbone(
            config.backbone, seed=seed, progress=lambda d, t: report("weights, MB", d, t)
        )
        self.method = build_method(config.method, self.backbone, seed=seed)
        if config.init and not started:  # else its weights are in the checkpoint
            initialise(self.backbone, Path(config.init))
        self.backbone.to(self.accelerator.device)
        self.method.to(self.accelerator.device)
        self.cache = TokenCache(self.backbone, Path(cache) if cache else None, config.training.cache_dtype)

    def prepare(self, stages: Stages | None) -> None:
        """Build caches, loader and evaluator: every picture that will be needed is read."""
        settings = self.config.training
        report = stages if stages and self.processes.main else (lambda what, done, total: None)
        tables = (self.table, *self.lighter.values())
        images = sorted({*self._bank_references(), *(i for table in tables for i in table.image_ids())})
        keys = self.cache.add_images(
            self.benchmark.images, images, self.backbone, lambda d, t: report("image tokens", d, t)
        )
        self.loader = TripletLoader(
            self.table,
            self.cache,
            keys,
            self.benchmark.images,
            self.backbone,
            batch_size=settings.batch_size,
            captions=settings.captions or self.method.captions,
            seed=settings.seed,
            bank_rows=self._bank(keys, report),
            fixed_batches=self.method.fixed_batches,
            table_of=self._table_of,
        )
        self.evaluator = SplitEvaluator(
            self.benchmark,
            settings.validate_on,
            Model(self.backbone, self.method, {}, {}),
            self.cache,
            lambda d, t: report("validation image tokens", d, t),
        )

    def trainer(self, run: Run, watcher: Watcher | None) -> Trainer:
        """Make the trainer on what :meth:`prepare` built."""
        noise = noise_info(run.noise if self.noise else None)
        learner = Learner(self.backbone, self.method)
        return Trainer(
            run,
            self.config,
            learner,
            self.loader,
            self.evaluator,
            noise=noise,
            watcher=watcher,
            accelerator=self.accelerator,
        )

    def _there(self, table: TripletTable) -> TripletTable:
        """Leave out what needs a missing picture, where that was asked for.

        Raises:
            DataError: nothing is left.
        """
        if not self.config.leave_out_missing:
            return table
        left = table_without_missing(table, self.benchmark.images)
        if not len(left):
            raise DataError(
                f"the pictures of all {len(table)} training triplets are missing", file=self.benchmark.path
            )
        return left

    def _table_of(self, epoch: int) -> TripletTable:
        rates = self.config.training.noise_curriculum
        if not rates:
            return self.table
        return self.lighter[rate_of_epoch(rates, epoch, self.config.training.epochs)]

    def _bank_references(self) -> list[str]:
        """Name the pictures of the bank: with any manifest, or some triplets left out, it is the same bank."""
        if not self.method.counterfactual_bank:
            return []
        return [*self.benchmark.train.column("reference"), *self.table.column("reference")]

    def _bank(self, keys: Mapping[str, bytes], report: Stages) -> BankRows | None:
        if not isinstance(self.method, Intervention) or not self.method.counterfactual_bank:
            return None
        return build_bank(
            self.method,
            self._bank_references(),
            self.benchmark.images,
            keys,
            self.cache,
            self.backbone,
            progress=lambda d, t: report("counterfactual tokens", d, t),
        )


def _check(config: RunConfig, benchmark: Benchmark, table: TripletTable, noise: NoiseManifest | None) -> None:
    """Find wrong settings before anything slow is done.

    Raises:
        UsageError: a name or a setting is unknown, settings do not go together, or the batch is larger than
            the data.
    """
    for part, configure in (("method", configure_method), ("backbone", configure_backbone)):
        settings = dict(getattr(config, part))
        if "name" not in settings:
            raise UsageError(f'{part}: say which: {{"name": ...}}')
        configure(str(settings.pop("name")), settings)
    refuse_unfit(str(config.method["name"]), str(config.backbone["name"]))
    find_split(benchmark, config.training.validate_on)
    if config.training.noise_curriculum and (noise is None or config.drop_noisy):
        raise UsageError("a noise curriculum needs a manifest (--noise) whose triplets are not left out")
    if config.training.batch_size > len(table):
        raise UsageError(
            f"a batch of {config.training.batch_size} is larger than the data "
            f"({len(table)} training triplets).\n"
            f"  Use --batch-size {len(table)} or less."
        )


def training_table(
    benchmark: Benchmark, noise: NoiseManifest | None, *, drop_noisy: bool = False
) -> TripletTable:
    """Return the triplets that are trained on: noise applied, or its triplets left out.

    Raises:
        DataError: there is nothing to train on, or the manifest is of other data.
    """
    table = benchmark.train
    if noise is not None:
        noise.check(table)
        table = table.without(noise.noisy_ids) if drop_noisy else noise.apply(table)
    untargeted = [
        t for t, target in zip(table.triplet_ids, table.column("target"), strict=True) if target is None
    ]
    if untargeted:
        raise DataError(
            f"{len(untargeted)} training triplets have no target, such as {untargeted[0]}",
            file=benchmark.path,
            field="target",
            mend="Training needs a target for each; remove these rows.",
        )
    if not len(table):
        raise DataError("there are no training triplets", file=benchmark.path)
    return table


def initialise(backbone: Backbone, folder: Path) -> None:
    """Start a backbone from a model folder.

    Raises:
        DataError: the folder holds no model, or one of other sizes.
    """
    folder = model_folder(folder)
    settings = read_settings(folder)
    tensors = {name: value for name, value in read_weights(folder)[0].items() if name.startswith("backbone.")}
    try:
        load_tensors(backbone, None, tensors)
    except (KeyError, RuntimeError) as error:
        raise DataError(
            f"this model's backbone {settings['backbone']} does not fit the one that is trained: {error}",
            file=folder,
            mend="Give the same --backbone settings to both.",
        ) from error
