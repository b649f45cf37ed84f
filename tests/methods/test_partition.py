"""The division at an epoch's start: every triplet is scored among as many others, and the posterior is kept."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from triptych.methods.base import TripletBatch
from triptych.methods.memory import TripletMemory
from triptych.methods.partition import FIELDS, Posterior, remembered_division, score_triplets
from triptych.objectives import LONG_FIT, fit_mixture

MakeBatch = Callable[..., TripletBatch]
IDS = [f"t{i}" for i in range(7)]


def context(make_batch: MakeBatch, parts: list[list[int]]) -> Any:
    whole = make_batch(7)

    def scoring() -> Iterator[TripletBatch]:
        for rows in parts:
            yield replace(
                whole,
                triplet_ids=tuple(whole.triplet_ids[row] for row in rows),
                texts=tuple(whole.texts[row] for row in rows),
                reference_tokens=whole.reference_tokens[rows],
                target_tokens=whole.target_tokens[rows],
            )

    return SimpleNamespace(scoring=scoring)


def test_scores_come_back_in_the_order_of_the_memory(make_batch: MakeBatch) -> None:
    seen: list[tuple[str, ...]] = []

    def measure(batch: TripletBatch) -> Tensor:
        seen.append(batch.triplet_ids)
        assert len(batch) == len(batch.texts) == len(batch.reference_tokens) == len(batch.target_tokens)
        return torch.tensor([[float(name[1:]), -1.0] for name in batch.triplet_ids])

    scores = score_triplets(
        context(make_batch, [[6, 0, 3], [2, 5, 1], [4]]), measure, TripletMemory(IDS, FIELDS)
    )
    assert scores.tolist() == [[float(i), -1.0] for i in range(7)]
    assert seen[-1] == ("t4", "t2", "t5")  # the short batch is filled up


def test_the_rest_may_keep_the_loss_zero(make_batch: MakeBatch) -> None:
    parts = [[6, 0, 3], [2, 5, 1], [4]]
    ones = score_triplets(
        context(make_batch, parts), lambda b: torch.ones(len(b), 1), TripletMemory(IDS, FIELDS), rest=False
    )
    assert ones[:, 0].tolist() == [1, 1, 1, 1, 0, 1, 1]


def test_a_lone_short_batch_is_scored_as_it_is(make_batch: MakeBatch) -> None:
    scores = score_triplets(
        context(make_batch, [[1, 0]]),
        lambda b: torch.full((len(b), 1), 2.0),
        TripletMemory(["t0", "t1"], FIELDS),
    )
    assert scores[:, 0].tolist() == [2, 2]


def losses() -> Tensor:
    draws = torch.Generator().manual_seed(0)
    return torch.cat([torch.randn(80, generator=draws) * 0.3 + 1, torch.randn(40, generator=draws) + 6])


def test_the_posterior_is_that_of_the_mixture_and_is_kept_with_the_model() -> None:
    posterior = Posterior()
    assert not posterior.ready
    chances = posterior.fit(losses(), seed=3, options=LONG_FIT)
    expected = fit_mixture(losses(), seed=3, options=LONG_FIT).clean
    assert torch.equal(chances, expected)
    other = Posterior()
    other.load_state_dict(posterior.state_dict())
    assert other.ready
    assert_close(other(losses()), expected, rtol=1e-4, atol=1e-5)
    assert other(losses()).dtype == torch.float32
    beyond = other(torch.tensor([-1e9, 1e9]))
    assert_close(beyond, other(torch.stack(losses().aminmax())))


def test_losses_that_are_all_equal_are_clean() -> None:
    posterior = Posterior()
    assert posterior.fit(torch.full((5,), 2.0), seed=0).tolist() == [1] * 5
    assert posterior(torch.tensor([0.0, 2.0, 9.0])).tolist() == [1, 1, 1]


def test_without_a_mixture_it_is_the_place_in_the_range() -> None:
    posterior = Posterior()
    posterior.fit(losses(), seed=0)
    posterior.span(torch.tensor([2.0, 4.0, 6.0]))
    assert posterior(torch.tensor([2.0, 5.0, 6.0, 8.0])).tolist() == [1, 0.25, 0, 0]
    posterior.span(torch.tensor([3.0, 3.0]))
    assert posterior(torch.tensor([3.0])).tolist() == [1]


def test_what_was_never_divided_is_trusted(make_batch: MakeBatch) -> None:
    memory, batch = TripletMemory(IDS, FIELDS), make_batch(3)
    clean, _ = remembered_division(memory, batch, torch.device("cpu"))
    assert clean.tolist() == [True] * 3
    memory.write(["t1"], noisy=torch.tensor([True]), clean=torch.tensor([0.2]))
    clean, chances = remembered_division(memory, batch, torch.device("cpu"))
    assert clean.tolist() == [True, False, True]
    assert chances[1].item() == pytest.approx(0.2)
    with pytest.raises(ValueError, match="remember"):
        remembered_division(None, batch, torch.device("cpu"))
