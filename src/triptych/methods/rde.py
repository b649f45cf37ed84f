"""RDE: two views of a pair, and trust where both agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from triptych.backbones.base import Backbone, BackboneShape
from triptych.methods.about.rde import PRESETS
from triptych.methods.about.rde import RDE as ABOUT
from triptych.methods.base import EpochContext, Losses, Method, TripletBatch
from triptych.methods.config import MethodConfig
from triptych.methods.layers.token_selection import TokenSelection
from triptych.methods.memory import TripletMemory
from triptych.methods.partition import FIELDS, Posterior, remembered_division, score_triplets
from triptych.objectives import (
    consensus,
    full_precision,
    info_nce,
    likely_clean,
    rde_fit,
    similarity,
    toss,
    triplet_alignment,
)
from triptych.randomness import torch_generator


class RDEConfig(MethodConfig):
    """Switches of :class:`RDE`; specification, section 7."""

    presets: ClassVar = PRESETS

    temperature: float = Field(0.015, gt=0, description="τ of the smooth maximum over the negatives")
    margin: float = Field(0.1, ge=0, description="m, by which a pair must stand above them")
    ratio: float = Field(0.3, gt=0, le=1, description="share of the tokens that the second branch selects")
    reduction: Literal["mean", "sum"] = Field(
        "mean",
        description="mean over the batch, or the sum (released), which multiplies the rate by the batch",
    )
    warmup_epochs: int = Field(
        1,
        ge=0,
        description="first epochs, in which every triplet is held clean; released 0: it divides by chance",
    )
    expected_noise: float = Field(
        0.2,
        ge=0,
        le=1,
        description="share of wrong triplets that is expected; above 0.4 the mixture is fitted longer",
    )


class RDE(Method):
    """RDE (CVPR 2024), adapted to composed queries: a global and a token-selecting branch divide and rank together.

    Adds a token selection for each side. Queries and targets of both branches are laid side by side, so that their
    product is the mean of the two similarities.
    """

    name = "rde"
    paper = "Noisy-Correspondence Learning for Text-to-Image Person Re-identification (CVPR 2024)"
    summary = "Trusts a pair where two branches agree, and keeps it above a smooth maximum of its negatives."
    about = ABOUT
    Config = RDEConfig
    captions = "random4"

    config: RDEConfig

    def __init__(self, config: RDEConfig, shape: BackboneShape, *, seed: int = 0) -> None:
        super().__init__(config, shape, seed=seed)
        self.select_words, self.select_looks = (
            TokenSelection(
                shape.hidden, shape.dim, ratio=config.ratio, generator=torch_generator(seed, self.name, side)
            )
            for side in ("words", "looks")
        )
        self.posteriors = nn.ModuleList([Posterior(), Posterior()])

    def remember(self, triplet_ids: Sequence[str], folder: Path | None = None) -> None:
        """Keep the division of the training triplets."""
        self.memory = TripletMemory(triplet_ids, FIELDS, folder)

    def divides(self, epoch: int) -> bool:
        """Say whether an epoch starts with a division."""
        return epoch >= max(self.config.warmup_epochs, self.config.robust_from_epoch)

    def begin_epoch(self, context: EpochContext) -> None:
        """Divide the triplets: clean where both branches say so, noisy where both do, else by a coin."""
        super().begin_epoch(context)
        epoch = context.epoch
        if not self.divides(epoch) or context.resumed:
            return
        if self.memory is None:
            raise ValueError("rde keeps its division of the triplets: call remember() first")
        losses = score_triplets(context, lambda batch: self._score(batch, context.backbone), self.memory)
        options = rde_fit(self.config.expected_noise)
        chances = [
            posterior.fit(branch, seed=epoch, options=options)
            for posterior, branch in zip(self._posteriors(), losses.T, strict=True)
        ]
        coins = toss(len(losses), torch_generator(context.seed, self.name, "coins", epoch))
        votes = [likely_clean(each, never_all=True) for each in chances]
        clean = consensus(votes[0], votes[1], coins)
        self.memory.write(self.memory.triplet_ids, noisy=~clean, clean=(chances[0] + chances[1]) / 2)

    def losses(self, batch: TripletBatch, backbone: Backbone) -> Losses:
        """Return ŷ TAL of both branches: ``robust_global`` and ``robust_selected`` per triplet."""
        branches = self._branches(batch, backbone)
        s = (branches[0] + branches[1]) / 2

        terms, chances = Losses(), None
        if self.delayed:
            terms.add(infonce=info_nce(s))
        else:
            clean = torch.ones(len(batch), dtype=torch.bool, device=s.device)
            if self.divides(self.epoch):
                clean, chances = remembered_division(self.memory, batch, s.device)
            kept = [self._align(branch).masked_fill(~clean, 0.0) for branch in branches]
            weight = len(batch) if self.config.reduction == "sum" else 1.0
            terms.add(robust_global=kept[0], robust_selected=kept[1], weight=weight)

        if chances is not None:
            terms.trust(chances)
        terms.observe_match(s)
        return terms

    def query(self, tokens: Tensor, texts: Sequence[str], backbone: Backbone) -> Tensor:
        """Embed queries: [c, v] / √2, ``[B, 2D]``, unit rows."""
        return _beside(*self._compose(tokens, texts, backbone))

    def text_query(self, texts: Sequence[str], backbone: Backbone) -> Tensor:
        """Embed texts that have no reference: the global branch alone, ``[B, 2D]``."""
        texts_alone = full_precision(backbone.text(texts))
        return torch.cat([texts_alone, torch.zeros_like(texts_alone)], dim=-1)

    def targets(self, tokens: Tensor, backbone: Backbone) -> Tensor:
        """Embed a gallery: [t_q, w] / √2, ``[N, Q, 2D]``, unit rows."""
        whole, selected = self._look(tokens, backbone)
        return _beside(whole, selected.expand_as(whole))

    @torch.no_grad()
    def cleanliness(self, batch: TripletBatch, backbone: Backbone) -> Tensor:
        """Give the mean of both branches' chances to be clean, ``[B]``; before a division the annotated probability."""
        if not self._posteriors()[0].ready:
            return super().cleanliness(batch, backbone)
        losses = self._score(batch, backbone)
        chances = [posterior(branch) for posterior, branch in zip(self._posteriors(), losses.T, strict=True)]
        return torch.stack(chances).mean(dim=0)

    def _branches(self, batch: TripletBatch, backbone: Backbone) -> tuple[Tensor, Tensor]:
        """Compare queries and targets in both branches, ``[B, B]`` each."""
        queries = self._compose(batch.reference_tokens, batch.texts, backbone)
        targets = self._look(batch.target_tokens, backbone)
        return similarity(queries[0], targets[0]), similarity(queries[1], targets[1])

    def _compose(self, tokens: Tensor, texts: Sequence[str], backbone: Backbone) -> tuple[Tensor, Tensor]:
        """Embed queries: c ``[B, D]``, and v ``[B, D]`` of the words that the first position attends to most."""
        composed = backbone.compose(tokens, texts, attention=True)
        assert composed.attention is not None
        first = self.shape.queries
        attention = composed.attention[:, first, first:]
        return composed.vector, self.select_words(composed.hidden[:, first:], attention, composed.text_mask)

    def _look(self, tokens: Tensor, backbone: Backbone) -> tuple[Tensor, Tensor]:
        """Embed targets: t ``[B, Q, D]``, and w ``[B, 1, D]`` of the query tokens that are attended to most."""
        looks, attention = backbone.look_attentively(backbone.vision(tokens))
        return backbone.as_targets(looks), self.select_looks(looks, attention.mean(dim=1))[:, None]

    def _align(self, branch: Tensor) -> Tensor:
        return triplet_alignment(branch, temperature=self.config.temperature, margin=self.config.margin)

    def _score(self, batch: TripletBatch, backbone: Backbone) -> Tensor:
        """Give the losses of both branches, ``[B, 2]``."""
        return torch.stack([self._align(branch) for branch in self._branches(batch, backbone)], dim=1)

    def _posteriors(self) -> list[Posterior]:
        return [each for each in self.posteriors if isinstance(each, Posterior)]


def _beside(first: Tensor, second: Tensor) -> Tensor:
    """Lay unit rows side by side, such that products of the results are means of products."""
    return torch.cat([full_precision(first), full_precision(second)], dim=-1) * math.sqrt(0.5)
