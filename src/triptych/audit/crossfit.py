"""Cross-fitting: models that are each trained on all folds but one, and judge that one; restartable by fold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from triptych.audit.config import AuditConfig
from triptych.audit.corpus import Corpus
from triptych.audit.embed import Embedder
from triptych.audit.evidence import FEATURES, Evidence, concat
from triptych.audit.measure import measure
from triptych.audit.probes import Probes
from triptych.backbones.registry import create_backbone
from triptych.backbones.token_cache import TokenCache
from triptych.training.loop import Watcher
from triptych.training.model import load_model
from triptych.training.run import Run
from triptych.training.train import resume, train
from triptych.triplets import Benchmark, ImageStore, QuerySet, TripletTable

IntArray = npt.NDArray[np.int64]
Stages = Callable[[str, int, int], None]
Watch = Callable[[str], Watcher]

VALIDATED = 64
"""So many triplets that a model is not trained on show how it comes on; nothing is chosen by them."""


@dataclass(frozen=True)
class CrossFit:
    """What the models of an audit are made from.

    Attributes:
        table: the triplets; all pictures of theirs can be read, and each has a target.
        folds: ``[N]`` the fold of each.
        probes: triplets made wrong on purpose, judged beside the real ones of their base's fold.
        images: the pictures.
        folder: where run folders and evidence go.
        config: the settings.
        path: where the data was read from, for messages.
        init: a model folder to start from.
        cache: the token cache's folder.
        stages: called with (what is being done, done, total).
        watch: gives the callbacks of a training.
    """

    table: TripletTable
    folds: IntArray
    probes: Probes
    images: ImageStore
    folder: Path
    config: AuditConfig
    path: Path
    init: Path | None = None
    cache: Path | None = None
    stages: Stages = lambda what, done, total: None
    watch: Watch = lambda name: Watcher()

    def judge(self, number: int, believed: npt.NDArray[np.bool_]) -> list[Evidence]:
        """Train and question the models of a round, a fold after the other; what is there is kept.

        Args:
            number: of the round, from 1; the last one also tries other references and texts.
            believed: ``[N]`` which triplets the models are trained on.

        Returns:
            The evidence of each method and seed on every triplet and probe.
        """
        found = []
        for method in self.config.methods:
            for seed in self.config.seeds:
                parts = [
                    self._fold(
                        f"round{number}-{method}-seed{seed}-fold{fold}", number, method, seed, fold, believed
                    )
                    for fold in range(int(self.folds.max()) + 1)
                ]
                found.append(concat(parts))
        return found

    def run_folders(self, number: int) -> list[Path]:
        """Return the run folders of a round."""
        return sorted((self.folder / "runs").glob(f"round{number}-*"))

    def _fold(
        self, name: str, number: int, method: str, seed: int, fold: int, believed: npt.NDArray[np.bool_]
    ) -> Evidence:
        path = self.folder / "evidence" / f"{name}.parquet"
        if not path.is_file():
            run = self._train(name, method, seed, fold, believed)
            self._question(
                name, run, fold, swaps=self.config.swaps if number == self.config.rounds else 0
            ).write(path)
            run.checkpoint.unlink(missing_ok=True)  # not gone on with any more, and the largest file
        return Evidence.read(path)

    def _train(self, name: str, method: str, seed: int, fold: int, believed: npt.NDArray[np.bool_]) -> Run:
        folder = self.folder / "runs" / name
        run = Run(folder)
        data = self._benchmark(fold, believed)
        if (run.last / "model.safetensors").is_file():
            return run
        if (folder / "config.json").is_file():
            return resume(folder, data=data, cache=self.cache, watcher=self.watch(name), stages=self.stages)
        settings: dict[str, Any] = {
            "epochs": self.config.epochs,
            "batch_size": min(self.config.batch_size, len(data.train)),
            "learning_rate": self.config.learning_rate,
            "captions": "fixed",
            "patience": 0,
            "term_gradients_every": 0,
            "seed": seed,
        }
        return train(
            data,
            folder,
            method=method,
            backbone=self.config.backbone,
            init=self.init,
            training=settings,
            cache=self.cache,
            watcher=self.watch(name),
            stages=self.stages,
        )

    def _benchmark(self, fold: int, believed: npt.NDArray[np.bool_]) -> Benchmark:
        others, own = np.flatnonzero((self.folds != fold) & believed), np.flatnonzero(self.folds == fold)
        shown = self.table.take(own[:: max(1, len(own) // VALIDATED)][:VALIDATED])
        watched = QuerySet("val", "held out", shown, tuple(shown.image_ids()))
        return Benchmark(self.path.name, self.path, self.table.take(others), {"val": (watched,)}, self.images)

    def _question(self, name: str, run: Run, fold: int, *, swaps: int) -> Evidence:
        model = load_model(run.last)
        cache = TokenCache(model.backbone, self.cache)
        corpus = Corpus(self.table)
        keys = cache.add_images(self.images, corpus.images, model.backbone)
        rows, probes = (
            np.flatnonzero(self.folds == fold),
            np.flatnonzero(self.folds[self.probes.base] == fold),
        )
        sources = np.concatenate([np.repeat(rows[:, None], 3, axis=1), self.probes.sources()[probes]])
        items = corpus.items(sources)
        total = len(corpus.images) + len(corpus.texts) + (2 + 2 * swaps) * len(items) + len(rows)
        done = 0

        def told(count: int) -> None:
            nonlocal done
            done += count
            self.stages(f"questioning {name}", min(done, total), total)

        embedder = Embedder(model, cache, keys, corpus.images, corpus.texts, told)
        found = measure(embedder, corpus, items, rows, swaps=swaps)
        self.stages(f"questioning {name}", total, total)
        return Evidence(
            np.concatenate([rows, probes]),
            np.arange(len(items)) >= len(rows),
            np.stack([found.figures[figure] for figure in FEATURES], axis=1),
            found.candidates,
            found.scores,
        )


def pooled_tokens(
    table: TripletTable,
    images: ImageStore,
    backbone: Mapping[str, Any],
    cache: Path | None,
    progress: Callable[[int, int], None] | None = None,
) -> npt.NDArray[np.float32]:
    """Fill the token cache, and describe what reference and target of each triplet look like by frozen tokens.

    Returns:
        ``[N, 2 V]`` float32 rows of length 1, by which near donors of probes are found.

    Raises:
        DataError: a picture cannot be read.
    """
    model = create_backbone(dict(backbone), seed=0)
    tokens = TokenCache(model, cache)
    names = table.image_ids()
    keys = tokens.add_images(images, names, model, progress)
    rows = tokens.rows([keys[name] for name in names])
    pooled = np.concatenate(
        [tokens.gather(rows[start : start + 512]).mean(dim=1).numpy() for start in range(0, len(rows), 512)]
    )
    pooled -= pooled.mean(axis=0)
    pooled /= np.linalg.norm(pooled, axis=1, keepdims=True) + 1e-12
    number = {name: at for at, name in enumerate(names)}
    both = [pooled[[number[name] for name in table.column(field)]] for field in ("reference", "target")]
    joined: np.ndarray = (np.concatenate(both, axis=1) / np.sqrt(2)).astype(np.float32)
    return joined
