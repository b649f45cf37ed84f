"""A model on a benchmark's split: embed queries and galleries, rank, report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from triptych.backbones.token_cache import Progress, TokenCache
from triptych.errors import DataError, UsageError
from triptych.evaluation import (
    FASHIONIQ,
    Evaluation,
    ModelInfo,
    NoiseInfo,
    Protocol,
    ScoreBlock,
    assemble,
    evaluate_queries,
    find_protocol,
)
from triptych.evaluation.diagnostics import within_image_cosine
from triptych.evaluation.ranking import MEMORY_BUDGET_BYTES, Ranking, rank
from triptych.objectives.similarity import similarity
from triptych.training.model import Model
from triptych.training.source import Source, open_model
from triptych.triplets import Benchmark, QuerySet, read_benchmark
from triptych.triplets.text import join_captions

_CHUNK = 256
CONTEXT_ROWS = ("image-only", "text-only", "empty text", "average reference")


def evaluate(
    model: Source,
    data: Benchmark | str | Path,
    *,
    split: str = "val",
    checkpoint: str = "best",
    protocol: Protocol | str = FASHIONIQ,
    context: bool = False,
    samples: int = 1000,
    seed: int = 0,
    memory_budget_bytes: int = MEMORY_BUDGET_BYTES,
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Score a model on a split of a benchmark.

    Args:
        model: a run, the folder of a run or a model, or a loaded model.
        data: a benchmark or its path.
        split: which of its splits.
        checkpoint: ``best`` or ``last`` model of a run.
        protocol: one of :data:`~triptych.evaluation.PROTOCOLS` or its name.
        context: also score queries by image alone, by text alone, and with one side emptied.
        samples: bootstrap draws behind the 95 % intervals; 0 leaves them out.
        seed: of the bootstrap.
        memory_budget_bytes: what the ranking may hold at once.
        cache: the token cache's folder; by default the user's cache folder.
        progress: called with (done, total) while image tokens are computed.

    Returns:
        The evaluation; ``row()`` is its headline, ``write(path)`` keeps it.

    Raises:
        UsageError: model, split, checkpoint or protocol do not exist.
        DataError: the model or the data cannot be used.
    """
    benchmark = data if isinstance(data, Benchmark) else read_benchmark(data)
    chosen = find_protocol(protocol) if isinstance(protocol, str) else protocol
    find_split(benchmark, split)
    opened = open_model(model, checkpoint=checkpoint)
    tokens = TokenCache(opened.model.backbone, Path(cache) if cache else None)
    return SplitEvaluator(benchmark, split, opened.model, tokens, progress).evaluate(
        opened.model,
        protocol=chosen,
        name=opened.name,
        noise=noise_info(opened.noise_file, opened.noise_name),
        context=context,
        samples=samples,
        seed=seed,
        memory_budget_bytes=memory_budget_bytes,
    )


def find_split(benchmark: Benchmark, split: str) -> tuple[QuerySet, ...]:
    """Return the query sets of a split; ``UsageError`` lists the splits where it is unknown."""
    if split not in benchmark.splits:
        known = ", ".join(benchmark.splits) or "none"
        raise UsageError(f'{benchmark.name} has no split "{split}"; it has: {known}')
    return benchmark.splits[split]


