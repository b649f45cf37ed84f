"""What a whole training step of each method costs on backbone lite with cached tokens, against ``infonce``.

    python benchmarks/method_steps.py [--batch-size 128] [--steps 9]

A step is forward, backward, clipping and AdamW. The steps of all methods alternate, so that a busy machine slows
all alike; the median counts. A pass is one row of the batch through the Q-Former, B times: texts of mixed length go
through it in groups, so calls would say little. ``infonce`` has two, one for the query and one for the target, which is
the cheaper: it reads no words. As passes differ in length, the passes of a step are also run alone: the same calls of
the Q-Former with the same inputs, forward and backward, in turn with the steps; SSN's own fusion layer, which is as
large, is run with them. The promise: a method with one query pass costs at most 1.3 times ``infonce``; another costs
as many times ``infonce`` as its passes alone do, and the same 0.3 for its losses.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from triptych.backbones.registry import create_backbone
from triptych.methods import registry
from triptych.methods.base import Method, TripletBatch
from triptych.methods.layers import ssn_fusion
from triptych.methods.layers.attention import encode_at

WORDS = (
    "make it red",
    "the same but longer and with a wide collar",
    "without stripes",
    "a darker blue, and smaller",
)
SETTINGS: dict[str, dict[str, Any]] = {"intent": {"counterfactual_bank": 4}}
LATE = 9
"""An epoch in which every phase has begun."""


@dataclass
class Context:
    """What a method may ask at the start of an epoch."""

    backbone: Any
    batches: list[TripletBatch]
    epoch: int = 0
    epochs: int = 12
    seed: int = 0
    resumed: bool = False

    def scoring(self) -> Iterator[TripletBatch]:
        """Yield the triplets once."""
        return iter(self.batches)


class Contestant:
    """A method with a backbone and an optimiser of its own."""

    def __init__(self, name: str, batches: list[TripletBatch]) -> None:
        self.backbone = create_backbone({"name": "lite"}, seed=0)
        self.backbone.prepare_texts(WORDS)
        self.method: Method = registry.create(name, SETTINGS.get(name), self.backbone.shape)
        self.rows = 0
        self.recording = False
        self.seconds: list[float] = []
        self.alone: list[float] = []
        self.passes: list[Callable[[], Tensor]] = []
        self.qformer = self.backbone.get_submodule("qformer")
        self.qformer.register_forward_hook(self._count, with_kwargs=True)
        self.method.remember([name for batch in batches for name in batch.triplet_ids])
        for epoch in range(LATE + 1):
            if self.method.memory is not None:
                self.method.memory.begin_epoch(epoch, resumed=False)
            with torch.no_grad():
                self.backbone.eval()
                self.method.begin_epoch(Context(self.backbone, batches, epoch))
            if epoch in (0, LATE - 1):  # something to remember
                for batch in batches:
                    self.method.losses(batch, self.backbone)
        self.backbone.train()
        self.method.train()
        parameters = [*self.backbone.parameters(), *self.method.parameters()]
        self.parameters = [value for value in parameters if value.requires_grad]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4)

    def step(self, batch: TripletBatch) -> None:
        """Train a step and time it."""
        self.rows, self.passes, self.recording = 0, [], True
        started = time.perf_counter()
        with patch.object(ssn_fusion, "encode_at", self._fuse):
            total = self.method.losses(batch, self.backbone).total()
        self.optimizer.zero_grad()
        torch.autograd.backward(total)
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.seconds.append(time.perf_counter() - started)

    def run_passes(self) -> None:
        """Run the passes of the last step once more, forward and backward, and time them."""
        recorded, self.recording = [*self.passes], False
        started = time.perf_counter()
        results = [run() for run in recorded]
        trained = [result for result in results if result.requires_grad]
        torch.autograd.backward(trained, [torch.randn_like(result) for result in trained])
        self.alone.append(time.perf_counter() - started)

    def _count(self, _module: Any, _inputs: Any, named: dict[str, Any], output: Any) -> None:
        if not self.recording:
            return
        self.rows += len(output.last_hidden_state)
        self._record(lambda **inputs: self.qformer(**inputs).last_hidden_state, named)

    def _fuse(self, *inputs: Any) -> Tensor:
        if self.recording:
            self._record(
                lambda **named: encode_at(*named.values()),
                {str(place): each for place, each in enumerate(inputs)},
            )
        return encode_at(*inputs)

    def _record(self, run: Callable[..., Tensor], named: Mapping[str, Any]) -> None:
        """Keep a call with the inputs it had; those that had a gradient get one again."""
        trained, given = torch.is_grad_enabled(), dict(named)

        def again() -> Tensor:
            inputs = {
                key: _leaf(value) if isinstance(value, Tensor) else value for key, value in given.items()
            }
            with torch.set_grad_enabled(trained):
                return run(**inputs)

        self.passes.append(again)


def _leaf(value: Tensor) -> Tensor:
    return value.detach().requires_grad_(value.requires_grad)


def make_batches(count: int, size: int) -> list[TripletBatch]:
    """Make batches of random tokens in lite's shape."""
    draws = torch.Generator().manual_seed(0)
    batches = []
    for number in range(count):
        reference, target, altered = torch.randn(3, size, 25, 256, generator=draws)
        batches.append(
            TripletBatch(
                triplet_ids=tuple(f"{number}-{row}" for row in range(size)),
                texts=tuple(WORDS[row % len(WORDS)] for row in range(size)),
                reference_tokens=reference,
                target_tokens=target,
                generator=torch.Generator().manual_seed(number),
                counterfactual_tokens=altered,
                step=number,
            )
        )
    return batches


def main() -> None:
    """Time all methods and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--method", action="append")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    batches = make_batches(2, options.batch_size)
    names = ["infonce", *(name for name in options.method or registry.names() if name != "infonce")]
    contestants = {name: Contestant(name, batches) for name in names}
    for round_ in range(options.steps + 1):  # the first warms up
        for contestant in contestants.values():
            contestant.step(batches[round_ % len(batches)])
            contestant.run_passes()

    medians = {name: statistics.median(each.seconds[1:]) for name, each in contestants.items()}
    alone = {name: statistics.median(each.alone[1:]) for name, each in contestants.items()}
    table = Table(
        title=f"One step, B = {options.batch_size}, {options.threads} threads, median of {options.steps}"
    )
    for column in (
        "method",
        "Q-Former passes",
        "passes / infonce",
        "ms alone",
        "alone / infonce",
        "ms a step",
        "ms / infonce",
        "promised",
    ):
        table.add_column(column, justify="left" if column == "method" else "right")
    base = contestants["infonce"]
    for name, each in contestants.items():
        table.add_row(
            name,
            f"{each.rows / options.batch_size:.1f}",
            f"{each.rows / base.rows:.2f}",
            f"{1000 * alone[name]:.0f}",
            f"{alone[name] / alone['infonce']:.2f}",
            f"{1000 * medians[name]:.0f}",
            f"{medians[name] / medians['infonce']:.2f}",
            f"{max(alone[name] / alone['infonce'], 1) + 0.3:.2f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
