"""The official annotations with made-up scores, against plain loops; ranx agrees on recall and mAP.

Scores are quantised, so that ties occur, and are a function of query and image, so that none is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from triptych.evaluation.protocols import CIRCO, CIRR, FASHIONIQ, Protocol, Reference
from triptych.evaluation.queries import evaluate_queries
from triptych.evaluation.report import Row, summarise
from triptych.triplets import QuerySet, read_benchmark

Scores = Callable[[slice, slice], np.ndarray]


def made_up(part: QuerySet, seed: int, levels: int = 4000) -> np.ndarray:
    """Scores ``[N, G]`` with ties, a little better for what is right, best for the reference."""
    random = np.random.default_rng(seed)
    scores = random.random((len(part.queries), len(part.gallery)), dtype=np.float32)
    place = {image: at for at, image in enumerate(part.gallery)}
    for row, query in enumerate(part.queries):
        right = part.answers.get(query.triplet_id, (query.target,))
        for image in right:
            scores[row, place[image]] = 1 - random.random() * 0.05
        scores[row, place[query.reference]] = 0.999
    return np.round(scores * levels) / levels


def plain_loops(
    part: QuerySet, scores: np.ndarray, protocol: Protocol, reference: Reference
) -> dict[str, float]:
    """What the official scripts do, a query at a time: sort, take the reference out, look where the answers are."""
    sums: dict[str, float] = {}
    for row, query in enumerate(part.queries):
        order = np.argsort(-scores[row], kind="stable").tolist()
        ranked = [part.gallery[at] for at in order]
        if reference == "removed":
            ranked = [image for image in ranked if image != query.reference]
        figures = {f"R@{k}": float(query.target in ranked[:k]) for k in protocol.ks}
        if query.group is not None and protocol.subset_ks:
            own = [image for image in ranked if image in query.group]
            figures |= {f"R_sub@{k}": float(query.target in own[:k]) for k in protocol.subset_ks}
        if query.triplet_id in part.answers:
            right = set(part.answers[query.triplet_id])
            for k in protocol.map_ks:
                hits, total = 0, 0.0
                for at, image in enumerate(ranked[:k], start=1):
                    if image in right:
                        hits += 1
                        total += hits / at
                figures[f"mAP@{k}"] = total / min(k, len(right))
        for name, value in figures.items():
            sums[name] = sums.get(name, 0.0) + value
    return {name: 100 * value / len(part.queries) for name, value in sums.items()}


def score_both(
    parts: tuple[QuerySet, ...], protocol: Protocol, budget: int
) -> tuple[Row, Row, list[np.ndarray]]:
    tables = [made_up(part, seed) for seed, part in enumerate(parts)]
    ranks = [
        evaluate_queries(part, lambda q, g, t=table: t[q, g], memory_budget_bytes=budget)
        for part, table in zip(parts, tables, strict=True)
    ]
    rows = {row.reference: row for row in summarise(ranks, protocol, samples=0)}
    return rows["kept"], rows["removed"], tables


@pytest.mark.parametrize(
    ("data", "protocol", "every"), [("fashioniq", FASHIONIQ, 12), ("cirr", CIRR, 8), ("circo", CIRCO, 1)]
)
def test_figures_are_those_of_plain_loops(shared: Path, data: str, protocol: Protocol, every: int) -> None:
    """FashionIQ by each 12th and CIRR by each 8th query of val here, all of them in the slow test."""
    check(shared, data, protocol, every)


@pytest.mark.slow
@pytest.mark.parametrize(("data", "protocol"), [("fashioniq", FASHIONIQ), ("cirr", CIRR)])
def test_figures_of_every_query_are_those_of_plain_loops(shared: Path, data: str, protocol: Protocol) -> None:
    check(shared, data, protocol, 1)


def check(shared: Path, data: str, protocol: Protocol, every: int) -> None:
    found = read_benchmark(shared / "data" / data).splits["val"]
    parts = tuple(
        QuerySet(p.split, p.category, p.queries.take(range(0, len(p.queries), every)), p.gallery, p.answers)
        for p in found
    )
    kept, removed, tables = score_both(parts, protocol, budget=8 * 2**20)
    for row in (kept, removed):
        loops = [plain_loops(part, t, protocol, row.reference) for part, t in zip(parts, tables, strict=True)]
        for part, own in zip(parts, loops, strict=True):
            for metric, value in own.items():
                assert row.categories[part.category][metric] == pytest.approx(value, abs=1e-9), metric
        for metric in loops[0]:
            assert row.mean[metric] == pytest.approx(np.mean([own[metric] for own in loops]), abs=1e-9)
    for name, members in protocol.averages.items():
        assert removed.mean[name] == pytest.approx(np.mean([removed.mean[m] for m in members]))
    assert removed.mean["R@10"] > kept.mean["R@10"] > 0, "the reference was in the way"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ranx_agrees_on_recall_and_map(shared: Path) -> None:
    """ranx divides AP@K by |G|, CIRCO by min(K, |G|): where |G| <= K, as here at 25 and 50, they are the same."""
    ranx = pytest.importorskip("ranx")
    (part,) = read_benchmark(shared / "data" / "circo").splits["val"]
    _, removed, (table,) = score_both((part,), CIRCO, budget=2**28)
    several = {q.triplet_id: dict.fromkeys(part.answers[q.triplet_id], 1) for q in part.queries}
    single = {q.triplet_id: {str(q.target): 1} for q in part.queries}
    ranked = {}
    for row, query in enumerate(part.queries):
        order = [at for at in np.argsort(-table[row], kind="stable") if part.gallery[at] != query.reference][
            :50
        ]
        ranked[query.triplet_id] = {part.gallery[at]: float(60 - place) for place, at in enumerate(order)}
    run = ranx.Run(ranked)
    for k in (25, 50):
        score = ranx.evaluate(ranx.Qrels(several), run, f"map@{k}")
        assert removed.mean[f"mAP@{k}"] == pytest.approx(100 * score, abs=1e-6)
    for k in CIRCO.ks:
        score = ranx.evaluate(ranx.Qrels(single), run, f"recall@{k}")
        assert removed.mean[f"R@{k}"] == pytest.approx(100 * score, abs=1e-6)


def test_semantic_aspects_of_circo(shared: Path) -> None:
    (part,) = read_benchmark(shared / "data" / "circo").splits["val"]
    _, removed, (table,) = score_both((part,), CIRCO, budget=2**28)
    assert len(removed.aspects) == 9
    negated = [at for at, q in enumerate(part.queries) if "negation" in part.aspects[q.triplet_id]]
    only = QuerySet("val", "all", part.queries.take(negated), part.gallery, part.answers)
    loops = plain_loops(only, table[negated], CIRCO, "removed")
    assert removed.aspects["negation"]["mAP@10"] == pytest.approx(loops["mAP@10"])
