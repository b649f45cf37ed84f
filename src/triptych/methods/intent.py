"""INTENT: stay invariant to the reference's look, and trust a pair by its rivals."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

from triptych.backbones.base import Backbone, BackboneShape
from triptych.methods.about.intent import ABLATIONS, PRESETS
from triptych.methods.about.intent import INTENT as ABOUT
from triptych.methods.base import Losses, Method, Needs, TripletBatch
from triptych.methods.config import MethodConfig
from triptych.methods.layers.linear import linear
from triptych.objectives import (
    DISTANCES,
    add_noise,
    full_precision,
    gaussian_blur,
    grayscale,
    jitter_colours,
    loyalty,
    mix_amplitude,
    query_axis_similarity,
    radius_window,
    random_mask,
    ratio_window,
    robust_contrastive,
    same_precision,
    shuffle_patches,
    similarity,
    soft_discriminative,
    transfer_style,
)
from triptych.randomness import torch_generator

FIRST_EPOCHS = 2
"""Epochs with counterfactuals under ``vic_schedule = "first2"``."""


class IntentConfig(MethodConfig):
    """Switches of :class:`Intent`; specification, sections 10 and 12."""

    presets: ClassVar = PRESETS

    mu: float = Field(0.2, ge=0, description="weight μ of L_sod; released 0.5; 0 drops it (B3)")
    alpha: float = Field(0.6, ge=0, description="weight α of L_caco; released 1.0; 0 drops the pass (A1)")
    temperature: float = Field(0.07, gt=0, description="softmax temperature τ of L_rob and of the loyalty")

    robust: bool = Field(True, description="keep L_rob, eq. 5 (off: B1)")
    mask_diagonal: bool = Field(
        True, description="leave the annotated pair out of L_rob (off: B2, repels it)"
    )

    sod: Literal["ce_scaled", "neglog"] = Field(
        "ce_scaled",
        description="L_sod: ce_scaled is cross-entropy on T times the loyalty (released); neglog is eq. 10, "
        "under which the negative reward has no effect",
    )
    scale: float = Field(10.0, gt=0, description="T of ce_scaled, where learning it starts")
    learnable_scale: bool = Field(True, description="learn T")
    positive_weight_reward: bool = Field(True, description="reward of annotated pairs, eq. 8 (off: A3)")
    negative_weight_reward: bool = Field(
        True, description="reward of negatives, eq. 7 (off: A4; both off: A5)"
    )
    loyalty_norm: Literal["D", "Q_released"] = Field(
        "D",
        description="similarity of the loyalty: D is the retrieval score; Q_released normalises the target "
        "tokens once more, over the token axis",
    )

    intervention: Literal["fft", "grayscale", "mask", "shuffle", "blur", "style", "none"] = Field(
        "fft",
        description="how the counterfactual is made: fft is the amplitude mix of eq. 1, grayscale A2, mask "
        "C1, shuffle C2, blur C3, style C4; none drops the pass (A1)",
    )
    vic_schedule: Literal["always", "first2"] = Field(
        "always", description="epochs with counterfactuals: all (paper) or the first two (released)"
    )
    irrelevant: Literal["random", "own_target"] = Field(
        "random",
        description="x_d: target image of another triplet of the batch, or the triplet's own (released)",
    )
    counterfactual_bank: int = Field(
        0,
        ge=0,
        description="variants cached for each reference image, 4 or more; 0 draws afresh at each step",
    )
    lambda_range: tuple[float, float] = Field(
        (0.0, 1.0), description="share λ of x_d is drawn evenly from here; the article has [0.3, 0.7]"
    )
    window: Literal["ratio", "px64"] = Field(
        "ratio", description="mixed part of the spectrum: window_ratio of it, or 64 px at 224 px (article)"
    )
    window_ratio: float = Field(
        0.5, ge=0, le=1, description="r of the window; released 1.0, the whole spectrum"
    )
    mix_clamp: Literal["unit", "released"] = Field(
        "unit", description="clamp the mix to [0, 1] as pixels, or (released) as normalised pixels"
    )
    jitter: float = Field(
        0.0, ge=0, le=1, description="random change of brightness and contrast beside the mix"
    )
    pixel_noise: float = Field(0.0, ge=0, le=1, description="deviation of Gaussian noise beside the mix")

    caco: Literal["cka", "mse", "l1", "l2"] = Field(
        "cka", description="distance of the two token sets: eq. 4, or B4, B5, B6"
    )
    cka_tokens: Literal["all", "pooled"] = Field(
        "all",
        description="compare the query tokens of each triplet, or their mean (article; CKA is then between "
        "the batch's triplets)",
    )

    @model_validator(mode="after")
    def _check(self) -> IntentConfig:
        low, high = self.lambda_range
        if not 0 <= low <= high <= 1:
            raise ValueError(f"lambda_range must be within [0, 1] and in order, got [{low}, {high}]")
        if self.mu == 0 and (not self.robust or self.robust_from_epoch):
            raise ValueError("mu = 0 without L_rob from the first epoch: nothing would rank the targets")
        if 0 < self.counterfactual_bank < 4:
            raise ValueError(f"counterfactual_bank must be 0 or at least 4, got {self.counterfactual_bank}")
        if self.counterfactual_bank and self.irrelevant == "own_target":
            raise ValueError(
                'counterfactual_bank is kept per image: it cannot go with irrelevant = "own_target"'
            )
        return self


class Intent(Method):
    """INTENT (AAAI 2026): stay invariant to the reference's look, and trust a pair by its rivals.

    Adds a projection W_cau of the query tokens and a scale T. Where the paper and its
    release differ, the choice is a switch; the defaults are the specification's recommendations.
    """

    name = "intent"
    paper = (
        "INTENT: Invariance and Discrimination-aware Noise Mitigation for Robust Composed Image Retrieval "
        "(AAAI 2026)"
    )
    summary = (
        "Composes alike when the reference's style is altered, and weighs a pair by its rivals in the batch."
    )
    about = ABOUT
    ablations = ABLATIONS
    Config = IntentConfig
    captions = "fixed"

    config: IntentConfig

    def __init__(self, config: IntentConfig, shape: BackboneShape, *, seed: int = 0) -> None:
        super().__init__(config, shape, seed=seed)
        self.counterfactual_bank = config.counterfactual_bank
        self.causal = linear(shape.hidden, shape.dim, torch_generator(seed, self.name, "causal"))  # W_cau
        self.scale = nn.Parameter(torch.tensor(config.scale), requires_grad=config.learnable_scale)  # T

    def needs(self, epoch: int) -> frozenset[Needs]:
        """Ask for pixels, or for cached counterfactuals, in epochs that intervene."""
        if not self.intervenes(epoch):
            return frozenset()
        return frozenset({"counterfactuals" if self.counterfactual_bank else "pixels"})

    def intervenes(self, epoch: int) -> bool:
        """Say whether an epoch has counterfactuals."""
        config = self.config
        scheduled = config.vic_schedule == "always" or epoch < FIRST_EPOCHS
        return scheduled and config.alpha > 0 and config.intervention != "none"

    def losses(self, batch: TripletBatch, backbone: Backbone) -> Losses:
        """Return L_rob + μ L_sod + α L_caco (eq. 11): ``robust``, ``sod`` and ``caco`` per triplet."""
        config = self.config
        composed = backbone.compose(batch.reference_tokens, batch.texts)  # F_c, eq. 2
        targets = backbone.targets(batch.target_tokens)  # F_t
        s = similarity(composed.vector, targets)  # once

        terms = Losses()
        released = config.loyalty_norm == "Q_released"
        scores = query_axis_similarity(composed.vector, targets) if released else s
        terms.trust(loyalty(scores.detach(), temperature=config.temperature).diagonal())
        if config.robust and not self.delayed:
            masked = config.mask_diagonal
            terms.add(
                robust=robust_contrastive(s, temperature=config.temperature, include_diagonal=not masked)
            )  # eq. 5
        if config.mu > 0:
            degrees = loyalty(
                scores,
                temperature=config.temperature,
                positive_reward=config.positive_weight_reward,
                negative_reward=config.negative_weight_reward,
            )  # eqs. 6-9
            terms.add(
                sod=soft_discriminative(degrees, form=config.sod, scale=self.scale), weight=config.mu
            )  # eq. 10
        if self.intervenes(self.epoch):
            altered = backbone.compose(
                self._counterfactual_tokens(batch, backbone), batch.texts
            )  # F̂_c, eq. 2
            distance = self._consistency(
                self._causal_tokens(composed.hidden), self._causal_tokens(altered.hidden)
            )
            terms.add(caco=distance, weight=config.alpha)  # eqs. 3, 4

        terms.observe_match(s, config.temperature)
        return terms

    @property
    def counterfactual_recipe(self) -> str:
        """Name how counterfactuals are made: a cached bank of another recipe is another bank."""
        config = self.config
        how = (config.intervention, config.lambda_range, config.window, config.window_ratio, config.mix_clamp)
        return f"{self.name}:{how}:{config.jitter}:{config.pixel_noise}"

    @torch.no_grad()
    def counterfactual(
        self,
        reference_pixels: Tensor,
        irrelevant_pixels: Tensor,
        backbone: Backbone,
        generator: torch.Generator,
    ) -> Tensor:
        """Draw a counterfactual x̂_r of each reference: its shapes, and a share of another picture's look.

        Args:
            reference_pixels: ``[B, 3, H, W]`` x_r in [0, 1].
            irrelevant_pixels: ``[B, 3, H, W]`` x_d in [0, 1].
            backbone: gives the channel means and deviations of its tower.
            generator: CPU generator of λ and of whatever else is random.

        Returns:
            ``[B, 3, H, W]`` in [0, 1], float32 at least.
        """
        config = self.config
        x, other = same_precision(reference_pixels, irrelevant_pixels)
        if config.intervention == "fft":
            x = self._mix(x, other, backbone, generator)
        elif config.intervention == "grayscale":
            x = grayscale(x)
        elif config.intervention == "mask":
            x = random_mask(x, generator, fill=backbone.pixel_mean)
        elif config.intervention == "shuffle":
            x = shuffle_patches(x, generator)
        elif config.intervention == "blur":
            x = gaussian_blur(x)
        elif config.intervention == "style":
            x = transfer_style(x, other)
        if config.jitter:
            x = jitter_colours(x, generator, strength=config.jitter)
        if config.pixel_noise:
            x = add_noise(x, generator, deviation=config.pixel_noise)
        return x

    @torch.no_grad()
    def cleanliness(self, batch: TripletBatch, backbone: Backbone) -> Tensor:
        """Give the loyalty of each annotated pair, ``[B]``: over ½ where it beats its strongest rival.

        Both rewards count, whatever the switches say, so that the scale stays the same.
        """
        queries = self.query(batch.reference_tokens, batch.texts, backbone)
        targets = backbone.targets(batch.target_tokens)
        score = query_axis_similarity if self.config.loyalty_norm == "Q_released" else similarity
        return loyalty(score(queries, targets), temperature=self.config.temperature).diagonal()

    def _counterfactual_tokens(self, batch: TripletBatch, backbone: Backbone) -> Tensor:
        if self.counterfactual_bank:
            if batch.counterfactual_tokens is None:
                raise ValueError("intent with a counterfactual_bank needs batch.counterfactual_tokens")
            return batch.counterfactual_tokens
        if batch.reference_pixels is None or batch.target_pixels is None:
            raise ValueError(
                "intent draws counterfactuals: it needs batch.reference_pixels and batch.target_pixels"
            )
        irrelevant = batch.target_pixels
        if self.config.irrelevant == "random":
            irrelevant = irrelevant[_derangement(len(batch), batch.generator).to(irrelevant.device)]
        with torch.no_grad():
            pixels = self.counterfactual(batch.reference_pixels, irrelevant, backbone, batch.generator)
            return backbone.encode_images(pixels)

    def _mix(self, x: Tensor, other: Tensor, backbone: Backbone, generator: torch.Generator) -> Tensor:
        config = self.config
        low, high = config.lambda_range
        share = (low + (high - low) * torch.rand(len(x), generator=generator)).to(x)  # λ, one a picture
        size = (x.shape[2], x.shape[3])
        window = radius_window(*size) if config.window == "px64" else ratio_window(*size, config.window_ratio)
        if config.mix_clamp == "unit":
            return mix_amplitude(x, other, share, window=window).clamp(0, 1)
        mean, deviation = (value.to(x)[:, None, None] for value in (backbone.pixel_mean, backbone.pixel_std))
        mixed = mix_amplitude((x - mean) / deviation, (other - mean) / deviation, share, window=window)
        return (mixed.clamp(0, 1) * deviation + mean).clamp(0, 1)

    def _causal_tokens(self, hidden: Tensor) -> Tensor:
        """Project the query positions, ``[B, Q + L, H]`` to ``[B, Q, D]``, unit rows."""
        queries = hidden[:, : self.shape.queries].to(self.causal.weight.dtype)
        return functional.normalize(full_precision(self.causal(queries)), dim=-1)

    def _consistency(self, factual: Tensor, altered: Tensor) -> Tensor:
        distance = DISTANCES[self.config.caco]
        if self.config.cka_tokens == "all":
            return distance(factual, altered)
        factual, altered = factual.mean(dim=1), altered.mean(dim=1)
        if self.config.caco == "cka":  # relations between triplets: one value, which all of them share
            return distance(factual[None], altered[None]).expand(len(factual))
        return distance(factual[:, None], altered[:, None])


def _derangement(size: int, generator: torch.Generator) -> Tensor:
    """Give each of ``size`` places another one, each other one equally likely; a lone place keeps itself."""
    circle = torch.randperm(size, generator=generator)
    partner = torch.empty_like(circle)
    partner[circle] = circle.roll(1)
    return partner
