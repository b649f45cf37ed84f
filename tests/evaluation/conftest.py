"""Results made of random ranks, without a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from triptych.evaluation.comparison import Result
from triptych.evaluation.protocols import FASHIONIQ, Protocol
from triptych.evaluation.queries import QueryRanks
from triptych.evaluation.report import Evaluation, ModelInfo, NoiseInfo, assemble

MakeResult = Callable[..., Result]


def some_ranks(random: np.random.Generator, category: str, count: int, spread: float) -> QueryRanks:
    reference = random.integers(0, 3, count)
    target = reference + 1 + random.geometric(1 / spread, count)
    return QueryRanks(
        split="val",
        category=category,
        gallery_size=500,
        triplet_ids=tuple(f"{category}.val.{n}" for n in range(count)),
        target=target,
        reference=reference,
        answers=tuple(
            np.array([rank, rank + 5]) if n % 2 else np.empty(0, dtype=np.int64)
            for n, rank in enumerate(target)
        ),
    )


@pytest.fixture(scope="session")
def make_evaluation() -> Callable[..., Evaluation]:
    def make(
        method: str = "intent",
        seed: int = 0,
        spread: float = 20.0,
        ratio: float | None = 0.41,
        protocol: Protocol = FASHIONIQ,
        gallery_hash: str = "ab" * 32,
        **options: Any,
    ) -> Evaluation:
        random = np.random.default_rng([seed, *method.encode()])
        sizes = {"dress": 60, "shirt": 30}
        rows = {
            name: [some_ranks(random, category, count, spread * worse) for category, count in sizes.items()]
            for name, worse in (("composed", 1), ("image-only", 4), ("text-only", 2), ('text "B and A"', 1.2))
        }
        noise = NoiseInfo(name="mix-0.5.json", fingerprint="cd" * 32, kind="mix", ratio=ratio, asked=0.5)
        return assemble(
            rows,
            protocol,
            data="shop",
            gallery_hash=gallery_hash,
            model=ModelInfo(name=f"{method}-{seed}", method=method, backbone="lite", epoch=3, seed=seed),
            noise=None if ratio is None else noise,
            samples=0,
            **options,
        )

    return make


@pytest.fixture(scope="session")
def make_result(make_evaluation: Callable[..., Evaluation]) -> MakeResult:
    def make(
        method: str = "intent", seed: int = 0, settings: dict[str, str] | None = None, **options: Any
    ) -> Result:
        return Result(f"{method}-{seed}", make_evaluation(method, seed, **options), seed, settings or {})

    return make
