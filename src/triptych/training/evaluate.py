"""A model on a benchmark's split: embed queries and galleries, rank, report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from triptych.backbones.token_cache import Progress, TokenCache
from triptych.errors import DataError
from triptych.evaluation import (
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
from triptych.evaluation.phrasings import phrasing_row
from triptych.evaluation.ranking import MEMORY_BUDGET_BYTES, Ranking, rank
from triptych.objectives.similarity import similarity
from triptych.training.model import Model
from triptych.training.source import Source, open_model
from triptych.training.splits import check_split, find_split
from triptych.triplets import Benchmark, QuerySet, read_benchmark
from triptych.triplets.text import PHRASINGS, CaptionMode, TextStyle, clean, join_captions

_CHUNK = 256
_WIDENED = 1024
"""Images of a gallery in half precision that are widened at once."""
References = Callable[[Sequence[str]], Tensor]
"""Gives the frozen tokens ``[N, P, V]`` of N reference pictures, by id, in place of the cache's."""
CONTEXT_ROWS = ("image-only", "text-only", "empty text", "average reference")


def evaluate(
    model: Source,
    data: Benchmark | str | Path,
    *,
    split: str = "val",
    checkpoint: str = "best",
    protocol: Protocol | str | None = None,
    context: bool = False,
    phrasings: bool = False,
    captions: CaptionMode = "fixed",
    style: TextStyle = "strip_join",
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
        protocol: one of :data:`~triptych.evaluation.PROTOCOLS` or its name; the data's own where not given.
        context: also score queries by image alone, by text alone, and with one side emptied.
        phrasings: also score the other joins of the captions, where queries have two: what the wording changes.
        captions: how the captions of a query are joined, see :func:`~triptych.triplets.text.join_captions`.
        style: how each is cleaned first, see there.
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
    chosen = find_protocol(protocol or benchmark.protocol) if not isinstance(protocol, Protocol) else protocol
    check_split(benchmark, split)
    opened = open_model(model, checkpoint=checkpoint)
    tokens = TokenCache(opened.model.backbone, Path(cache) if cache else None)
    scorer_of = SplitEvaluator(
        benchmark, split, opened.model, tokens, progress, captions=captions, style=style
    )
    return scorer_of.evaluate(
        opened.model,
        protocol=chosen,
        name=opened.name,
        noise=noise_info(opened.noise_file, opened.noise_name, dropped=opened.dropped),
        model_seed=opened.seed,
        context=context,
        phrasings=phrasings,
        samples=samples,
        seed=seed,
        memory_budget_bytes=memory_budget_bytes,
    )


class SplitEvaluator:
    """Scores models on one split; tokens and texts are looked up once.

    Args:
        benchmark: the data.
        split: which of its splits.
        model_backbone: the backbone whose tokens are cached.
        cache: the token cache; the split's images are added to it where missing.
        progress: called with (done, total) while image tokens are computed.
        captions: how the captions of a query are joined.
        style: how each is cleaned first.

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
        *,
        captions: CaptionMode = "fixed",
        style: TextStyle = "strip_join",
    ) -> None:
        self.query_sets = find_split(benchmark, split)
        self.benchmark, self.split, self.cache = benchmark, split, cache
        self.protocol = find_protocol(benchmark.protocol)
        self.captions, self.style = captions, style
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
        self._texts = self._joined(captions)
        model.backbone.prepare_texts([text for texts in self._texts for text in texts])

    @torch.inference_mode()
    def evaluate(
        self,
        model: Model,
        *,
        protocol: Protocol | None = None,
        name: str = "model",
        noise: NoiseInfo | None = None,
        model_seed: int | None = None,
        context: bool = False,
        phrasings: bool = False,
        samples: int = 0,
        seed: int = 0,
        memory_budget_bytes: int = MEMORY_BUDGET_BYTES,
        references: References | None = None,
    ) -> Evaluation:
        """Rank every query and report.

        Args:
            model: in eval mode.
            protocol: how it is scored; the data's own where not given.
            name: the model's name in the report.
            noise: the manifest it was trained with.
            model_seed: the seed it was trained with.
            context: also score queries by image alone, by text alone, and compositions with one side emptied.
            phrasings: also score the other joins of the captions, where queries have two.
            samples: bootstrap draws; 0 = no interval.
            seed: the bootstrap's seed.
            memory_budget_bytes: bound of the ranking's blocks.
            references: gives the references' tokens to compose with, such as those of altered pictures.
        """
        galleries = [self._targets(model, part.gallery) for part in self.query_sets]
        queries: dict[str, list[Tensor]] = {"composed": self.queries(model, references)}
        if context:
            queries |= self._context(model)
        if phrasings:
            queries |= self._phrasings(model)
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
            protocol or self.protocol,
            data=self.benchmark.name,
            gallery_hash=self.benchmark.gallery_hash(self.split),
            model=ModelInfo(
                name=name,
                method=method,
                backbone=model.backbone.name,
                epoch=model.info.get("epoch"),
                seed=model_seed,
            ),
            noise=noise,
            samples=samples,
            seed=seed,
            notes=self._notes(),
            captions=self.captions,
        )

    @torch.inference_mode()
    def queries(self, model: Model, references: References | None = None) -> list[Tensor]:
        """Embed the queries of every category: ``[N, D]`` each; ``references`` as in :meth:`evaluate`."""
        return [self._composed(model, i, references=references) for i in range(len(self.query_sets))]

    @torch.inference_mode()
    def top(self, model: Model, k: int, *, memory_budget_bytes: int = MEMORY_BUDGET_BYTES) -> list[Ranking]:
        """Rank the gallery for each query, its reference taken out, and keep the best k; one ranking a category.

        ``ranks`` holds, for each query, the ranks of its subset's members (CIRR) that are in the gallery.
        """
        rankings = []
        for index, part in enumerate(self.query_sets):
            place = {image: at for at, image in enumerate(part.gallery)}
            targets = self._targets(model, part.gallery)
            groups = part.queries.column("group")
            rankings.append(
                rank(
                    scorer(self._composed(model, index), targets),
                    len(part.queries),
                    len(part.gallery),
                    top_k=k,
                    ranks_of=[[place[name] for name in group or () if name in place] for group in groups],
                    names=part.queries.triplet_ids,
                    memory_budget_bytes=memory_budget_bytes,
                    bytes_per_score=4 * targets.shape[1],
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
        self,
        model: Model,
        index: int,
        texts: Sequence[str] | None = None,
        mean: bool = False,
        references: References | None = None,
    ) -> Tensor:
        part = self.query_sets[index]
        words = list(texts or self._texts[index])
        names = part.queries.column("reference")
        average = self._mean_tokens(part) if mean else None

        def embed(start: int) -> Tensor:
            stop = start + _CHUNK
            if references is not None:
                tokens = references(names[start:stop]).to(model.backbone.device)
            elif average is None:
                tokens = self._tokens(names[start:stop], model)
            else:
                tokens = average.expand(len(words[start:stop]), -1, -1).to(model.backbone.device)
            return model.embed_queries(tokens, words[start:stop])

        return torch.cat([embed(start).float().cpu() for start in range(0, len(names), _CHUNK)])

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

    def _phrasings(self, model: Model) -> Mapping[str, list[Tensor]]:
        """Compose with each of the other joins; nothing where every query has one caption."""
        several = any(
            sum(bool(clean(text)) for text in texts) > 1
            for part in self.query_sets
            for texts in part.queries.column("captions")
        )
        found = {}
        for mode, name in PHRASINGS.items() if several else ():
            if mode != self.captions:
                texts = self._joined(mode)  # type: ignore[arg-type]  # the keys are caption modes
                found[phrasing_row(name)] = [self._composed(model, i, own) for i, own in enumerate(texts)]
        return found

    def _joined(self, mode: CaptionMode) -> list[list[str]]:
        return [
            [join_captions(texts, mode, style=self.style) for texts in part.queries.column("captions")]
            for part in self.query_sets
        ]

    def _notes(self) -> tuple[str, ...]:
        style = "Captions were cleaned as INTENT, HABIT and ConeSep do, with an empty dictionary of typing errors."
        return (*self.benchmark.notes, *((style,) if self.style == "correct" else ()))

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
    """Make the block function that ranking asks for scores: ``[N, D]`` queries, ``[G, Q, D]`` gallery.

    A gallery in half precision is widened some images at a time, so that the memory of a block stays what it is.
    """

    def score(queries: slice, gallery: slice) -> np.ndarray:
        block = targets[gallery]
        parts = (block,) if block.dtype == torch.float32 else torch.split(block, _WIDENED)
        return torch.cat([similarity(vectors[queries], part) for part in parts], dim=1).numpy()

    return score


def noise_info(path: Path | None, name: str | None = None, *, dropped: bool = False) -> NoiseInfo | None:
    """Describe a run's noise manifest for reports, by the name it was given under.

    Args:
        path: the manifest.
        name: what it was called.
        dropped: whether its wrong triplets were left out of training.
    """
    if path is None or not path.is_file():
        return None
    from triptych.noise import NoiseManifest

    manifest = NoiseManifest.read(path)
    return NoiseInfo(
        name=name or path.name,
        fingerprint=manifest.fingerprint(),
        kind=manifest.kind,
        ratio=manifest.ratio_real,
        asked=manifest.ratio_asked,
        dropped=dropped,
    )
