"""A training step of each method at full size: live against cached vision tokens, memory, and the tower's images/s.

    python benchmarks/gpu_step.py [--batch-size 128] [--precision bf16] [--out gpu_step.json]
    python benchmarks/gpu_step.py --tiny --device cpu

BLIP-2 with random weights; a step is forward, backward, clipping and AdamW. Live: reference and target pictures (and
counterfactuals) are encoded in the step. Cached: their tokens lie in pinned memory, as the token cache gives them, and
are copied in the step; intent reads its counterfactuals from a bank. Target: intent's cached step takes at most a third
of the live one; exits with 1 where it does not on a GPU. A method that fails, as for memory, is reported, and the
others go on; after --budget seconds no further method is begun.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from triptych.backbones.base import Backbone
from triptych.backbones.registry import create_backbone
from triptych.files import write_json
from triptych.methods import registry
from triptych.methods.base import TripletBatch

PROMISED = 3.0
EPOCH = 0
WORDS = (
    "make it red",
    "the same but longer and with a wide collar",
    "without stripes",
    "darker, and smaller",
)
TINY = {
    "image_size": 28, "image_width": 16, "vision_layers": 2, "vision_heads": 2, "vision_intermediate": 32,
    "queries": 4, "hidden": 24, "layers": 2, "heads": 2, "intermediate": 48, "dim": 8,
}  # fmt: skip


@dataclass
class Context:
    """What a method may ask at the start of an epoch."""

    backbone: Backbone
    batch: TripletBatch
    epoch: int = EPOCH
    epochs: int = 12
    seed: int = 0
    resumed: bool = False

    def scoring(self) -> Iterator[TripletBatch]:
        """Yield the triplets once."""
        return iter([self.batch])


class Machine:
    """The device, its clock and its memory."""

    def __init__(self, device: str, precision: str) -> None:
        self.device, self.gpu = torch.device(device), device.startswith("cuda")
        self.dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)

    def now(self) -> float:
        """Return the time when all that was begun is done."""
        if self.gpu:
            torch.cuda.synchronize()
        return time.perf_counter()

    def autocast(self) -> Any:
        """Cast as training does."""
        return torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype is not None)

    def peak(self) -> int:
        """Return the most memory since :meth:`forget`; 0 on a CPU."""
        return torch.cuda.max_memory_allocated() if self.gpu else 0

    def forget(self) -> None:
        """Begin to measure memory anew."""
        gc.collect()
        if self.gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def held(self, tensor: Tensor) -> Tensor:
        """Put a tensor where batches wait."""
        return tensor.pin_memory() if self.gpu else tensor


def step_seconds(
    machine: Machine, backbone: Backbone, name: str, batch: TripletBatch, *, live: bool, steps: int
) -> tuple[float, int]:
    """Train some steps of a method; return the median of their seconds and the peak of memory."""
    switches = {"counterfactual_bank": 4} if name == "intent" and not live else {}
    method = registry.create(name, switches, backbone.shape).to(machine.device)
    method.remember(batch.triplet_ids)
    machine.forget()
    if method.memory is not None:
        method.memory.begin_epoch(EPOCH, resumed=False)
    on_device = replace(
        batch,
        reference_tokens=batch.reference_tokens.to(machine.device).float(),
        target_tokens=batch.target_tokens.to(machine.device).float(),
    )
    backbone.eval()
    with torch.no_grad(), machine.autocast():
        method.begin_epoch(Context(backbone, on_device))
    del on_device
    backbone.train()
    method.train()
    parameters = [p for p in (*backbone.parameters(), *method.parameters()) if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-6)
    needs, seconds = method.needs(EPOCH), []
    for _ in range(steps + 1):
        started = machine.now()
        ready = _ready(machine, backbone, batch, live=live, pixels=live or "pixels" in needs)
        with machine.autocast():
            total = method.losses(ready, backbone).total()
        torch.autograd.backward(total)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        del ready, total
        seconds.append(machine.now() - started)
    peak = machine.peak()
    for value in parameters:
        value.grad = None
    return statistics.median(seconds[1:]), peak


def _ready(
    machine: Machine, backbone: Backbone, batch: TripletBatch, *, live: bool, pixels: bool
) -> TripletBatch:
    def moved(value: Tensor | None) -> Tensor | None:
        return None if value is None else value.to(machine.device, non_blocking=True).float()

    reference = moved(batch.reference_pixels) if pixels else None
    target = moved(batch.target_pixels) if pixels else None
    if live:
        assert reference is not None
        assert target is not None
        tokens = backbone.encode_images(reference), backbone.encode_images(target)
    else:
        found = moved(batch.reference_tokens), moved(batch.target_tokens)
        assert found[0] is not None
        assert found[1] is not None
        tokens = found[0], found[1]
    return replace(
        batch,
        reference_tokens=tokens[0],
        target_tokens=tokens[1],
        counterfactual_tokens=None if live else moved(batch.counterfactual_tokens),
        reference_pixels=reference,
        target_pixels=target,
    )


def make_batch(machine: Machine, backbone: Backbone, size: int) -> TripletBatch:
    """Make a batch with everything a method may ask, in half precision, waiting on the CPU."""
    shape, draws = backbone.shape, torch.Generator().manual_seed(0)

    def random(*sizes: int) -> Tensor:
        return machine.held(torch.rand(size, *sizes, generator=draws).half())

    tokens = (shape.image_tokens, shape.image_width)
    pixels = (3, shape.image_size, shape.image_size)
    return TripletBatch(
        triplet_ids=tuple(map(str, range(size))),
        texts=tuple(WORDS[row % len(WORDS)] for row in range(size)),
        reference_tokens=random(*tokens),
        target_tokens=random(*tokens),
        generator=torch.Generator().manual_seed(0),
        reference_pixels=random(*pixels),
        target_pixels=random(*pixels),
        counterfactual_tokens=random(*tokens),
    )


def images_a_second(machine: Machine, backbone: Backbone, size: int, rounds: int = 3) -> float:
    """Time the vision tower alone."""
    side = backbone.shape.image_size
    pixels = torch.rand(size, 3, side, side, device=machine.device)
    backbone.encode_images(pixels)
    started = machine.now()
    for _ in range(rounds):
        backbone.encode_images(pixels)
    return rounds * size / (machine.now() - started)


def main() -> None:
    """Time all methods, print a table, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--precision", choices=("no", "bf16", "fp16"), default="bf16")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--method", action="append")
    parser.add_argument("--budget", type=float, default=240, help="seconds after which no method is begun")
    parser.add_argument("--tiny", action="store_true", help="a very small model, to try the script")
    parser.add_argument("--out", type=Path, default=Path("gpu_step.json"))
    options = parser.parse_args()
    begun = time.perf_counter()
    machine = Machine(options.device, options.precision)
    sizes = {"sizes": TINY} if options.tiny else {}
    with machine.device:
        backbone = create_backbone({"name": "blip2", "weights": None, **sizes})
    backbone.to(machine.device)
    batch = make_batch(machine, backbone, options.batch_size)
    rate = images_a_second(machine, backbone, options.batch_size)

    names = options.method or ["intent", *(name for name in registry.names() if name != "intent")]
    rows: list[dict[str, Any]] = []
    for name in names:
        if time.perf_counter() - begun > options.budget:
            rows.append({"method": name, "error": "not begun: the time was over"})
            continue
        row: dict[str, Any] = {"method": name}
        try:
            for kind in ("cached", "live"):
                seconds, peak = step_seconds(
                    machine, backbone, name, batch, live=kind == "live", steps=options.steps
                )
                row |= {f"{kind}_seconds": seconds, f"{kind}_bytes": peak}
            row["ratio"] = row["live_seconds"] / row["cached_seconds"]
        except Exception as error:  # the other methods are worth their figures
            row["error"] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        rows.append(row)

    device = torch.cuda.get_device_name() if machine.gpu else "CPU"
    write_json(
        options.out,
        {
            "device": device,
            "batch_size": options.batch_size,
            "precision": options.precision,
            "tiny": options.tiny,
            "tower_images_a_second": rate,
            "methods": rows,
        },
    )
    table = Table(
        title=f"A step, B = {options.batch_size}, {options.precision}, {device}; tower {rate:,.0f} images/s"
    )
    for column in ("method", "cached ms", "live ms", "live / cached", "cached GB", "live GB", "note"):
        table.add_column(column, justify="left" if column in ("method", "note") else "right")
    for row in rows:
        figures = (
            f"{scale * row[key]:.{digits}f}" if key in row else "-"
            for key, scale, digits in (
                ("cached_seconds", 1e3, 1), ("live_seconds", 1e3, 1), ("ratio", 1, 2),
                ("cached_bytes", 1e-9, 1), ("live_bytes", 1e-9, 1),
            )
        )  # fmt: skip
        table.add_row(row["method"], *figures, row.get("error", ""))
    console = Console(width=140)
    console.print(table)
    ratio = next((row.get("ratio") for row in rows if row["method"] == "intent"), None)
    if ratio is not None:
        console.print(
            f"intent: a cached step is {ratio:.2f} times faster than a live one (target {PROMISED:.0f})"
        )
    console.print(json.dumps({"out": str(options.out)}))
    sys.exit(1 if machine.gpu and not options.tiny and (ratio is None or ratio < PROMISED) else 0)


if __name__ == "__main__":
    main()
