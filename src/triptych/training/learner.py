"""Learner: what a run optimises."""

from __future__ import annotations

from torch import nn

from triptych.backbones.base import Backbone
from triptych.methods.base import Losses, Method, TripletBatch
from triptych.training.processes import Processes
from triptych.training.split_backbone import SplitBackbone


class Learner(nn.Module):
    """Backbone and method as the one module that is optimised.

    Attributes:
        passes: what the method calls: the backbone, or the same in parts.
    """

    def __init__(self, backbone: Backbone, method: Method) -> None:
        super().__init__()
        self.backbone = backbone
        self.method = method
        self.passes = backbone

    def split(self, processes: Processes, micro_batch: int | None) -> None:
        """Let the method call the backbone in parts: a process's rows, some at a time."""
        self.passes = SplitBackbone(self.backbone, processes, micro_batch)

    def forward(self, batch: TripletBatch) -> Losses:
        """Return the method's loss terms."""
        if isinstance(self.passes, SplitBackbone):
            self.passes.begin_step()
        return self.method.losses(batch, self.passes)

    def gather_gradients(self, processes: Processes) -> None:
        """Complete the gradients: each process had its rows in the backbone, and all of them in the method."""
        for module, mean in ((self.backbone, False), (self.method, True)):
            processes.sum([value.grad for value in module.parameters() if value.grad is not None], mean=mean)
