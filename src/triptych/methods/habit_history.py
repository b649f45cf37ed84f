"""What HABIT remembers of a triplet's last visit: how clean it looked, and its features, for similarities of then."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from triptych.backbones.base import BackboneShape
from triptych.methods.base import TripletBatch
from triptych.methods.memory import Field, TripletMemory
from triptych.objectives import similarity


class Past(NamedTuple):
    """What is remembered of a batch.

    Attributes:
        known: ``[B]`` bool, which have a past; the rest of the rows say nothing.
        cleanliness: ``[B]`` e⁻, before the mask.
        trusted: ``[B]`` bool mask m⁻.
        similarity: ``[B, B]`` s⁻ of the past queries and targets, ``None`` where no features are kept.
    """

    known: Tensor
    cleanliness: Tensor
    trusted: Tensor
    similarity: Tensor | None


class History:
    """Keeps the last visit of each triplet.

    A triplet takes 4 bytes of cleanliness, 2 of flags, and 2D(Q + 1) of features in float16: 16 902 at Q = 32,
    D = 256, which is 0.48 GB for 28 225 triplets; in mapped files twice that, and little RAM. It does not grow
    with the epochs.

    Attributes:
        memory: the table; a part of the run's checkpoint.

    Args:
        triplet_ids: the training triplets in the table's order.
        shape: the backbone's sizes.
        features: keep c and t too.
        by_position: find rows by the place in the epoch instead of by triplet, as the released code: after a
            shuffle they are those of other triplets.
        folder: keep it there in mapped files instead of in RAM.
    """

    def __init__(
        self,
        triplet_ids: Sequence[str],
        shape: BackboneShape,
        *,
        features: bool = True,
        by_position: bool = False,
        folder: Path | None = None,
    ) -> None:
        self.features, self.by_position = features, by_position
        self._names = tuple(triplet_ids)
        fields = {"cleanliness": Field(), "trusted": Field(dtype=torch.bool)}
        if features:
            fields["query"] = Field((shape.dim,), torch.float16)
            fields["targets"] = Field((shape.queries, shape.dim), torch.float16)
        self.memory = TripletMemory(self._names, fields, folder)

    def recall(self, batch: TripletBatch, device: torch.device) -> Past:
        """Read what was kept of a batch, before the batch itself is kept."""
        rows = self._rows(batch)
        read = partial(self.memory.read, triplet_ids=rows, device=device)
        before = similarity(read("query"), read("targets")) if self.features else None
        return Past(self.memory.known(rows).to(device), read("cleanliness"), read("trusted"), before)

    def keep(
        self, batch: TripletBatch, cleanliness: Tensor, trusted: Tensor, query: Tensor, targets: Tensor
    ) -> None:
        """Replace what was kept: e ``[B]`` before the mask, m ``[B]``, c ``[B, D]`` and t ``[B, Q, D]``."""
        features = {"query": query, "targets": targets} if self.features else {}
        self.memory.write(self._rows(batch), cleanliness=cleanliness, trusted=trusted, **features)

    def _rows(self, batch: TripletBatch) -> tuple[str, ...]:
        """Name the rows of a batch; all batches of an epoch that is trained on are of one size."""
        if not self.by_position:
            return batch.triplet_ids
        first = batch.step * len(batch)
        return self._names[first : first + len(batch)]
