"""ConeSep: judge a triplet by a floor of random inputs, and move what falls short to a negative query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from triptych.backbones.base import Backbone, BackboneShape
from triptych.methods.about.conesep import ABLATIONS
from triptych.methods.about.conesep import CONESEP as ABOUT
from triptych.methods.base import EpochContext, Losses, Method, TripletBatch
from triptych.methods.conesep_boundary import RandomInputs, random_boundary
from triptych.methods.conesep_switches import ConeSepConfig
from triptych.methods.negations import PHRASES, deny
from triptych.objectives import (
    empirical_boundary,
    fidelity,
    info_nce,
    low_fidelity,
    query_oriented,
    query_oriented_released,
    robust_contrastive,
    similarity,
    target_oriented,
    target_oriented_released,
    targeted_unlearning,
    targeted_unlearning_released,
)
from triptych.randomness import torch_generator


class ConeSep(Method):
    """ConeSep (2026): judge a triplet by a floor of random inputs, and move what falls short to a negative query.

    Adds P_neg, query tokens of the negative query, which start as the backbone's when training does.
    """

    name = "conesep"
    paper = "ConeSep: Cone-based Robust Noise-Unlearning Compositional Network for Composed Image Retrieval (2026)"
    summary = (
        "Grades triplets by the similarity of random inputs, and unlearns poor ones towards a negative query."
    )
    about = ABOUT
    ablations = ABLATIONS
    Config = ConeSepConfig
    captions = "fixed"

    config: ConeSepConfig
    floor: Tensor

    def __init__(self, config: ConeSepConfig, shape: BackboneShape, *, seed: int = 0) -> None:
        super().__init__(config, shape, seed=seed)
        self.negative_tokens: nn.Parameter | None = None  # P_neg
        if config.neg_prompt == "own":
            start = torch_generator(seed, self.name, "negative tokens")
            self.negative_tokens = nn.Parameter(torch.randn(shape.queries, shape.hidden, generator=start))
        self.register_buffer("floor", torch.zeros(()))  # 𝔹 as last drawn: a resumed run goes on with it

    @torch.no_grad()
    def begin_epoch(self, context: EpochContext) -> None:
        """Note the epoch; copy the backbone's query tokens to P_neg before the first step."""
        super().begin_epoch(context)
        if self.negative_tokens is not None and context.epoch == 0 and not context.resumed:
            self.negative_tokens.copy_(context.backbone.query_tokens[0])

    def reads(self, epoch: int, texts: Sequence[str]) -> Iterable[str]:
        """Name the denied captions, where they are known before the step."""
        config = self.config
        known = config.neg_text == "prefixed" and config.neg_phrase == "caption"
        return deny(texts) if known and self._negates(epoch) else ()

    def losses(self, batch: TripletBatch, backbone: Backbone) -> Losses:
        """Return L_rob + ζ L_intra + ν L_inter (eq. 8), after the first phase L_rob + κ L_ul + ζ L_intra.

        They are named ``robust``, ``intra``, ``inter`` and ``unlearn``.
        """
        config, tau = self.config, self.config.temperature
        c = backbone.compose(batch.reference_tokens, batch.texts).vector
        t = backbone.targets(batch.target_tokens)
        s = similarity(c, t)  # once
        degree, noisy = self._divide(s, t, batch, backbone)

        terms = Losses()
        terms.trust(degree)
        if config.robust and not self.delayed:
            terms.add(robust=robust_contrastive(s, temperature=tau))  # eq. 4
        elif config.robust and not self._unlearns(self.epoch):
            terms.add(infonce=info_nce(s, temperature=tau))
        n = self._negative(batch, backbone) if self._negates(self.epoch) else None  # eq. 5
        clean = ~noisy if config.nbl_clean_only else None
        if n is not None and config.zeta > 0:
            terms.add(intra=self._intra(c, n, clean), weight=config.zeta)  # eq. 7
        if n is not None and self._opposes(self.epoch):
            terms.add(inter=self._inter(similarity(n, t), clean), weight=config.nu)  # eq. 6
        if self._unlearns(self.epoch):
            terms.add(unlearn=self._unlearn(s, c, n, t, noisy), weight=config.kappa)

        terms.observe_match(s, tau)
        terms.observe(fidelity=degree, noisy=noisy, boundary=self.floor)
        return terms

    @torch.no_grad()
    def cleanliness(self, batch: TripletBatch, backbone: Backbone) -> Tensor:
        """Give the fidelity of each triplet, ``[B]``; 1 where no partition looks at it (D5).

        The floor is the one that a training step with the same generator draws. That of ``eq3`` is raised by 1.
        """
        t = backbone.targets(batch.target_tokens)
        s = similarity(self.query(batch.reference_tokens, batch.texts, backbone), t)
        if self.config.partition in ("none", "random"):
            return torch.ones(len(s), device=s.device)
        return self._in_unit_range(self._fidelity(s, self._boundary(s, t, batch, backbone)))

    @torch.no_grad()
    def negative_query(self, tokens: Tensor, texts: Sequence[str], backbone: Backbone) -> Tensor:
        """Compose n of reference tokens ``[B, P, V]`` and B texts for figures: ``[B, D]``, unit rows.

        Nothing is drawn: under ``neg_text = "prefixed"`` the first negation stands before every text
        (specification, section 13).
        """
        if self.config.neg_text == "prefixed":
            texts = [f"{PHRASES[0]} {text}" for text in texts]
        return backbone.compose(tokens, texts, self.negative_tokens).vector

    def _unlearns(self, epoch: int) -> bool:
        """Say whether an epoch has L_ul."""
        return epoch >= self.config.warmup_epochs and self.config.kappa > 0

    def _opposes(self, epoch: int) -> bool:
        """Say whether an epoch has L_inter."""
        return epoch < self.config.warmup_epochs and self.config.nu > 0

    def _negates(self, epoch: int) -> bool:
        """Say whether a term of an epoch reads the negative queries."""
        config = self.config
        return config.zeta > 0 or self._opposes(epoch) or (self._unlearns(epoch) and config.btu_negatives)

    def _divides(self, epoch: int) -> bool:
        """Say whether a term of an epoch reads the partition."""
        config = self.config
        restricted = (config.zeta > 0 and config.intra_bounds != "released") or (
            self._opposes(epoch) and config.inter != "released"
        )
        return self._unlearns(epoch) or (epoch > 0 and config.nbl_clean_only and restricted)

    def _divide(self, s: Tensor, t: Tensor, batch: TripletBatch, backbone: Backbone) -> tuple[Tensor, Tensor]:
        """Give how far each triplet is trusted ``[B]`` and which are noisy ``[B]`` bool; none where nothing asks."""
        config = self.config
        trust = torch.ones(len(s), device=s.device)
        if config.partition == "none" or not self._divides(self.epoch):
            return trust, torch.zeros(len(s), dtype=torch.bool, device=s.device)
        if config.partition == "random":
            draws = torch.rand(len(s), generator=batch.generator).to(s.device)
            return trust, low_fidelity(draws, omega=config.omega, rule="quantile")
        if batch.step % config.boundary_every == 0:
            self.floor.copy_(self._boundary(s, t, batch, backbone))
        degree = self._fidelity(s, self.floor)
        return self._in_unit_range(degree), low_fidelity(degree, omega=config.omega, rule=config.partition)

    def _boundary(self, s: Tensor, t: Tensor, batch: TripletBatch, backbone: Backbone) -> Tensor:
        """Estimate 𝔹 (eq. 2), a scalar."""
        config = self.config
        if config.boundary == "zero":
            return s.new_zeros(())
        if config.boundary == "empirical":
            return empirical_boundary(s)
        inputs = RandomInputs(
            law=config.boundary,
            draws=config.boundary_draws,
            reference=config.boundary_reference,
            target=config.boundary_target,
            text=config.boundary_text,
            all_pairs=config.boundary_pairs == "all",
            dropout=config.boundary_dropout,
        )
        draws = torch_generator(batch.generator.initial_seed(), self.name, "boundary")
        return random_boundary(batch, t, backbone, inputs, draws)

    def _fidelity(self, s: Tensor, boundary: Tensor) -> Tensor:
        return fidelity(s.diagonal(), boundary, form=self.config.fidelity)  # eq. 3

    def _in_unit_range(self, degree: Tensor) -> Tensor:
        return (degree + (self.config.fidelity == "eq3")).clamp(0, 1)

    def _negative(self, batch: TripletBatch, backbone: Backbone) -> Tensor:
        """Compose n ``[B, D]``, unit rows."""
        config = self.config
        texts: Sequence[str] = batch.texts
        if config.neg_text == "prefixed":
            texts = deny(texts, batch.generator if config.neg_phrase == "step" else None)
        return backbone.compose(batch.reference_tokens, texts, self.negative_tokens).vector

    def _intra(self, c: Tensor, n: Tensor, clean: Tensor | None) -> Tensor:
        bounds, tau = self.config.intra_bounds, self.config.temperature
        if bounds == "released":
            return query_oriented_released(c, n, temperature=tau)
        return query_oriented(c, n, clean, bounds=bounds, temperature=tau)

    def _inter(self, opposition: Tensor, clean: Tensor | None) -> Tensor:
        tau = self.config.temperature
        if self.config.inter == "released":
            return target_oriented_released(opposition, temperature=tau)
        return target_oriented(opposition, clean, signs=self.config.signs, temperature=tau)

    def _unlearn(self, s: Tensor, c: Tensor, n: Tensor | None, t: Tensor, noisy: Tensor) -> Tensor:
        """Give L_ul (eqs. 9-12) of s, the vectors c and n, and the targets t."""
        config, tau = self.config, self.config.temperature
        if config.unlearning == "released":
            assert n is not None
            return targeted_unlearning_released(
                s, similarity(n, t), noisy, gamma=config.gamma, temperature=tau
            )
        negative = logits = None
        if n is not None and config.btu_negatives:
            negative = similarity(c, n[:, None])  # S⁻
            logits = similarity(n, t) if config.btu_neg_logits == "negt" else None
        return targeted_unlearning(
            s,
            negative,
            noisy,
            negative_logits=logits,
            gamma=config.gamma,
            temperature=tau,
            marginals=config.btu_marginals,
            plan_form=config.btu_plan,
            directions=config.directions,
            eps=config.eps,
            iterations=config.iterations,
        )
