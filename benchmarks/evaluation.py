"""What scoring costs at the official sizes, from ready features: FashionIQ val, CIRR val, and a gallery of 100,000.

    OMP_NUM_THREADS=2 python benchmarks/evaluation.py [--memory-mb 256] [--large 100000] [--budgets]

Features are random unit rows in the shape of BLIP-2 (32 tokens of 256 dimensions an image, float16 in memory as a
store would map them). Everything that an evaluation does is timed: scores, ranks of targets, references and right
answers, recall under both conventions, 1,000 bootstrap draws. Beside the seconds stand those that the processor
worked, which a busy machine does not lengthen as much. The promise: 6,016 FashionIQ queries against their galleries
and 4,181 CIRR queries against 2,297 images in under 20 s and under 2 GB on 2 cores, and memory that a setting bounds.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch

from triptych.evaluation import FASHIONIQ, ModelInfo, Protocol, assemble, evaluate_queries
from triptych.evaluation.protocols import CIRR
from triptych.training.evaluate import scorer
from triptych.triplets.benchmark import QuerySet
from triptych.triplets.table import Triplet, TripletTable

FASHIONIQ_VAL = {"dress": (2017, 3817), "shirt": (2038, 6346), "toptee": (1961, 5373)}
CIRR_VAL = {"all": (4181, 2297)}


@dataclass(frozen=True)
class Case:
    """One benchmark: category to (queries, gallery)."""

    name: str
    protocol: Protocol
    sizes: dict[str, tuple[int, int]]


def made_up(category: str, queries: int, gallery: int, *, subsets: bool) -> QuerySet:
    """Make queries with random references, targets and, for CIRR, subsets of six."""
    rng = np.random.default_rng(0)
    names = tuple(f"{category}-{number}" for number in range(gallery))
    rows = []
    for number in range(queries):
        picked = [names[at] for at in rng.choice(gallery, 6, replace=False)]
        rows.append(
            Triplet(
                triplet_id=f"{category}/{number}",
                reference=picked[0],
                captions=("is red", "has a collar"),
                target=picked[1],
                category=category,
                group=tuple(picked) if subsets else None,
            )
        )
    return QuerySet("val", category, TripletTable.from_triplets(rows), names)


def unit(*size: int) -> torch.Tensor:
    """Draw unit rows."""
    drawn = torch.randn(*size, generator=torch.Generator().manual_seed(0))
    return torch.nn.functional.normalize(drawn, dim=-1)


def gallery_of(images: int, tokens: int, dim: int) -> torch.Tensor:
    """Draw gallery features in float16, in parts, so that drawing them is no peak."""
    whole = torch.empty(images, tokens, dim, dtype=torch.float16)
    for start in range(0, images, 4096):
        part = whole[start : start + 4096]
        part.copy_(unit(*part.shape))
    return whole


def score_case(case: Case, tokens: int, dim: int, budget: int) -> tuple[float, float, int, float]:
    """Return (seconds of scoring, those of the processor, queries, R@10); drawing features is not counted."""
    seconds, worked, results, queries_scored = 0.0, 0.0, [], 0
    for category, (queries, gallery) in case.sizes.items():
        part = made_up(category, queries, gallery, subsets=case.protocol is CIRR)
        vectors, targets = unit(queries, dim), gallery_of(gallery, tokens, dim)
        widened = scorer(vectors, targets)
        started, busy = time.perf_counter(), time.process_time()
        results.append(
            evaluate_queries(part, widened, memory_budget_bytes=budget, bytes_per_score=4 * tokens)
        )
        seconds += time.perf_counter() - started
        worked += time.process_time() - busy
        queries_scored += queries
    started, busy = time.perf_counter(), time.process_time()
    model = ModelInfo(name="random", method="none", backbone="none")
    report = assemble({"composed": results}, case.protocol, data=case.name, gallery_hash="", model=model)
    seconds += time.perf_counter() - started
    worked += time.process_time() - busy
    return seconds, worked, queries_scored, report.row().mean["R@10"]


def peak_mb() -> float:
    """Return the highest resident memory so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def run_apart(work: Sequence[object]) -> tuple[float, float, int, float, float, float]:
    """Score in a process of its own, whose peak memory is its own; returns also the peak before and after."""
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        found: tuple[float, float, int, float, float, float] = pool.apply(_apart, tuple(work))
    return found


def _apart(
    case: Case, tokens: int, dim: int, budget: int, threads: int
) -> tuple[float, float, int, float, float, float]:
    torch.set_num_threads(threads)
    before = peak_mb()
    return (*score_case(case, tokens, dim, budget), before, peak_mb())


def main() -> None:
    """Score every case and print a line each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--memory-mb", type=int, default=256, help="what the ranking may hold at once, MiB")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument(
        "--large", type=int, default=100_000, help="images of the large gallery; 0 leaves it out"
    )
    parser.add_argument("--large-queries", type=int, default=200)
    parser.add_argument("--budgets", action="store_true", help="FashionIQ again with 32 and 1024 MiB")
    options = parser.parse_args()
    cases = [Case("FashionIQ val", FASHIONIQ, FASHIONIQ_VAL), Case("CIRR val", CIRR, CIRR_VAL)]
    if options.large:
        size = {"all": (options.large_queries, options.large)}
        cases.append(Case(f"{options.large:,} images", FASHIONIQ, size))
    work = [(case, options.memory_mb) for case in cases]
    if options.budgets:
        work += [(cases[0], budget) for budget in (32, 1024)]
    print(f"{options.tokens} tokens of {options.dim} an image, {options.threads} threads")
    total = worked_in_all = 0.0
    for case, budget in work:
        arguments = (case, options.tokens, options.dim, budget * 2**20, options.threads)
        seconds, worked, queries, recall, before, peak = run_apart(arguments)
        print(
            f"{case.name:<15} budget {budget:>5} MiB  {queries:>6,} queries  {seconds:>6.1f} s"
            f" ({worked:.1f} s of the processor)  peak RSS {peak:,.0f} MB ({before:,.0f} at the start)"
            f"  R@10 {recall:.1f}",
            flush=True,
        )
        if case in cases[:2] and budget == options.memory_mb:
            total, worked_in_all = total + seconds, worked_in_all + worked
    print(f"FashionIQ val and CIRR val together: {total:.1f} s ({worked_in_all:.1f} s of the processor)")


if __name__ == "__main__":
    main()
