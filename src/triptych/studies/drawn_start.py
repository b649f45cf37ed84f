"""Where a study without data of its own starts: a drawn benchmark, and a model that was aligned on its captions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from triptych.training.align import align, read_captions
from triptych.training.model import WEIGHTS
from triptych.triplets import ImageStore
from triptych.triplets.rendered import render_benchmark

Stages = Callable[[str, int, int], None]
"""Called with (what is being done, done, total)."""
ALIGN_BATCH = 64


def drawn_benchmark(path: Path, *, train: int, val: int, seed: int, stages: Stages) -> Path:
    """Draw a benchmark, unless it is there.

    Args:
        path: its folder.
        train: training triplets.
        val: validation queries.
        seed: of the drawing.
        stages: called while pictures are drawn.
    """
    if not path.exists():
        render_benchmark(
            path,
            seed=seed,
            train=train,
            val=val,
            progress=lambda done, total: stages("drawing", done, total),
        )
    return path


def aligned_start(
    target: Path,
    images: ImageStore,
    captions: Path,
    *,
    backbone: Mapping[str, Any],
    epochs: int,
    seed: int,
    stages: Stages,
) -> Path:
    """Align a backbone on captions, unless that was done.

    Args:
        target: the model's folder.
        images: the pictures.
        captions: a table of image id and caption.
        backbone: ``{"name": ..., sizes}``.
        epochs: passes over the captions.
        seed: of the training.
        stages: called with its progress.
    """
    if not (target / WEIGHTS).is_file():
        pairs = read_captions(captions)
        # Few drawn scenes: without the identity term the composition ignores its picture, and INTENT collapses.
        settings = {
            "epochs": epochs,
            "batch_size": min(ALIGN_BATCH, len(pairs)),
            "identity": 1.0,
            "seed": seed,
        }
        align(images, pairs, target, backbone=backbone, settings=settings, stages=stages)
    return target
