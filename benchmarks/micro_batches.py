"""Peak memory of a training step by micro-batches: the whole batch at once against parts of it, and the gradients.

    python benchmarks/micro_batches.py [--batch-size 64] [--micro-batch 16] [--micro-batch 4]

A step (forward, backward) of a method on BLIP-2's Q-Former with random weights and random tokens, without dropout.
Each row is a process of its own; its memory is what the step takes above what the process held before it, gradients
included there (on a GPU what torch allocates, else resident memory, Linux only). "planned" is what `triptych plan`
counts as activations.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from safetensors.torch import load_file, save_file

from triptych.backbones.registry import create_backbone
from triptych.files import readable_size
from triptych.methods.base import TripletBatch
from triptych.methods.registry import create as create_method
from triptych.training.learner import Learner
from triptych.training.plan import Options, Planner
from triptych.training.processes import Processes

SIZES = {
    "image_size": 224, "image_width": 512, "vision_layers": 1, "vision_heads": 8, "vision_intermediate": 512,
    "queries": 32, "hidden": 384, "layers": 6, "heads": 6, "intermediate": 1536, "dim": 256, "dropout": 0.0,
}  # fmt: skip
TEXT = (
    "the same but longer and in a darker red with a wide collar and without any stripes on the sleeves please"
)


def status(name: str) -> int:
    """Read a figure of this process, in bytes."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def settings(chosen: dict[str, Any]) -> dict[str, Any]:
    """Return the backbone's settings: the default sizes, changed."""
    return {"name": "blip2", "weights": None, "sizes": {**SIZES, **chosen}}


def step(options: argparse.Namespace, micro_batch: int | None, out: Path) -> dict[str, Any]:
    """Run two steps; return the second one's memory and seconds, and write its gradients."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    backbone = create_backbone(settings(json.loads(options.sizes))).to(device)
    method = create_method(options.method, {}, backbone.shape).to(device)
    learner, shape, size = Learner(backbone, method).train(), backbone.shape, options.batch_size
    if micro_batch is not None:
        learner.split(Processes(device=device), micro_batch)
    draws = torch.Generator().manual_seed(0)
    tokens = [torch.randn(size, shape.image_tokens, shape.image_width, generator=draws) for _ in range(3)]
    batch = TripletBatch(
        triplet_ids=tuple(map(str, range(size))),
        texts=tuple(f"{row} {TEXT}" for row in range(size)),
        reference_tokens=tokens[0].to(device),
        target_tokens=tokens[1].to(device),
        generator=torch.Generator().manual_seed(0),
        counterfactual_tokens=tokens[2].to(device),
    )
    method.remember(batch.triplet_ids)
    few = {name: value[:2] for name, value in vars(batch).items() if isinstance(value, torch.Tensor | tuple)}
    small = replace(batch, **few)
    torch.manual_seed(0)
    learner(small).total().backward()  # gradients and code are there from now on
    for value in learner.parameters():
        if value.grad is not None:
            value.grad.zero_()
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    else:
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak
        before = status("VmRSS")
    began = time.perf_counter()
    torch.manual_seed(0)
    loss = learner(batch).total()
    loss.backward()
    if device.type == "cuda":
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated()
    else:
        peak = status("VmHWM")
    seconds = time.perf_counter() - began
    gradients = {n: v.grad.cpu() for n, v in learner.named_parameters() if v.grad is not None}
    save_file(gradients, out)
    return {"bytes": peak - before, "seconds": seconds, "loss": float(loss.detach())}


def difference(one: Path, other: Path) -> float:
    """Return the length of the gradients' difference over their length."""
    left, right = load_file(one), load_file(other)
    apart = sum(float((left[name] - right[name]).double().square().sum()) for name in left)
    return float((apart / sum(float(value.double().square().sum()) for value in left.values())) ** 0.5)


def planned(options: argparse.Namespace, micro_batch: int | None) -> float:
    """Return what `triptych plan` counts as activations."""
    chosen = Options(
        batch_size=options.batch_size,
        micro_batch=micro_batch,
        device="cuda" if torch.cuda.is_available() else "cpu",
    )
    method = {"name": options.method, **({"counterfactual_bank": 4} if options.method == "intent" else {})}
    planner = Planner(settings(json.loads(options.sizes)), method, chosen)
    return planner.memory(chosen).activations


def main() -> None:
    """Measure each in a process of its own, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--micro-batch", type=int, action="append", help="default: 16 and 4")
    parser.add_argument("--method", default="infonce")
    parser.add_argument("--sizes", default="{}", help="JSON: sizes of BLIP-2 that differ from this script's")
    parser.add_argument("--out", type=Path, help="JSON of the figures")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        name, out = options.row.split(":", 1)
        print(json.dumps(step(options, None if name == "all" else int(name), Path(out))))
        return
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for micro_batch in (None, *(options.micro_batch or (16, 4))):
            out = Path(folder) / f"{micro_batch}.safetensors"
            command = [
                sys.executable, __file__, "--batch-size", str(options.batch_size), "--method", options.method,
                "--sizes", options.sizes, "--row", f"{micro_batch or 'all'}:{out}",
            ]  # fmt: skip
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            row = json.loads(done.stdout.splitlines()[-1])
            row |= {"micro_batch": micro_batch, "planned": planned(options, micro_batch)}
            row["gradient_difference"] = difference(Path(folder) / "None.safetensors", out)
            row["ratio"] = (rows[0] if rows else row)["bytes"] / row["bytes"]
            rows.append(row)
    if options.out:
        options.out.write_text(json.dumps(rows, indent=2), encoding="utf-8")
    table = Table(title=f"A step of {options.method}, batch {options.batch_size}")
    for column in ("at once", "memory", "whole / this", "planned", "seconds", "loss", "gradient apart by"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            str(row["micro_batch"] or options.batch_size),
            readable_size(row["bytes"]),
            f"{row['ratio']:.1f}",
            readable_size(row["planned"]),
            f"{row['seconds']:.1f}",
            f"{row['loss']:.6f}",
            f"{row['gradient_difference']:.1e}",
        )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
