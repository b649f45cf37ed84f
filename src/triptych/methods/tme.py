"""TME: match only triplets held clean, and learn from prompt and visual difference beside them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from triptych.backbones.base import Backbone, BackboneShape
from triptych.methods.about.tme import PRESETS
from triptych.methods.about.tme import TME as ABOUT
from triptych.methods.base import EpochContext, Losses, Method, Phase, TripletBatch
from triptych.methods.config import MethodConfig
from triptych.methods.layers.linear import linear
from triptych.methods.layers.prompt import prompt_tokens
from triptych.methods.memory import TripletMemory
from triptych.methods.partition import FIELDS, Posterior, remembered_division, score_triplets
from triptych.methods.temperature import Temperature
from triptych.objectives import (
    full_precision,
    info_nce,
    likely_clean,
    low_losses,
    lowest_losses,
    match_probabilities,
    partitioned_contrastive,
    semantic_alignment,
    similarity,
)
from triptych.randomness import torch_generator

Stage = Literal["qformer", "proj", "last", "divided"]


class TMEConfig(MethodConfig):
    """Switches of :class:`TME`; specification, section 8."""

    presets: ClassVar = PRESETS

    gamma: float = Field(1.0, ge=0, description="weight γ of L_pm, the prompt's matching; 0 drops it")
    alpha: float = Field(1.0, ge=0, description="weight α of L_sa, the semantic alignment; 0 drops it")
    beta: float = Field(
        0.1,
        ge=0,
        description="weight β of L_rd, the difference's matching: 0.1 on FashionIQ, 0.2 on CIRR; 0 drops it",
    )
    temperature: float = Field(0.07, gt=0, description="softmax temperature τ, or where learning it starts")
    learnable_temperature: bool = Field(True, description="learn τ, used from 0.01 up")

    qformer_epochs: int = Field(3, ge=0, description="first epochs: only L_rm, on every triplet")
    proj_epochs: int = Field(
        2, ge=0, description="next epochs: only W_Δ and P learn, from L_pm, L_sa and L_rd, at a constant rate"
    )
    last_epochs: int = Field(
        1, ge=0, description="next epochs: all losses, on every triplet; then it divides them"
    )

    first_loss: Literal["rcl", "infonce"] = Field(
        "rcl", description="loss of every triplet until the first division"
    )
    positive_loss: Literal["rcl", "infonce", "none"] = Field(
        "rcl", description="loss of the triplets held clean"
    )
    negative_loss: Literal["rcl", "infonce", "none"] = Field("none", description="loss of those held noisy")
    positive_weight: float = Field(1.0, ge=0, le=1, description="w: the noisy part weighs 1 - w")
    align: Literal["mse", "smoothl1"] = Field("mse", description="distance of L_sa")
    masked_mean: bool = Field(
        False, description="mean word embedding of L_sa over the words only, not over the padding too"
    )

    partitioner: Literal["gmm", "percent", "direct", "all_positive"] = Field(
        "gmm",
        description="who is clean: gmm by a mixture of two Gaussians; percent all but the noisy_share worst; "
        "direct those with a rescaled loss below threshold; all_positive everyone",
    )
    noisy_share: float = Field(0.2, ge=0, le=1, description="share of the triplets that percent holds noisy")
    threshold: float = Field(
        0.5, gt=0, le=1, description="rescaled loss from which direct holds a triplet noisy"
    )
    score: Literal["batch", "cosine"] = Field(
        "batch", description="divide by -log p among a batch's targets, or by the similarity alone"
    )
    score_rest: bool = Field(
        True,
        description="score what fills no batch too; off (released): its loss stays 0, so it is held clean",
    )

    @model_validator(mode="after")
    def _check(self) -> TMEConfig:
        if self.positive_loss == "none" and (self.negative_loss == "none" or self.positive_weight == 1):
            raise ValueError(
                'positive_loss = "none" needs a negative_loss and positive_weight < 1, or nothing ranks the targets'
            )
        if self.proj_epochs and not self.gamma and not self.alpha and not self.beta:
            raise ValueError(
                "proj_epochs with gamma = alpha = beta = 0: nothing would be learned; set proj_epochs = 0"
            )
        return self


class TME(Method):
    """TME (CVPR 2025): divide triplets by their loss, and let prompt and visual difference teach beside the matching.

    Adds the learned prompt P, the projection W_Δ of the difference of two pictures, and the temperature τ.
    """

    name = "tme"
    paper = "Learning with Noisy Triplet Correspondence for Composed Image Retrieval (CVPR 2025)"
    summary = (
        "Divides triplets by a mixture on their losses, matches the clean ones, and learns from what changed between "
        "the pictures."
    )
    about = ABOUT
    Config = TMEConfig
    captions = "random4"

    config: TMEConfig

    def __init__(self, config: TMEConfig, shape: BackboneShape, *, seed: int = 0) -> None:
        super().__init__(config, shape, seed=seed)
        self.prompt = prompt_tokens(
            shape.queries, shape.hidden, torch_generator(seed, self.name, "prompt")
        )  # P
        width = shape.image_width
        self.difference = linear(width, width, torch_generator(seed, self.name, "difference"))  # W_Δ
        self.temperature = Temperature(config.temperature, learnable=config.learnable_temperature)
        self.posterior = Posterior()

    def remember(self, triplet_ids: Sequence[str], folder: Path | None = None) -> None:
        """Keep the division of the training triplets."""
        self.memory = TripletMemory(triplet_ids, FIELDS, folder)

    def stage(self, epoch: int) -> Stage:
        """Say which phase an epoch belongs to."""
        config, end = self.config, 0
        lengths: tuple[tuple[Stage, int], ...] = (
            ("qformer", config.qformer_epochs),
            ("proj", config.proj_epochs),
            ("last", config.last_epochs),
        )
        for stage, length in lengths:
            end += length
            if epoch < end:
                return stage
        return "divided"

    def phase(self, epoch: int) -> Phase:
        """Let only W_Δ and P learn in the second phase."""
        if self.stage(epoch) != "proj":
            return Phase()
        return Phase(only=("method.prompt", "method.difference"), constant_rate=True)

    def divides(self, epoch: int) -> bool:
        """Say whether an epoch starts with a division."""
        return self.stage(epoch) == "divided" and self.config.partitioner != "all_positive"

    def begin_epoch(self, context: EpochContext) -> None:
        """Divide the triplets by their losses under the present weights."""
        super().begin_epoch(context)
        if not self.divides(context.epoch) or context.resumed:
            return
        if self.memory is None:
            raise ValueError("tme keeps its division of the triplets: call remember() first")
        config = self.config
        scores = score_triplets(
            context,
            lambda batch: self._score(batch, context.backbone)[:, None],
            self.memory,
            rest=config.score_rest,
        )[:, 0]
        if config.partitioner == "gmm":
            chances = self.posterior.fit(scores, seed=context.epoch)
            clean = likely_clean(chances)
        else:
            self.posterior.span(scores)
            chances = self.posterior(scores)
            if config.partitioner == "percent":
                clean = lowest_losses(scores, noisy=config.noisy_share)
            else:
                clean = low_losses(scores, threshold=config.threshold)
        self.memory.write(self.memory.triplet_ids, noisy=~clean, clean=chances)

    def losses(self, batch: TripletBatch, backbone: Backbone) -> Losses:
        """Return L_rm + γ L_pm + α L_sa + β L_rd: ``robust``, ``prompt``, ``align``, ``difference`` per triplet."""
        config, stage, device = self.config, self.stage(self.epoch), batch.reference_tokens.device
        everyone = torch.ones(len(batch), dtype=torch.bool, device=device)
        clean, chances = everyone, None
        if self.divides(self.epoch):
            clean, chances = remembered_division(self.memory, batch, device)
        contrast = self._contrast(stage)
        reference, target = backbone.vision(batch.reference_tokens), backbone.vision(batch.target_tokens)
        looks, targets = backbone.look(reference), backbone.as_targets(backbone.look(target))  # R, t

        terms, ranking = Losses(), None
        if stage != "proj":
            ranking = similarity(backbone.refine(looks, batch.texts).vector, targets)
            name = "infonce" if self.delayed else "robust"
            terms = Losses(**{name: contrast(ranking, clean)})  # L_rm
        if stage != "qformer":
            if config.gamma > 0:
                prompted = similarity(backbone.prompt(self.prompt[0], batch.texts), targets)
                terms.add(prompt=contrast(prompted, clean), weight=config.gamma)  # L_pm
                ranking = prompted if ranking is None else ranking
            if config.alpha > 0 or config.beta > 0:
                changed = target - reference
                changes = backbone.look(self.difference(changed.to(self.difference.weight.dtype)))  # Δ, E
            if config.alpha > 0:
                anchor = self._mean_word(batch.texts, backbone)
                aligned = semantic_alignment(changes.mean(dim=1), anchor, clean, form=config.align)
                terms.add(align=aligned, weight=config.alpha)  # L_sa
            if config.beta > 0:
                described = similarity(backbone.refine(looks, changes).vector, targets)
                terms.add(difference=contrast(described, everyone), weight=config.beta)  # L_rd
        self._report(terms, ranking, chances)
        return terms

    def query(self, tokens: Tensor, texts: Sequence[str], backbone: Backbone) -> Tensor:
        """Embed queries: c = normalise(W_t QN(R, m)[Q]), two passes, ``[B, D]``."""
        return backbone.refine(backbone.image_pass(tokens), texts).vector

    @torch.no_grad()
    def cleanliness(self, batch: TripletBatch, backbone: Backbone) -> Tensor:
        """Give the chance to be clean by the last mixture, ``[B]``; before the first one the annotated probability.

        Without a mixture (``percent``, ``direct``) it is how low a loss stands in the range of all.
        """
        if self.posterior.ready:
            chances: Tensor = self.posterior(self._score(batch, backbone))
            return chances
        return match_probabilities(self._similarity(batch, backbone), self.temperature()).diagonal()

    def _contrast(self, stage: Stage) -> partial[Tensor]:
        """Bind the options of PC(s, ℓ); the first phases have one loss for all."""
        config, loss = self.config, partial(partitioned_contrastive, temperature=self.temperature())
        if self.delayed:
            return partial(loss, positive="infonce")
        if stage != "divided":
            return partial(loss, positive=config.first_loss)
        return partial(
            loss, positive=config.positive_loss, negative=config.negative_loss, weight=config.positive_weight
        )

    @torch.no_grad()
    def _mean_word(self, texts: Sequence[str], backbone: Backbone) -> Tensor:
        """Average the word embeddings of each text, ``[B, H]``."""
        words, mask = backbone.word_embeddings(texts)
        words = full_precision(words)
        if not self.config.masked_mean:
            return words.mean(dim=1)
        mask = mask.to(words)[..., None]
        return (words * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)

    def _similarity(self, batch: TripletBatch, backbone: Backbone) -> Tensor:
        queries = self.query(batch.reference_tokens, batch.texts, backbone)
        return similarity(queries, backbone.targets(batch.target_tokens))

    def _score(self, batch: TripletBatch, backbone: Backbone) -> Tensor:
        """Give what triplets are divided by, ``[B]``: low is clean."""
        s = self._similarity(batch, backbone)
        return -s.diagonal() if self.config.score == "cosine" else info_nce(s, temperature=self.temperature())

    def _report(self, terms: Losses, ranking: Tensor | None, chances: Tensor | None) -> None:
        if ranking is not None:
            if chances is not None:
                terms.trust(chances)
            terms.observe_match(ranking, self.temperature())
