"""The record of how far each triplet was trusted."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from triptych.errors import DataError
from triptych.training.cleanliness import CleanlinessRecord, read_cleanliness


def test_a_row_a_triplet_and_epoch(tmp_path: Path) -> None:
    path = tmp_path / "cleanliness.parquet"
    record = CleanlinessRecord(path, ["a", "b", "c"])
    record.note(["c", "a"], torch.tensor([0.25, 0.5]))
    record.end_epoch(0)
    record.note(["a", "b", "c"], torch.tensor([0.1, 0.2, 0.3]))
    record.end_epoch(1)
    rows = pq.read_table(path).to_pylist()
    assert [(row["triplet_id"], row["epoch"]) for row in rows] == [
        ("a", 1),
        ("c", 1),
        ("a", 2),
        ("b", 2),
        ("c", 2),
    ]
    assert read_cleanliness(path, 1)[1].tolist() == [0.5, 0.25]
    ids, values = read_cleanliness(path)
    assert ids == ["a", "b", "c"]
    assert values == pytest.approx([0.1, 0.2, 0.3])


def test_an_epoch_that_is_repeated_is_replaced(tmp_path: Path) -> None:
    record = CleanlinessRecord(tmp_path / "c.parquet", ["a"])
    for value in (0.1, 0.9):
        record.note(["a"], torch.tensor([value]))
        record.end_epoch(0)
    assert len(pq.read_table(tmp_path / "c.parquet")) == 1
    assert read_cleanliness(tmp_path / "c.parquet")[1] == pytest.approx([0.9])


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no cleanliness"):
        read_cleanliness(tmp_path / "none.parquet")
    record = CleanlinessRecord(tmp_path / "c.parquet", ["a"])
    record.note(["a"], torch.tensor([0.5]))
    record.end_epoch(0)
    with pytest.raises(DataError, match="no epoch 3"):
        read_cleanliness(tmp_path / "c.parquet", 3)
