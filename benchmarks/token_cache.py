"""What the token cache saves: an epoch that reads image tokens against one that encodes every picture every step.

    python benchmarks/token_cache.py [--triplets 384] [--batch-size 128] [--rounds 2]

Both epochs have the same batches of a rendered benchmark, and in both a step is forward, backward and AdamW of
``infonce`` on backbone lite. The pictures are drawn into a temporary folder. Exits with 1 where the cache gains
less than the promised factor of 5.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from rich.console import Console
from rich.table import Table

from triptych.backbones.base import Backbone
from triptych.backbones.registry import create_backbone
from triptych.backbones.token_cache import TokenCache
from triptych.methods.base import Method, Needs, TripletBatch
from triptych.methods.registry import create as create_method
from triptych.training.loader import TripletLoader
from triptych.triplets import read_benchmark
from triptych.triplets.rendered import render_benchmark

PROMISED = 5.0


def encoded(batch: TripletBatch, backbone: Backbone) -> TripletBatch:
    """Give a batch the tokens of its pixels."""
    assert batch.reference_pixels is not None
    assert batch.target_pixels is not None
    return dataclasses.replace(
        batch,
        reference_tokens=backbone.encode_images(batch.reference_pixels),
        target_tokens=backbone.encode_images(batch.target_pixels),
    )


def epoch_seconds(loader: TripletLoader, backbone: Backbone, method: Method, *, encode: bool) -> float:
    """Train an epoch and time it."""
    optimizer = torch.optim.AdamW([value for value in backbone.parameters() if value.requires_grad], lr=1e-4)
    needs: frozenset[Needs] = frozenset({"pixels"} if encode else ())
    start = time.perf_counter()
    for batch in loader.epoch(0, 0, needs):
        loss = method.losses(encoded(batch, backbone) if encode else batch, backbone).total()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--triplets", type=int, default=384)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument(
        "--rounds", type=int, default=2, help="epochs of each kind, in turn; the fastest counts"
    )
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        render_benchmark(Path(folder) / "data", train=options.triplets, val=3)
        data = read_benchmark(Path(folder) / "data")
        backbone = create_backbone({"name": "lite"}).train()
        method = create_method("infonce", {}, backbone.shape)
        cache = TokenCache(backbone, Path(folder) / "cache")
        start = time.perf_counter()
        keys = cache.add_images(data.images, data.train.image_ids(), backbone)
        build = time.perf_counter() - start
        loader = TripletLoader(
            data.train,
            cache,
            keys,
            data.images,
            backbone,
            batch_size=options.batch_size,
            captions="fixed",
            seed=0,
        )
        backbone.prepare_texts(loader.texts(0))
        taken: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(options.rounds):
            for encode, seconds in taken.items():
                seconds.append(epoch_seconds(loader, backbone, method, encode=encode))

    cached, every_step = min(taken[False]), min(taken[True])
    ratio = every_step / cached
    triplets = loader.steps_per_epoch * options.batch_size
    table = Table(
        title=f"{triplets} triplets, batches of {options.batch_size}; {platform.processor() or platform.machine()}, "
        f"{os.cpu_count()} CPUs, {torch.get_num_threads()} torch threads"
    )
    for heading in ("an epoch that ...", "seconds", "triplets/s"):
        table.add_column(heading, justify="left" if heading.startswith("an") else "right")
    for name, taken_s in (("reads cached tokens", cached), ("encodes every picture", every_step)):
        table.add_row(name, f"{taken_s:.2f}", f"{triplets / taken_s:.0f}")
    console = Console()
    console.print(table)
    console.print(f"building the cache, once: {build:.1f} s for {len(cache)} pictures")
    console.print(f"the cache makes an epoch {ratio:.1f} times faster (promised: {PROMISED:.0f})")
    sys.exit(0 if ratio >= PROMISED else 1)


if __name__ == "__main__":
    main()
