"""Steps of every method on the tiny backbone, whole or in parts, in one process or in several.

``python shares.py PROCESSES OUT.safetensors [MICRO_BATCH]`` forks so many processes, which share each batch's rows
over gloo, and writes what the first of them computed: losses, gradients, memories, trust.
"""

import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor

from triptych.backbones.base import Backbone
from triptych.methods import registry
from triptych.methods.base import TripletBatch
from triptych.randomness import derive_seed
from triptych.training.processes import Processes
from triptych.training.split_backbone import SplitBackbone


def _tiny() -> Any:
    path = Path(__file__).parents[1] / "methods" / "conftest.py"
    spec = importlib.util.spec_from_file_location("tiny_backbone", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tiny = _tiny()

CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "cala": (1, {}),
    "conesep": (2, {"warmup_epochs": 1}),
    "habit": (2, {"min_samples": 2}),
    "infonce": (1, {"learnable_temperature": True}),
    "intent": (1, {}),
    "rcl": (1, {"learnable_temperature": True, "direction": "sym"}),
    "rde": (2, {"warmup_epochs": 1}),
    "sprc": (1, {}),
    "ssn": (1, {"heads": 2, "feedforward": 8}),
    "tme": (4, {"qformer_epochs": 1, "proj_epochs": 1, "last_epochs": 1}),
}
"""Epochs that visit every phase, and the settings under which they do."""


@dataclass
class Context:
    """What a method may ask at the start of an epoch."""

    backbone: Backbone
    batches: list[TripletBatch]
    epoch: int
    epochs: int = 4
    seed: int = 0
    resumed: bool = False

    def scoring(self) -> Iterator[TripletBatch]:
        """Yield all triplets; the last batch is short."""
        yield self.batches[0]
        last = self.batches[1]
        yield replace(
            last,
            triplet_ids=last.triplet_ids[:1],
            texts=last.texts[:1],
            reference_tokens=last.reference_tokens[:1],
            target_tokens=last.target_tokens[:1],
        )


def batch(backbone: Any, number: int, step: int, size: int) -> TripletBatch:
    """Make a batch whose triplets are found again in every epoch."""
    made = tiny.batch_of(backbone.float(), size, seed=derive_seed(0, "batch", step))
    backbone.double()
    tensors = {name: value.double() for name, value in vars(made).items() if isinstance(value, Tensor)}
    roll = {name: value.roll(number, 0) for name, value in tensors.items()}
    ids = tuple(f"{number}-{row}" for row in range(size))
    return replace(made, triplet_ids=ids, step=number, **roll)


def trace(
    name: str, processes: Processes, micro_batch: int | None, *, size: int = 5, dropout: float = 0.0
) -> dict[str, Tensor]:
    """Run steps in each epoch, two where something is remembered, and return what is seen of them."""
    epochs, settings = CASES[name]
    backbone = tiny.TinyBackbone().double()
    for module in backbone.qformer.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = dropout
    method = registry.create(name, settings, backbone.shape).double()
    whole = processes.count == 1 and micro_batch is None
    passes = backbone if whole else SplitBackbone(backbone, processes, micro_batch)
    batches = [batch(backbone, number, 0, size) for number in range(2)]
    method.remember([*batches[0].triplet_ids, *batches[1].triplet_ids])
    seen: dict[str, Tensor] = {}
    for epoch in range(epochs):
        if method.memory is not None:
            method.memory.begin_epoch(epoch, resumed=False)
        passes.eval()
        method.eval()
        with torch.no_grad():
            method.begin_epoch(Context(passes, batches, epoch))
        passes.train()
        method.train()
        for number in range(1 if method.memory is None else 2):
            torch.manual_seed(derive_seed(0, epoch, number))
            for module in (backbone, method):
                module.zero_grad()
            losses = method.losses(batch(backbone, number, 2 * epoch + number, size), passes)
            losses.total().backward()
            processes.sum(value.grad for value in backbone.parameters() if value.grad is not None)
            where = f"{name}/{epoch}/{number}"
            seen |= {f"{where}/loss/{term}": value.detach() for term, value, _ in losses}
            for module in (backbone, method):
                for key, value in module.named_parameters():
                    if value.grad is not None:
                        seen[f"{where}/{type(module).__name__}.{key}"] = value.grad.clone()
            if losses.cleanliness is not None:
                seen[f"{where}/trust"] = losses.cleanliness
    if method.memory is not None:
        seen |= {f"{name}/memory/{key}": value.float() for key, value in method.memory.state().items()}
    return seen


def lone(passes: Backbone) -> Tensor:
    """Fuse a batch of one row, which is less than one a process, and give what the query tokens learn."""
    one = tiny.batch_of(passes, 1)
    hidden = passes.compose(one.reference_tokens, one.texts).hidden
    again = passes.refine(hidden[:, : passes.shape.queries], one.texts)
    again.tokens.pow(3).sum().backward()
    gradient = passes.query_tokens.grad
    assert gradient is not None
    processes = getattr(passes, "processes", Processes())
    processes.sum([gradient])
    return gradient


def worker(index: int, count: int, meeting: str, out: Path, micro_batch: int | None) -> None:
    """Be one of several processes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=index, world_size=count)
    processes = Processes(index, count)
    seen = {key: value for name in CASES for key, value in trace(name, processes, micro_batch).items()}
    dropped = trace("infonce", processes, 2, size=8, dropout=0.3)
    seen |= {f"dropout/{key}": value for key, value in dropped.items()}
    seen["lone"] = lone(SplitBackbone(tiny.TinyBackbone(), processes))
    parts = [processes.exchange(value.double().flatten()[None], count) for value in seen.values()]
    assert all((part == part[:1]).all() for part in parts), "the processes do not hold the same"
    if index == 0:
        save_file({key: value.contiguous() for key, value in seen.items()}, out)
    dist.destroy_process_group()


def main() -> None:
    count, out = int(sys.argv[1]), Path(sys.argv[2])
    micro_batch = int(sys.argv[3]) if len(sys.argv) > 3 else None
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for index in range(count):
            child = os.fork()
            if child == 0:
                try:
                    worker(index, count, f"{folder}/meeting", out, micro_batch)
                except BaseException as error:
                    print(f"process {index}: {error!r}", file=sys.stderr, flush=True)
                    os._exit(1)
                os._exit(0)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    sys.exit(max(map(abs, codes)))


if __name__ == "__main__":
    main()
