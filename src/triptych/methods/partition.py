"""The division of the training triplets that an epoch starts with, and the posterior that it leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from triptych.methods.base import EpochContext, TripletBatch
from triptych.methods.memory import Field, TripletMemory
from triptych.objectives import SHORT_FIT, FitOptions, fit_mixture

FIELDS = {"noisy": Field(dtype=torch.bool), "clean": Field()}
"""Kept of each triplet, in 6 bytes: whether the last division held it noisy, and its chance to be clean there."""

Measure = Callable[[TripletBatch], Tensor]
"""Gives the losses of a batch, ``[B, K]``."""


class Posterior(nn.Module):
    """Gives the chance to be clean of any loss, by the mixture that was fitted last.

    It is a part of the model, so that a loaded one can judge triplets. Losses beyond those that were fitted count
    as the nearest of these.
    """

    limits: Tensor
    means: Tensor
    variances: Tensor
    weights: Tensor
    divided: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("limits", "means", "variances", "weights"):
            self.register_buffer(name, torch.zeros(2, dtype=torch.float64))
        self.register_buffer("divided", torch.tensor(False))

    @property
    def ready(self) -> bool:
        """Whether triplets were divided."""
        return bool(self.divided)

    def fit(self, losses: Tensor, *, seed: int, options: FitOptions = SHORT_FIT) -> Tensor:
        """Fit a mixture to the losses ``[N]`` of all triplets and return their chances to be clean, ``[N]``."""
        mixture = fit_mixture(losses, seed=seed, options=options)
        self.span(losses)
        for name in ("means", "variances", "weights"):
            getattr(self, name).copy_(getattr(mixture, name))
        return mixture.clean

    def span(self, losses: Tensor) -> None:
        """Take the range of the losses only: the chance is then how low a loss stands in it."""
        self.limits.copy_(torch.stack(losses.aminmax()))
        self.weights.zero_()
        self.divided.fill_(True)

    @torch.no_grad()
    def forward(self, losses: Tensor) -> Tensor:
        """Return the chances to be clean of losses ``[B]``, float32 in [0, 1]."""
        low, high = self.limits[0], self.limits[1]
        spread = torch.where(high > low, high - low, torch.ones_like(low))
        x = ((losses.to(low) - low) / spread).clamp(0, 1)
        if not self.weights.any():
            return (1 - x).float()
        variances = self.variances.clamp(min=torch.finfo(torch.float32).tiny)
        exponents = -((x[:, None] - self.means) ** 2) / (2 * variances)
        logits = exponents - variances.log() / 2 + self.weights.log()
        return logits.softmax(dim=1)[:, 0].float()


def score_triplets(
    context: EpochContext, measure: Measure, memory: TripletMemory, *, rest: bool = True
) -> Tensor:
    """Measure all training triplets, each among as many others as there are in a batch.

    A last batch that is short is filled up with triplets of the one before, or its losses would be lower than
    those of others.

    Args:
        context: gives the triplets in batches of a random order.
        measure: gives the losses of a batch.
        memory: says which triplets there are, and their order.
        rest: measure what fills no batch too; off, it keeps the loss 0.

    Returns:
        ``[N, K]`` float32 on the CPU, in the memory's order.
    """
    rows, values = [], []
    before: TripletBatch | None = None
    for batch in context.scoring():
        short = 0 if before is None else len(before) - len(batch)
        if short and not rest:
            continue
        losses = measure(batch if before is None or not short else _join(batch, before, short))
        rows.append(memory.rows(batch.triplet_ids))
        values.append(losses[: len(batch)].float().cpu())
        before = batch
    scores = torch.zeros(len(memory), values[0].shape[1])
    scores[torch.cat(rows)] = torch.cat(values)
    return scores


def remembered_division(
    memory: TripletMemory | None, batch: TripletBatch, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return which triplets of a batch are held clean, ``[B]`` bool, and their chances, ``[B]``."""
    if memory is None:
        raise ValueError("triplets are divided by what is remembered of them: call remember() first")
    noisy = memory.read("noisy", batch.triplet_ids, device=device, latest=True)
    return ~noisy, memory.read("clean", batch.triplet_ids, device=device, latest=True)


def _join(batch: TripletBatch, before: TripletBatch, count: int) -> TripletBatch:
    """Add the first ``count`` triplets of another batch."""
    return replace(
        batch,
        triplet_ids=batch.triplet_ids + before.triplet_ids[:count],
        texts=batch.texts + before.texts[:count],
        reference_tokens=torch.cat([batch.reference_tokens, before.reference_tokens[:count]]),
        target_tokens=torch.cat([batch.target_tokens, before.target_tokens[:count]]),
    )
