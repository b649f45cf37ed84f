"""Per-triplet memory: found by id, saved with the run, and repeatable after a kill."""

from pathlib import Path

import pytest
import torch

from triptych.errors import DataError
from triptych.methods.memory import Field, TripletMemory

IDS = ["a", "b", "c"]
FIELDS = {"score": Field(), "vector": Field((2,), torch.float16)}


def test_what_is_written_is_read_by_id() -> None:
    memory = TripletMemory(IDS, FIELDS)
    assert memory.known(IDS).tolist() == [False, False, False]
    memory.write(["c", "a"], score=torch.tensor([3.0, 1.0]), vector=torch.tensor([[3.0, 4.0], [1.0, 2.0]]))
    assert memory.read("score", ["a", "b", "c"]).tolist() == [1, 0, 3]
    assert memory.read("vector", ["c"]).tolist() == [[3, 4]]
    assert memory.known(["b", "c"]).tolist() == [False, True]


def test_bytes_of_a_triplet() -> None:
    assert TripletMemory(IDS, FIELDS).bytes_per_triplet == 4 + 2 * 2 + 1


def test_ram_is_saved_with_the_run() -> None:
    memory, other = TripletMemory(IDS, FIELDS), TripletMemory(IDS, FIELDS)
    memory.write(["b"], score=torch.tensor([2.0]))
    other.load_state({name: value.clone() for name, value in memory.state().items()})
    assert other.read("score", IDS).tolist() == [0, 2, 0]
    with pytest.raises(DataError, match="score"):
        TripletMemory(["a"], FIELDS).load_state(memory.state())


def test_files_have_two_generations(tmp_path: Path) -> None:
    """A step that is repeated after a kill reads what it read the first time."""
    memory = TripletMemory(IDS, FIELDS, tmp_path)
    memory.begin_epoch(0, resumed=False)
    memory.write(["a"], score=torch.tensor([1.0]))
    assert memory.read("score", ["a"]).tolist() == [0]
    memory.begin_epoch(1, resumed=False)
    memory.write(["a", "b"], score=torch.tensor([10.0, 20.0]))

    again = TripletMemory(IDS, FIELDS, tmp_path)
    again.begin_epoch(1, resumed=True)
    assert again.read("score", IDS).tolist() == [1, 0, 0]
    again.write(["a", "b"], score=torch.tensor([10.0, 20.0]))
    again.begin_epoch(2, resumed=False)
    assert again.read("score", IDS).tolist() == [10, 20, 0]
    assert again.known(IDS).tolist() == [True, True, False]
    assert again.state() == {}


def test_an_epoch_begun_anew_starts_from_the_last_one(tmp_path: Path) -> None:
    memory = TripletMemory(IDS, FIELDS, tmp_path)
    memory.begin_epoch(0, resumed=False)
    memory.write(["a"], score=torch.tensor([7.0]))
    memory.begin_epoch(0, resumed=False)
    memory.begin_epoch(1, resumed=False)
    assert memory.known(IDS).tolist() == [False, False, False]


def test_ids_must_be_distinct() -> None:
    with pytest.raises(DataError, match="distinct"):
        TripletMemory(["a", "a"], FIELDS)


@pytest.mark.parametrize("on_disk", [False, True])
def test_what_an_epoch_settles_is_read_by_its_steps(on_disk: bool, tmp_path: Path) -> None:
    memory = TripletMemory(IDS, FIELDS, tmp_path if on_disk else None)
    memory.begin_epoch(3, resumed=False)
    memory.write(memory.triplet_ids, score=torch.tensor([1.0, 2.0, 3.0]))
    assert memory.read("score", ["c", "a"], latest=True).tolist() == [3, 1]
    memory.begin_epoch(3, resumed=True)
    assert memory.read("score", ["c", "a"], latest=True).tolist() == [3, 1]
    memory.begin_epoch(4, resumed=False)
    assert memory.read("score", ["c", "a"], latest=True).tolist() == [3, 1]
