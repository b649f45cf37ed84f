"""HABIT: trust a triplet by what its features tell of each other, and by what it was like before."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from triptych.backbones.base import Backbone, BackboneShape
from triptych.methods.about.habit import ABLATIONS, PRESETS
from triptych.methods.about.habit import HABIT as ABOUT
from triptych.methods.base import Losses, Method, TripletBatch
from triptych.methods.config import MethodConfig
from triptych.methods.habit_history import History, Past
from triptych.objectives import (
    MarginShape,
    consistency,
    estimate_cleanliness,
    info_nce,
    lowest_loss,
    robust_contrastive,
    similarity,
    soft_margin,
    transition_rates,
    trusted_mask,
)
from triptych.randomness import torch_generator


class HabitConfig(MethodConfig):
    """Switches of :class:`Habit`; specification, sections 9 and 12."""

    presets: ClassVar = PRESETS

    w_soft: float = Field(0.5, ge=0, description="weight γ of L_soft; released 0.1; 0 drops it (D12)")
    w_kl: float = Field(10.0, ge=0, description="weight κ of L_KL; 0 drops it and keeps no features (D5)")
    temperature: float = Field(0.07, gt=0, description="softmax temperature τ of L_rank; paper 0.1")
    robust: bool = Field(True, description="keep L_rank, eq. 8 (off: D11)")

    history: Literal["sample_bank", "fixed_batches", "released"] = Field(
        "sample_bank",
        description="sample_bank keeps each triplet's last visit; fixed_batches does too, and batches keep their "
        "triplets (those that filled no batch are never seen); released reads by place in the epoch: other triplets",
    )

    mutual_knowledge: bool = Field(
        True, description="estimate cleanliness, eqs. 2-4 (off: D3, all are clean and trusted)"
    )
    anchor: Literal["lowest_loss", "random"] = Field(
        "lowest_loss", description="standard sample: the triplet of least loss, or any of the batch (D1)"
    )
    relative_rates: bool = Field(True, description="divide by the standard sample's knowledge m0 (off: D2)")
    floor: float = Field(1e-3, gt=0, description="least m0 to divide by, in nats; released none")
    bins: int = Field(10, ge=2, description="bins of the histograms along each axis")

    mask: bool = Field(True, description="distrust outliers from the second epoch on, eq. 5 (off: D7)")
    past_outliers: bool = Field(True, description="only those that were outliers before too (off: D4)")
    dbscan: Literal["two_sided", "low_side"] = Field(
        "two_sided",
        description="outliers: on both sides, the cleanest too; or only those below the others' median",
    )
    eps: float = Field(0.01, gt=0, description="DBSCAN's radius, in units of cleanliness")
    min_samples: int = Field(
        10,
        ge=1,
        description="triplets within the radius that make a dense range; in a batch of fewer, all are outliers",
    )
    mask_robust: bool = Field(True, description="mask L_rank (off: D8)")
    mask_soft: bool = Field(True, description="mask L_soft (off: D9)")
    mask_kl: bool = Field(True, description="mask L_KL (off: D10)")

    margin: float = Field(
        0.2, ge=0, description="margin m of a triplet that is surely clean; released 0.5 (with w_soft = 0.1)"
    )
    margin_shape: MarginShape = Field(
        "exponential", description="how the margin grows with cleanliness, eq. 10; none = the same for all"
    )
    mask_hinge: bool = Field(
        True, description="a distrusted triplet has no hinge; off, as released: no margin, but it is pulled"
    )

    kl_weights: Literal["cleanliness", "mask"] = Field(
        "cleanliness",
        description="what weighs similarities: cleanliness, or the mask alone as printed in eq. 6",
    )
    kl_pairing: Literal["own", "crossed"] = Field(
        "own", description="each side with the weights of its time; or (released) of the other's"
    )
    kl_reduction: Literal["element", "row"] = Field(
        "element", description="mean over all entries (released), or over rows, B times as much (paper)"
    )

    @model_validator(mode="after")
    def _check(self) -> HabitConfig:
        if self.w_soft == 0 and not self.robust:
            raise ValueError("w_soft = 0 without L_rank: nothing would rank the targets")
        return self


class Habit(Method):
    """HABIT (AAAI 2026): trust a triplet by what its features tell of each other, and by what it was like before.

    Adds no weights. Keeps a :class:`~triptych.methods.habit_history.History` of each triplet's last visit, 16 902
    bytes a triplet at Q = 32, D = 256, unless no term looks back (D6); :meth:`losses` reads it, then writes it.
    """

    name = "habit"
    paper = "HABIT: Chrono-Synergia Robust Progressive Learning Framework for Composed Image Retrieval (AAAI 2026)"
    summary = (
        "Distrusts triplets that are outliers now and were before, by mutual information of their features."
    )
    about = ABOUT
    ablations = ABLATIONS
    Config = HabitConfig
    captions = "fixed"

    config: HabitConfig

    def __init__(self, config: HabitConfig, shape: BackboneShape, *, seed: int = 0) -> None:
        super().__init__(config, shape, seed=seed)
        self.fixed_batches = config.history == "fixed_batches"
        self.history: History | None = None

    def remember(self, triplet_ids: Sequence[str], folder: Path | None = None) -> None:
        """Make the history, with as much as the terms read of it."""
        config = self.config
        masked = config.mask and config.past_outliers and config.mutual_knowledge
        if masked or config.w_kl > 0:
            self.history = History(
                triplet_ids,
                self.shape,
                features=config.w_kl > 0,
                by_position=config.history == "released",
                folder=folder,
            )
            self.memory = self.history.memory

    def losses(self, batch: TripletBatch, backbone: Backbone) -> Losses:
        """Return L_rank + γ L_soft + κ L_KL (eq. 9): ``robust``, ``soft`` and, from the second epoch, ``kl``.

        A training step: afterwards the history is of this visit.
        """
        config = self.config
        composed = backbone.compose(batch.reference_tokens, batch.texts)  # c and C, eq. 1
        targets = backbone.targets(batch.target_tokens)  # t
        s = similarity(composed.vector, targets)  # once
        e = self._estimate(batch, composed.tokens, targets, s)
        past = self.history.recall(batch, s.device) if self.history is not None and self.epoch > 0 else None
        m = self._mask(e, past)

        terms = Losses()
        terms.trust(e)
        if self.delayed and config.w_soft == 0:
            terms.add(infonce=info_nce(s, temperature=config.temperature))
        elif config.robust and not self.delayed:
            rows = m if config.mask_robust else None
            terms.add(robust=robust_contrastive(s, temperature=config.temperature, mask=rows))  # eq. 8
        if config.w_soft > 0:
            hinge = soft_margin(
                s,
                e,
                mask=m if config.mask_soft else None,
                margin=config.margin,
                shape=config.margin_shape,
                mask_hinge=config.mask_hinge,
            )  # eqs. 7, 10
            terms.add(soft=hinge, weight=config.w_soft)
        if config.w_kl > 0 and past is not None:
            terms.add(kl=self._consistency(s, e, m, past), weight=config.w_kl)  # eq. 6
        if self.history is not None:
            self.history.keep(batch, e, m, composed.vector, targets)

        terms.observe_match(s, config.temperature)
        terms.observe(cleanliness=e, trusted=m)
        return terms

    @torch.no_grad()
    def cleanliness(self, batch: TripletBatch, backbone: Backbone) -> Tensor:
        """Give e of eq. 4, ``[B]``: 1 for the batch's standard sample, and less the more another one differs."""
        composed = backbone.compose(batch.reference_tokens, batch.texts)
        targets = backbone.targets(batch.target_tokens)
        return self._estimate(batch, composed.tokens, targets, similarity(composed.vector, targets))

    def _estimate(self, batch: TripletBatch, composed: Tensor, targets: Tensor, s: Tensor) -> Tensor:
        """Give e ``[B]`` in (0, 1] from C, t ``[B, Q, D]`` and s (eqs. 2-4); no gradient."""
        config = self.config
        if not config.mutual_knowledge:
            return torch.ones(len(s), device=s.device)
        if not (s.isfinite().all() and composed.isfinite().all()):
            return torch.zeros(len(s), device=s.device)  # training has diverged: the losses will say so
        if config.anchor == "random":
            draws = torch_generator(batch.generator.initial_seed(), self.name, "anchor")
            anchor = torch.randint(len(s), (), generator=draws)
        else:
            anchor = lowest_loss(s.detach(), temperature=config.temperature)
        rates = transition_rates(
            composed, targets, anchor, bins=config.bins, relative=config.relative_rates, floor=config.floor
        )
        return estimate_cleanliness(rates)

    def _mask(self, e: Tensor, past: Past | None) -> Tensor:
        """Give m ``[B]`` bool (eq. 5); all are trusted in the first epoch, and where nothing is estimated."""
        config = self.config
        trusted = partial(
            trusted_mask, e, sides=config.dbscan, eps=config.eps, min_samples=config.min_samples
        )
        judged = self.epoch > 0 and config.mask and config.mutual_knowledge
        if judged and not config.past_outliers:
            return trusted()
        if judged and past is not None:
            return trusted(past.cleanliness, remembered=past.known)
        return torch.ones(len(e), dtype=torch.bool, device=e.device)

    def _consistency(self, s: Tensor, e: Tensor, m: Tensor, past: Past) -> Tensor:
        config = self.config
        assert past.similarity is not None  # features are kept wherever there is L_KL
        weights = e, past.cleanliness
        if config.kl_weights == "mask":
            everyone = torch.ones_like(e)
            weights = everyone, past.trusted.to(e) if config.mask_kl else everyone
        return consistency(
            s,
            past.similarity,
            *weights,
            mask=m if config.mask_kl else None,
            remembered=past.known,
            pairing=config.kl_pairing,
            reduction=config.kl_reduction,
        )
