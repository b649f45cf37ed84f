"""How far a run trusted each of its triplets, epoch by epoch: ``cleanliness.parquet``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor

from triptych.errors import DataError
from triptych.files import atomic_path

SCHEMA = pa.schema([("triplet_id", pa.string()), ("epoch", pa.int32()), ("cleanliness", pa.float32())])


class CleanlinessRecord:
    """Collects what an epoch's steps say of their triplets and adds it to the run's file.

    A triplet that an epoch did not visit (the rest that fills no batch) has no row of that epoch.

    Attributes:
        present: ``[N]`` of the epoch under way, NaN where a triplet was not visited yet.

    Args:
        path: the file.
        triplet_ids: the training triplets.
    """

    def __init__(self, path: Path, triplet_ids: Sequence[str]) -> None:
        self.path = path
        self._ids = pa.array(triplet_ids, pa.string())
        self._rows = {name: row for row, name in enumerate(triplet_ids)}
        self.present = torch.full((len(triplet_ids),), torch.nan)

    def note(self, triplet_ids: Sequence[str], cleanliness: Tensor) -> None:
        """Note a step's values, ``[B]``."""
        self.present[torch.tensor([self._rows[name] for name in triplet_ids])] = cleanliness.cpu()

    def end_epoch(self, epoch: int) -> None:
        """Write the epoch (counted from 1 in the file) and start the next; one that is there is replaced."""
        seen = ~torch.isnan(self.present).numpy()
        if seen.any():
            columns = [
                self._ids.filter(pa.array(seen)),
                pa.array(np.full(int(seen.sum()), epoch + 1), pa.int32()),
                pa.array(self.present.numpy()[seen], pa.float32()),
            ]
            table = pa.Table.from_arrays(columns, schema=SCHEMA)
            if self.path.is_file():
                before = pq.read_table(self.path)
                earlier = pc.less_equal(before["epoch"], epoch)
                table = pa.concat_tables([before.filter(earlier), table])
            with atomic_path(self.path) as temporary:
                pq.write_table(table, temporary)
        self.present.fill_(torch.nan)


def read_cleanliness(path: Path, epoch: int | None = None) -> tuple[list[str], np.ndarray]:
    """Read a run's file: triplet ids, and their values of an epoch (counted from 1; by default the last).

    Raises:
        DataError: there is no such file or epoch.
    """
    if not path.is_file():
        raise DataError("this run recorded no cleanliness", file=path, mend="Train with `triptych train`.")
    table = pq.read_table(path)
    last = pc.max(table["epoch"]).as_py()
    chosen = table.filter(pc.equal(table["epoch"], last if epoch is None else epoch))
    if not len(chosen):
        raise DataError(f"there is no epoch {epoch}; it ends with {last}", file=path, field="epoch")
    return chosen["triplet_id"].to_pylist(), chosen["cleanliness"].to_numpy()