class SplitEvaluator:
    """Scores models on one split; tokens and texts are looked up once.

    Args:
        benchmark: the data.
        split: which of its splits.
        model_backbone: the backbone whose tokens are cached.
        cache: the token cache; the split's images are added to it where missing.

    Raises:
        UsageError: there is no such split.
        DataError: images cannot be read, or a category has no queries or an empty gallery.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        split: str,
        model: Model,
        cache: TokenCache,
        progress: Progress | None = None,
    ) -> None:
        self.query_sets = find_split(benchmark, split)
        self.benchmark, self.split, self.cache = benchmark, split, cache
        for part in self.query_sets:
            if not len(part.queries) or not part.gallery:
                raise DataError(
                    f"category {part.category} of split {split} has "
                    + ("an empty gallery" if len(part.queries) else "no queries"),
                    file=benchmark.path,
                    mend="Complete it or remove it; `triptych data check` lists everything that is wrong.",
                )
        images = {
            name for part in self.query_sets for name in (*part.gallery, *part.queries.column("reference"))
        }
        self._keys = cache.add_images(benchmark.images, sorted(images), model.backbone, progress)
        self._texts = [
            [join_captions(c) for c in part.queries.column("captions")] for part in self.query_sets
        ]
        model.backbone.prepare_texts([text for texts in self._texts for text in texts])

    @torch.inference_mode()
    def evaluate(
        self,
        model: Model,
        *,
        protocol: Protocol = FASHIONIQ,
        name: str = "model",
        noise: NoiseInfo | None = None,
        context: bool = False,
        samples: int = 0,
        seed: int = 0,
        memory_budget_bytes: int = MEMORY_BUDGET_BYTES,
    ) -> Evaluation:
        """Rank every query and report.

        Args:
            model: in eval mode.
            protocol: how it is scored.
            name: the model's name in the report.
            noise: the manifest it was trained with.
            context: also score queries by image alone, by text alone, and compositions with one side emptied.
            samples: bootstrap draws; 0 = no interval.
            seed: the bootstrap's seed.
            memory_budget_bytes: bound of the ranking's blocks.
        """
        galleries = [self._targets(model, part.gallery) for part in self.query_sets]
        queries: dict[str, list[Tensor]] = {
            "composed": [self._composed(model, i) for i in range(len(self.query_sets))]
        }
        if context:
            queries |= self._context(model)
        results = {
            row: [
                evaluate_queries(
                    part,
                    scorer(vectors, gallery),
                    memory_budget_bytes=memory_budget_bytes,
                    bytes_per_score=4 * gallery.shape[1],
                )
                for part, vectors, gallery in zip(self.query_sets, embedded, galleries, strict=True)
            ]
            for row, embedded in queries.items()
        }
        method = model.method.name if model.method is not None else "aligned only"
        return assemble(
            results,
            protocol,
            data=self.benchmark.name,
            gallery_hash=self.benchmark.gallery_hash(self.split),
            model=ModelInfo(
                name=name, method=method, backbone=model.backbone.name, epoch=model.info.get("epoch")
            ),
            noise=noise,
            samples=samples,
            seed=seed,
        )

    @torch.inference_mode()
    def top(self, model: Model, k: int) -> list[Ranking]:
        """Rank the gallery for each query, its reference taken out, and keep the best k; one ranking a category."""
        rankings = []
        for index, part in enumerate(self.query_sets):
            place = {image: at for at, image in enumerate(part.gallery)}
            rankings.append(
                rank(
                    scorer(self._composed(model, index), self._targets(model, part.gallery)),
                    len(part.queries),
                    len(part.gallery),
                    top_k=k,
                    exclude=[place.get(reference) for reference in part.queries.column("reference")],
                )
            )
        return rankings

    @torch.inference_mode()
    def within_image_cosine(self, model: Model, limit: int = 512) -> float | None:
        """Return the mean cosine between the target tokens of one image; near 1 they have collapsed into one.

        None where a target is one vector.
        """
        targets = self._targets(model, self.query_sets[0].gallery[:limit])
        return within_image_cosine(targets.numpy()) if targets.shape[1] > 1 else None

    def _composed(
        self, model: Model, index: int, texts: Sequence[str] | None = None, mean: bool = False
    ) -> Tensor:
        part = self.query_sets[index]
        words = list(texts or self._texts[index])
        references = part.queries.column("reference")
        average = self._mean_tokens(part) if mean else None

        def embed(start: int) -> Tensor:
            stop = start + _CHUNK
            if average is None:
                tokens = self._tokens(references[start:stop], model)
            else:
                tokens = average.expand(len(words[start:stop]), -1, -1).to(model.backbone.device)
            return model.embed_queries(tokens, words[start:stop])

        return torch.cat([embed(start).float().cpu() for start in range(0, len(references), _CHUNK)])

    def _context(self, model: Model) -> Mapping[str, list[Tensor]]:
        indices = range(len(self.query_sets))
        image_only = [
            normalize(self._targets(model, part.queries.column("reference")).mean(dim=1), dim=-1)
            for part in self.query_sets
        ]
        text_only = [
            torch.cat(
                [model.embed_texts(texts[s : s + _CHUNK]).float().cpu() for s in range(0, len(texts), _CHUNK)]
            )
            for texts in self._texts
        ]
        empty = [self._composed(model, i, texts=[""] * len(self._texts[i])) for i in indices]
        average = [self._composed(model, i, mean=True) for i in indices]
        return dict(zip(CONTEXT_ROWS, (image_only, text_only, empty, average), strict=True))

    def _targets(self, model: Model, image_ids: Sequence[str]) -> Tensor:
        chunks = (image_ids[start : start + _CHUNK] for start in range(0, len(image_ids), _CHUNK))
        return torch.cat([model.embed_targets(self._tokens(chunk, model)).float().cpu() for chunk in chunks])

    def _tokens(self, image_ids: Sequence[str], model: Model) -> Tensor:
        rows = self.cache.rows([self._keys[name] for name in image_ids])
        return self.cache.gather(rows).to(model.backbone.device)

    def _mean_tokens(self, part: QuerySet) -> Tensor:
        rows = self.cache.rows([self._keys[name] for name in part.gallery])
        total = sum(self.cache.gather(rows[s : s + _CHUNK]).sum(dim=0) for s in range(0, len(rows), _CHUNK))
        assert isinstance(total, Tensor)
        return total / len(rows)


def scorer(vectors: Tensor, targets: Tensor) -> ScoreBlock:
    """Make the block function that ranking asks for scores: ``[N, D]`` queries, ``[G, Q, D]`` gallery."""

    def score(queries: slice, gallery: slice) -> np.ndarray:
        return similarity(vectors[queries], targets[gallery]).numpy()

    return score


def noise_info(path: Path | None, name: str | None = None) -> NoiseInfo | None:
    """Describe a run's noise manifest for reports, by the name it was given under."""
    if path is None or not path.is_file():
        return None
    from triptych.noise import NoiseManifest

    manifest = NoiseManifest.read(path)
    return NoiseInfo(
        name=name or path.name,
        fingerprint=manifest.fingerprint(),
        kind=manifest.kind,
        ratio=manifest.ratio_real,
    )
