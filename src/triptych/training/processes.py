"""Where a run computes: the device and its precision, and the processes that share a batch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from triptych.errors import UsageError

Precision = Literal["no", "bf16", "fp16"]
_PATIENCE = timedelta(hours=24)
"""How long a process waits for another, which may be encoding all pictures."""


def make_accelerator(precision: Precision) -> Any:
    """Make the accelerator: on a CUDA (or ROCm) GPU where there is one, else on the CPU.

    Raises:
        UsageError: fp16 or bf16 is asked of what cannot do it, or the processes that were started do not know of
            each other.
    """
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState
    from accelerate.utils import InitProcessGroupKwargs

    gpu = torch.cuda.is_available() and os.environ.get("ACCELERATE_USE_CPU", "").lower() not in ("1", "true")
    if precision == "fp16" and not gpu:
        raise UsageError(
            "training.precision = fp16 needs a GPU, and there is none here; use bf16 or no, which run on a CPU too"
        )
    if precision == "bf16" and gpu and not torch.cuda.is_bf16_supported():
        raise UsageError("this GPU cannot compute in bf16; use training.precision = fp16 or no")
    if AcceleratorState._shared_state and AcceleratorState().mixed_precision != precision:
        AcceleratorState._reset_state()  # it is one a process, and an earlier run had another precision
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if started > 1 and "RANK" not in os.environ:
        raise _alone(started)
    patience = [InitProcessGroupKwargs(timeout=_PATIENCE)]
    accelerator = Accelerator(mixed_precision=precision, cpu=not gpu, kwargs_handlers=patience)
    if accelerator.num_processes != started:
        raise _alone(started)
    return accelerator


def _alone(started: int) -> UsageError:
    return UsageError(
        f"{started} processes were started (WORLD_SIZE), but this one knows of no other.\n"
        "  Start them with `accelerate launch -m triptych train ...` (GPUs) or "
        "`torchrun --nproc-per-node N -m triptych train ...` (CPUs too)."
    )


class Processes:
    """The processes of a run, each of which computes its share of every batch's rows.

    Outside the passes of the backbone every process holds whole batches and computes the same. So whatever comes
    out of a pass is gathered, and its gradient needs no exchange: each process knows all of it and takes its own
    rows. What goes into a pass is cut, and the gradients of the pieces are gathered, or, for what all rows share,
    summed.

    Args:
        index: which this one is; 0 is the one that writes.
        count: how many there are.
        device: where tensors are that are exchanged.
    """

    def __init__(self, index: int = 0, count: int = 1, device: torch.device | str = "cpu") -> None:
        self.index, self.count, self.device = index, count, torch.device(device)

    @classmethod
    def of(cls, accelerator: Any) -> Processes:
        """Take them from an accelerator."""
        return cls(accelerator.process_index, accelerator.num_processes, accelerator.device)

    @property
    def main(self) -> bool:
        """Whether this is the process that writes."""
        return self.index == 0

    @contextmanager
    def main_first(self) -> Iterator[None]:
        """Let the writing process run the block before the others, which find what it left."""
        if not self.main:
            self.wait()
        yield
        if self.main:
            self.wait()

    def wait(self) -> None:
        """Wait until all are here."""
        if self.count > 1:
            dist.barrier()

    def share(self, rows: int, index: int | None = None) -> slice:
        """Return which of a batch's rows a process computes (this one by default); the first may have one more."""
        index = self.index if index is None else index
        size, rest = divmod(rows, self.count)
        start = index * size + min(index, rest)
        return slice(start, start + size + (index < rest))

    def any(self, flag: bool) -> bool:
        """Say whether a flag is up in any process."""
        return bool(self.largest([int(flag)])[0])

    def largest(self, numbers: Sequence[int]) -> list[int]:
        """Return each number's maximum over the processes."""
        if self.count == 1:
            return list(numbers)
        shared = torch.tensor(numbers, dtype=torch.int64, device=self.device)
        dist.all_reduce(shared, dist.ReduceOp.MAX)
        return shared.tolist()

    def of_main(self, number: float) -> float:
        """Return the writing process's number."""
        if self.count == 1:
            return number
        shared = torch.tensor(number, dtype=torch.float64, device=self.device)
        dist.broadcast(shared, src=0)
        return float(shared)

    def gather(self, own: Tensor, rows: int) -> Tensor:
        """Put every process's share of the rows together, ``[rows, ...]``, with gradient."""
        if self.count == 1:
            return own
        gathered: Tensor = _Gather.apply(own, self, rows)  # type: ignore[no-untyped-call]
        return gathered

    def cut(self, whole: Tensor) -> Tensor:
        """Take this process's share of the rows; the gradient is of all of them."""
        if self.count == 1:
            return whole
        own: Tensor = _Cut.apply(whole, self)  # type: ignore[no-untyped-call]
        return own

    def common(self, tensor: Tensor) -> Tensor:
        """Return a tensor that the rows of all processes read; the gradient is the sum over them."""
        if self.count == 1:
            return tensor
        shared: Tensor = _Common.apply(tensor, self)  # type: ignore[no-untyped-call]
        return shared

    def sum(self, tensors: Iterable[Tensor], *, mean: bool = False) -> None:
        """Replace tensors by their sum, or mean, over the processes."""
        if self.count == 1:
            return
        held = list(tensors)
        for work in [dist.all_reduce(tensor, async_op=True) for tensor in held]:
            work.wait()
        if mean:
            for tensor in held:
                tensor /= self.count

    def exchange(self, own: Tensor, rows: int) -> Tensor:
        """Put the shares together without gradient, bit for bit."""
        shares = [self.share(rows, index) for index in range(self.count)]
        longest = shares[0].stop
        sent = pad(own, (0, 0) * (own.ndim - 1) + (0, longest - len(own))).contiguous()
        bits = sent.flatten().view(torch.uint8)  # not every backend knows every dtype
        received = [torch.empty_like(bits) for _ in shares]
        dist.all_gather(received, bits)
        pieces = [piece.view(own.dtype).view(sent.shape) for piece in received]
        return torch.cat(
            [piece[: share.stop - share.start] for piece, share in zip(pieces, shares, strict=True)]
        )


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, processes: Processes, rows: int) -> Tensor:
        ctx.share = processes.share(rows)
        return processes.exchange(own, rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient[ctx.share], None, None


class _Cut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, whole: Tensor, processes: Processes) -> Tensor:
        ctx.processes, ctx.rows = processes, len(whole)
        return whole[processes.share(len(whole))].clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.processes.exchange(gradient, ctx.rows), None


class _Common(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, processes: Processes) -> Tensor:
        ctx.processes = processes
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        total = gradient.contiguous().clone()
        ctx.processes.sum([total])
        return total, None
