"""ConeSep's claim, tested: does unlearning a wrong triplet harm the clean triplets that are near to it?

The training triplets themselves are ranked: each clean triplet asks for its annotated target among the training
pictures of its category. Those that are nearest to a wrong triplet's query, by the model before unlearning, are
compared with all other clean ones, before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from triptych.backbones.token_cache import TokenCache
from triptych.evaluation import REFERENCE_REMOVED
from triptych.noise import NoiseManifest
from triptych.training.evaluate import SplitEvaluator
from triptych.training.model import Model
from triptych.triplets import Benchmark, QuerySet

SPLIT = "train"
K = 10


@dataclass(frozen=True)
class Backlash:
    """What a model recalls of its training triplets: R@10 and how many, percent, the reference removed.

    Attributes:
        model: which one.
        neighbours: of the clean triplets nearest to wrong ones.
        others: of the other clean ones.
        wrong: of the wrong annotations themselves: what is memorised, or unlearned.
        counts: how many triplets stand behind each.
    """

    model: str
    neighbours: float
    others: float
    wrong: float
    counts: tuple[int, int, int]


def training_queries(benchmark: Benchmark, noise: NoiseManifest) -> Benchmark:
    """Return the noisy training triplets as queries: each category's gallery is all of its training pictures."""
    table = noise.apply(benchmark.train)
    parts = []
    for category in table.categories:
        rows = [at for at, own in enumerate(table.column("category")) if own == category]
        queries = table.take(rows)
        parts.append(QuerySet(SPLIT, category, queries, tuple(sorted(set(queries.image_ids())))))
    return replace(benchmark, splits={SPLIT: tuple(parts)})


def backlash(
    before: Model,
    models: Sequence[tuple[str, Model]],
    benchmark: Benchmark,
    noise: NoiseManifest,
    *,
    neighbours: int = 3,
    progress: Callable[[int, int], None] | None = None,
) -> list[Backlash]:
    """Compare what models recall near wrong triplets with what they recall elsewhere.

    Args:
        before: the model before unlearning; it decides what is near.
        models: what is compared, each with its name; ``before`` may be among them.
        benchmark: the data, without noise.
        noise: which triplets are wrong.
        neighbours: how many clean triplets a wrong one has, by the cosine of the queries, in its category.
        progress: called with (models done, models).
    """
    noisy = training_queries(benchmark, noise)
    evaluator = SplitEvaluator(noisy, SPLIT, before, TokenCache(before.backbone))
    near = _near(evaluator, before, noise.noisy_ids, neighbours)
    found = []
    for done, (name, model) in enumerate(models, start=1):
        ranks = evaluator.evaluate(model, protocol=REFERENCE_REMOVED).ranks
        hits: dict[str, bool] = {}
        for part, stored in zip(evaluator.query_sets, ranks, strict=True):
            target = stored.unpack().target_ranks("removed")
            hits.update(zip(part.queries.triplet_ids, (target < K).tolist(), strict=True))
        wrong = [hit for name_, hit in hits.items() if name_ in noise.noisy_ids]
        close = [hit for name_, hit in hits.items() if name_ in near]
        rest = [hit for name_, hit in hits.items() if name_ not in near and name_ not in noise.noisy_ids]
        found.append(
            Backlash(
                name, _percent(close), _percent(rest), _percent(wrong), (len(close), len(rest), len(wrong))
            )
        )
        if progress is not None:
            progress(done, len(models))
    return found


def nearest_clean(queries: torch.Tensor, wrong: np.ndarray, k: int) -> np.ndarray:
    """Return the rows of clean queries that are among the k nearest of any wrong one, rising.

    Args:
        queries: ``[N, D]`` unit rows.
        wrong: ``[N]`` truth values.
        k: neighbours of a wrong query.
    """
    clean = np.flatnonzero(~wrong)
    if not wrong.any() or not len(clean):
        return np.empty(0, dtype=np.int64)
    cosines = queries[torch.from_numpy(np.flatnonzero(wrong))] @ queries[torch.from_numpy(clean)].T
    return np.unique(clean[cosines.topk(min(k, len(clean)), dim=1).indices.numpy()])


def _near(evaluator: SplitEvaluator, model: Model, noisy: frozenset[str], k: int) -> frozenset[str]:
    found: set[str] = set()
    for part, queries in zip(evaluator.query_sets, evaluator.queries(model), strict=True):
        ids = part.queries.triplet_ids
        wrong = np.array([name in noisy for name in ids], dtype=bool)
        found.update(ids[row] for row in nearest_clean(queries, wrong, k))
    return frozenset(found)


def _percent(hits: Sequence[bool]) -> float:
    return 100 * float(np.mean(hits)) if hits else float("nan")
