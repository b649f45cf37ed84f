"""Measures what a method costs to train and to ask, in a process of its own.

``python -m triptych.studies.measure_cost REQUEST`` reads a request as JSON and prints the result as JSON. Pictures are
random; a cost does not hang on what they show.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field

from triptych.backbones.registry import create_backbone
from triptych.methods.base import TripletBatch
from triptych.objectives.similarity import similarity
from triptych.training.model import Model, build_method
from triptych.training.pass_trace import LATE, begin_epoch, made_up_batch

WARM_UP = 20
"""Queries that are not counted (specification 2.7)."""


class Request(BaseModel):
    """What is measured, and how."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: dict[str, Any]
    backbone: dict[str, Any]
    batch_size: int = Field(128, ge=2, description="triplets a step")
    steps: int = Field(50, ge=1, description="training steps that are timed in each phase")
    queries: int = Field(200, ge=32, description="queries that are timed")
    gallery: int = Field(
        2297, ge=1, description="images that each query is scored against; CIRR val has 2,297"
    )
    live: bool = Field(True, description="encode pictures in every step; else their tokens are there")
    precision: str = Field("no", description="autocast: no, bf16 or fp16")


class Measured(BaseModel):
    """What was found; seconds, bytes.

    ``phases`` holds the median seconds of a training step in the first and in a late epoch, ``queries`` the mean
    seconds of a query by batch size. ``memory_bytes`` is the peak: allocated on a GPU, else of the whole process.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    device: str
    phases: tuple[float, float]
    memory_bytes: int
    queries: dict[str, float]


def measure_cost(request: Request) -> Measured:
    """Train some steps in the first and in a late epoch, then ask queries; one after the other."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    backbone = create_backbone(request.backbone, seed=0).to(device)
    method = build_method(request.method, backbone).to(device)
    batch = _on(made_up_batch(backbone.shape, request.batch_size), device)
    backbone.prepare_texts([*batch.texts, *method.reads(0, batch.texts)])
    method.remember(batch.triplet_ids)
    parameters = [value for part in (backbone, method) for value in part.parameters() if value.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-6)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(request.precision)

    def step() -> None:
        given = batch
        if request.live:
            assert batch.reference_pixels is not None
            assert batch.target_pixels is not None
            given = replace(
                batch,
                reference_tokens=backbone.encode_images(batch.reference_pixels),
                target_tokens=backbone.encode_images(batch.target_pixels),
            )
        with torch.autocast(device, dtype or torch.bfloat16, enabled=dtype is not None):
            total = method.losses(given, backbone).total()
        optimizer.zero_grad()
        torch.autograd.backward(total)
        optimizer.step()

    phases = []
    for epoch in range(LATE + 1):
        begin_epoch(method, backbone, batch, epoch)
        if epoch in (0, LATE - 1):
            step()  # warms up, and gives something to remember
        if epoch in (0, LATE):
            phases.append(statistics.median(_seconds(step, device) for _ in range(request.steps)))
    memory = _peak_bytes(device)
    optimizer.zero_grad()
    backbone.eval()
    method.eval()
    model = Model(backbone, method, {}, {})
    return Measured(
        device=device if device == "cpu" else torch.cuda.get_device_name(),
        phases=(phases[0], phases[1]),
        memory_bytes=memory,
        queries={str(size): _query_seconds(model, request, size, device) for size in (1, 32)},
    )


@torch.inference_mode()
def _query_seconds(model: Model, request: Request, size: int, device: str) -> float:
    """Return the mean seconds of a query: tower, composition and scoring, ``size`` at once."""
    backbone = model.backbone
    made = made_up_batch(backbone.shape, size)
    assert made.reference_pixels is not None
    pixels, texts = made.reference_pixels.to(device), list(made.texts)
    backbone.prepare_texts(texts)
    one = model.embed_targets(backbone.encode_images(pixels[:1]))
    gallery = one.expand(request.gallery, -1, -1).contiguous()

    def ask() -> None:
        similarity(model.embed_queries(backbone.encode_images(pixels), texts), gallery)

    for _ in range(-(-WARM_UP // size)):
        ask()
    rounds = -(-request.queries // size)
    return sum(_seconds(ask, device) for _ in range(rounds)) / (rounds * size)


def _seconds(call: Callable[[], None], device: str) -> float:
    def now() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    started = now()
    call()
    return now() - started


def _peak_bytes(device: str) -> int:
    if device == "cuda":
        return int(torch.cuda.max_memory_allocated())
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _on(batch: TripletBatch, device: str) -> TripletBatch:
    moved: dict[str, Any] = {
        name: value.to(device) for name, value in vars(batch).items() if isinstance(value, torch.Tensor)
    }
    return replace(batch, **moved)


if __name__ == "__main__":
    print(json.dumps(measure_cost(Request.model_validate_json(sys.argv[1])).model_dump()))
