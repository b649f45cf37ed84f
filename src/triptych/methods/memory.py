"""What a method keeps of each triplet from one visit to the next, found by triplet id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from triptych.errors import DataError
from triptych.files import explain_full_disk

_KNOWN = "known"


@dataclass(frozen=True)
class Field:
    """One thing that is kept of a triplet.

    Attributes:
        shape: of one triplet's value; ``()`` for a number.
        dtype: ``float16`` halves what features need.
    """

    shape: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32


class TripletMemory:
    """A table of tensors with one row a triplet, in RAM or in mapped files.

    In RAM it is a part of the checkpoint. In files it has two generations, so that a run that was killed repeats
    its steps on what they read the first time: an epoch reads the last one's and writes its own.

    Attributes:
        triplet_ids: whose rows there are, in order.
        bytes_per_triplet: what a triplet takes, twice that on disk.

    Args:
        triplet_ids: N stable ids.
        fields: what is kept.
        folder: where the files go; None = RAM.

    Raises:
        DataError: ids are not distinct, or the disk is full.
    """

    def __init__(
        self, triplet_ids: Sequence[str], fields: Mapping[str, Field], folder: Path | None = None
    ) -> None:
        self.triplet_ids = tuple(triplet_ids)
        self._rows = {name: row for row, name in enumerate(triplet_ids)}
        if len(self._rows) != len(triplet_ids):
            raise DataError("the triplet ids are not distinct")
        self.fields = {**fields, _KNOWN: Field(dtype=torch.bool)}
        self.folder = folder
        self.bytes_per_triplet = sum(
            int(np.prod(field.shape)) * field.dtype.itemsize for field in self.fields.values()
        )
        if folder is None:
            self._read = self._write = {
                name: torch.zeros(len(self), *field.shape, dtype=field.dtype)
                for name, field in self.fields.items()
            }
        else:
            with explain_full_disk(folder):
                self._read, self._write = self._map(0), self._map(1)

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, triplet_ids: Sequence[str]) -> Tensor:
        """Find triplets: row numbers ``[B]``.

        Raises:
            KeyError: one is not of this run.
        """
        return torch.tensor([self._rows[name] for name in triplet_ids], dtype=torch.long)

    def known(self, triplet_ids: Sequence[str]) -> Tensor:
        """Say which triplets were visited before, ``[B]`` bool."""
        return self._read[_KNOWN][self.rows(triplet_ids)]

    def read(
        self,
        name: str,
        triplet_ids: Sequence[str],
        *,
        device: torch.device | str = "cpu",
        latest: bool = False,
    ) -> Tensor:
        """Return a field of triplets, ``[B, ...]`` on a device; zeros for those that were never visited.

        On disk it is what earlier epochs wrote; ``latest`` gives what was written last, for what an epoch settles
        before its first step.
        """
        source = self._write if latest else self._read
        return source[name][self.rows(triplet_ids)].to(device)

    def write(self, triplet_ids: Sequence[str], **values: Tensor) -> None:
        """Store fields of triplets, ``[B, ...]`` each, and note that these were visited."""
        rows = self.rows(triplet_ids)
        for name, value in values.items():
            self._write[name][rows] = value.detach().to("cpu", self.fields[name].dtype)
        self._write[_KNOWN][rows] = True

    def begin_epoch(self, epoch: int, *, resumed: bool) -> None:
        """Turn the generations round; an epoch that goes on in its middle finds its own as it was."""
        if self.folder is None:
            return
        self._read, self._write = self._map(epoch % 2), self._map((epoch + 1) % 2)
        if not resumed:
            for name, value in self._read.items():
                self._write[name].copy_(value)

    def state(self) -> dict[str, Tensor]:
        """Return what a checkpoint must hold: all in RAM, nothing on disk."""
        return {} if self.folder is not None else dict(self._read)

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Put :meth:`state` back.

        Raises:
            DataError: the names or shapes are others.
        """
        if self.folder is not None:
            return
        for name, value in self._read.items():
            if name not in state or state[name].shape != value.shape:
                raise DataError(f'the checkpoint does not hold the memory "{name}" of these triplets')
            value.copy_(state[name])

    def _map(self, generation: int) -> dict[str, Tensor]:
        assert self.folder is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        mapped = {}
        for name, field in self.fields.items():
            path = self.folder / f"{name}.{generation}.bin"
            size = len(self) * int(np.prod(field.shape))
            if not path.is_file() or path.stat().st_size != size * field.dtype.itemsize:
                path.unlink(missing_ok=True)
                with path.open("wb") as file:
                    file.truncate(size * field.dtype.itemsize)
            flat = torch.from_file(str(path), shared=True, size=size, dtype=field.dtype)
            mapped[name] = flat.view(len(self), *field.shape)
        return mapped
