"""A model's answers for the server of CIRR or CIRCO."""

from __future__ import annotations

from pathlib import Path

from triptych.backbones.token_cache import Progress, TokenCache
from triptych.evaluation.ranking import MEMORY_BUDGET_BYTES
from triptych.evaluation.submission import NUM_NAMES, check_can_submit, write_submission
from triptych.training.evaluate import SplitEvaluator
from triptych.training.source import Source, open_model
from triptych.training.splits import check_pictures, find_split
from triptych.triplets import Benchmark, read_benchmark
from triptych.triplets.text import CaptionMode, TextStyle


def submit(
    model: Source,
    data: Benchmark | str | Path,
    folder: str | Path,
    *,
    split: str,
    checkpoint: str = "best",
    captions: CaptionMode = "fixed",
    style: TextStyle = "strip_join",
    memory_budget_bytes: int = MEMORY_BUDGET_BYTES,
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> tuple[Path, ...]:
    """Rank a split, its references taken out, and write the files that the server scores.

    Args:
        model: a run, the folder of a run or a model, or a loaded model.
        data: CIRR or CIRCO, or its path.
        folder: where the files go.
        split: such as ``test1`` (CIRR) or ``test`` (CIRCO).
        checkpoint: ``best`` or ``last`` model of a run.
        captions: how the captions of a query are joined.
        style: how each is cleaned first.
        memory_budget_bytes: what the ranking may hold at once.
        cache: the token cache's folder; by default the user's cache folder.
        progress: called with (done, total) while image tokens are computed.

    Returns:
        The files: two for CIRR, one for CIRCO.

    Raises:
        UsageError: the data has no server, or model, split or checkpoint do not exist.
        DataError: the model or the data cannot be used.
    """
    benchmark = data if isinstance(data, Benchmark) else read_benchmark(data)
    check_can_submit(benchmark)
    find_split(benchmark, split)
    check_pictures(benchmark, split)
    opened = open_model(model, checkpoint=checkpoint)
    tokens = TokenCache(opened.model.backbone, Path(cache) if cache else None)
    evaluator = SplitEvaluator(
        benchmark, split, opened.model, tokens, progress, captions=captions, style=style
    )
    rankings = evaluator.top(opened.model, NUM_NAMES["recall"], memory_budget_bytes=memory_budget_bytes)
    return write_submission(Path(folder), benchmark, split, rankings)
