"""Every ablation row, one step in every phase: its loss differs from the full method's where it must, and only there.

Phases are epochs 0, 1, 2 and later, with the history that these leave; partitions are all clean, all noisy and mixed.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from triptych.backbones.base import Backbone
from triptych.methods import registry
from triptych.methods.ablations import ablations, apply_ablations
from triptych.methods.base import Method, TripletBatch
from triptych.randomness import torch_generator

MakeBatch = Callable[..., TripletBatch]
EPOCHS = (0, 1, 2, 5)
SIZE = 12

ALWAYS, FIRST, LATER, SECOND = set(EPOCHS), {0, 1}, {2, 5}, {1, 2, 5}

DIFFERS_IN: dict[str, set[int]] = {
    **{f"intent.{row}": ALWAYS for row in ("A1", "A2", "A3", "A4", "A5", "C1", "C2", "C3", "C4")},
    **{f"intent.B{row}": ALWAYS for row in range(1, 7)},
    # HABIT looks back from the second epoch on; its estimate and its two first losses are there at once
    **{f"habit.{row}": ALWAYS for row in ("D1", "D2", "D3", "D11", "D12", "D13")},
    **{f"habit.{row}": SECOND for row in ("D4", "D5", "D6", "D7", "D8", "D9", "D10")},
    # ConeSep learns negatives in epochs 0 and 1 and unlearns from epoch 2; in epoch 0 all are clean, and negative
    # queries are the queries themselves, since P_neg starts as a copy
    **{f"conesep.{row}": SECOND for row in ("D1", "D2", "D3", "D4", "D5", "D9", "D10", "E1", "E2", "E3")},
    **{f"conesep.{row}": FIRST for row in ("D6", "D7", "D8")},
    "conesep.D14": ALWAYS,
    **{f"conesep.{row}": LATER for row in ("D11", "D12", "D13")},
}
"""Epochs in which a row's loss must differ, for some batch of that epoch; in all others it must be equal."""

BY_THRESHOLD = {f"conesep.{row}" for row in ("D1", "D2", "D3", "D4", "E1", "E2", "E3")}
"""Rows that move the boundary: a loss differs in those epochs in which a triplet crosses over, one at least."""

SETTINGS: dict[str, dict[str, Any]] = {
    # a small batch has dense ranges only where the radius is wide
    "habit": {"eps": 0.02, "min_samples": 3},
    "conesep": {"neg_text": "plain"},
}


@dataclass(frozen=True)
class Context:
    """What a method may ask at the start of an epoch."""

    epoch: int
    backbone: Backbone
    batches: tuple[TripletBatch, ...]
    epochs: int = 9
    seed: int = 0
    resumed: bool = False

    def scoring(self) -> Iterator[TripletBatch]:
        return iter(self.batches)


@pytest.fixture(scope="module")
def partitions(make_tiny: Callable[[], Backbone], make_batch_of: Callable[..., TripletBatch]) -> Any:
    """Batches whose targets are what the query finds, are what it does not find, and half of each."""
    backbone = shaken(make_tiny(), 0.2, 0)
    batch = make_batch_of(backbone, SIZE)
    with torch.no_grad():
        scores = functional.normalize(backbone.compose(batch.reference_tokens, batch.texts).vector, dim=1) @ (
            functional.normalize(backbone.targets(batch.target_tokens).mean(dim=1), dim=1).T
        )
    best, worst = scores.argmax(dim=1), scores.argmin(dim=1)
    half = torch.where(torch.arange(SIZE) < SIZE // 2, best, worst)
    return {
        name: replace(batch, target_tokens=batch.target_tokens[rows])
        for name, rows in (("clean", best), ("noisy", worst), ("mixed", half), ("any", torch.arange(SIZE)))
    }


@pytest.fixture(scope="module")
def full_losses(make_tiny: Callable[[], Backbone], partitions: dict[str, TripletBatch]) -> Any:
    """The full method's losses by method and batch, computed once."""
    backbone = shaken(make_tiny(), 0.2, 0)
    return cache(lambda name, key: losses(name, SETTINGS.get(name, {}), backbone, partitions[key]))


def losses(
    method_name: str, settings: dict[str, Any], backbone: Backbone, batch: TripletBatch
) -> list[float]:
    """Run an epoch of one step in every epoch up to the last, and return the total of those that are looked at."""
    method: Method = registry.create(method_name, settings, backbone.shape, seed=0)
    method.remember(batch.triplet_ids)
    backbone = copy.deepcopy(backbone)
    found = []
    for epoch in range(EPOCHS[-1] + 1):
        if method.memory is not None:
            method.memory.begin_epoch(epoch, resumed=False)
        with torch.no_grad():
            method.eval()
            backbone.eval()
            method.begin_epoch(Context(epoch, backbone, (batch,)))
        step = replace(batch, generator=torch.Generator().manual_seed(epoch))
        total = method.losses(step, backbone).total()
        assert torch.isfinite(total)
        if epoch in EPOCHS:
            found.append(float(total.detach()))
        shaken(backbone, 0.02, 1 + epoch)  # the same step for full and ablated: only the losses may differ
        shaken(method, 0.5, 1 + epoch)
    return found


def shaken(module: nn.Module, deviation: float, seed: int) -> Any:
    """Add noise to what is trained, by name: untrained Q-Formers hardly tell their inputs apart."""
    with torch.no_grad():
        for name, value in module.named_parameters():
            if value.requires_grad:
                draws = torch_generator(seed, name)
                value += deviation * torch.randn(value.shape, generator=draws)
    return module


def test_every_row_says_where_it_differs() -> None:
    assert set(DIFFERS_IN) == {name for name, _ in ablations()}


@pytest.mark.parametrize("row", [name for name, _ in ablations()])
def test_a_row_differs_where_it_must_and_only_there(
    row: str, partitions: dict[str, TripletBatch], make_tiny: Callable[[], Backbone], full_losses: Any
) -> None:
    backbone = shaken(make_tiny(), 0.2, 0)
    name = row.partition(".")[0]
    settings = apply_ablations([row], SETTINGS.get(name, {}))
    settings.pop("name")
    differing: set[int] = set()
    for key, batch in partitions.items():
        pairs = zip(full_losses(name, key), losses(name, settings, backbone, batch), strict=True)
        differing |= {epoch for epoch, (a, b) in zip(EPOCHS, pairs, strict=True) if a != b}
    if row in BY_THRESHOLD:
        assert differing
        assert differing <= DIFFERS_IN[row]
    else:
        assert differing == DIFFERS_IN[row]
