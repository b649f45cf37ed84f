"""The first stage in memory: rough scores that lose little."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize

from triptych.search.first_stage import FirstStage


def drawn(images: int, seed: int, rank: int = 16, queries: int = 4, dim: int = 32) -> torch.Tensor:
    """Draw unit vectors near a plane of ``rank`` directions, as trained vectors lie."""
    random = torch.Generator().manual_seed(seed)
    plane = torch.randn(rank, dim, generator=random)
    within = torch.randn(images, queries, rank, generator=random) @ plane
    return normalize(within + 0.1 * torch.randn(images, queries, dim, generator=random), dim=-1)


def best(targets: torch.Tensor, vector: torch.Tensor, count: int) -> list[int]:
    return (targets @ vector).amax(dim=1).topk(count).indices.tolist()


def test_by_hand() -> None:
    """Vectors along the first axis mostly: one direction is kept, and it is that one."""
    targets = torch.tensor([[[3.0, 0.0]], [[-2.0, 0.1]], [[1.0, 0.0]]])
    stage = FirstStage.of(targets, directions=1)
    assert stage.directions.abs().flatten().tolist() == pytest.approx([1.0, 0.0], abs=0.03)
    assert stage.nearest(torch.tensor([1.0, 5.0]), 2).tolist() == [0, 2]
    assert stage.nearest(torch.tensor([-1.0, 0.0]), 1).tolist() == [1]


def test_all_directions_are_exact() -> None:
    targets, vector = (
        drawn(50, 0),
        normalize(torch.randn(32, generator=torch.Generator().manual_seed(1)), dim=0),
    )
    stage = FirstStage.of(targets, directions=32)
    assert FirstStage.of(targets, directions=99).directions.shape == (32, 32)
    assert stage.nearest(vector, 50).tolist() == best(targets, vector, 50)


@given(st.integers(0, 1000))
def test_the_best_are_among_few_candidates(seed: int) -> None:
    targets = drawn(400, seed)
    vector = normalize(targets[seed % 400, 0] + targets[(seed + 1) % 400, 0], dim=0)
    found = FirstStage.of(targets, directions=20).nearest(vector, 40).tolist()
    assert set(best(targets, vector, 5)) <= set(found)


def test_only_the_given_places_are_chosen_from() -> None:
    targets, vector = drawn(50, 2), torch.ones(32) / 32**0.5
    stage, places = FirstStage.of(targets, directions=32), torch.tensor([7, 3, 40])
    found = stage.nearest(vector, 10, places).tolist()
    assert found == sorted(found, key=best(targets, vector, 50).index)
    assert sorted(found) == [3, 7, 40]


def test_half_precision_and_no_images() -> None:
    targets, vector = drawn(70, 3), torch.ones(32) / 32**0.5
    found = FirstStage.of(targets.half(), directions=32).nearest(vector, 5).tolist()
    assert found == best(targets, vector, 5)
    assert FirstStage.of(targets[:0]).nearest(vector, 5).tolist() == []
