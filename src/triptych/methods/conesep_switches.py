"""ConeSep's switches, and which of them contradict."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from triptych.methods.about.conesep import PRESETS
from triptych.methods.conesep_boundary import Captions, Pictures
from triptych.methods.config import MethodConfig

HIGHEST = {"released": 0.25, "x2_1mx_nomax": 4 / 27, "eq3": 0.0}
"""The most that a form of fidelity gives, for similarities up to 1 above the floor."""
ONLY_CONSISTENT = (
    "btu_negatives",
    "btu_neg_logits",
    "btu_marginals",
    "btu_plan",
    "directions",
    "eps",
    "iterations",
)
"""Switches that ``unlearning = "released"`` does not have."""


class ConeSepConfig(MethodConfig):
    """Switches of :class:`ConeSep`; specification, sections 11 and 12."""

    presets: ClassVar = PRESETS

    zeta: float = Field(0.5, ge=0, description="weight ζ of L_intra; released 0.8; 0 drops it (D9)")
    nu: float = Field(0.5, ge=0, description="weight ν of L_inter, in the first phase; 0 drops it")
    kappa: float = Field(0.5, ge=0, description="weight κ of L_ul, in the second phase; 0 drops it (D13)")
    temperature: float = Field(0.07, gt=0, description="softmax temperature τ")
    robust: bool = Field(True, description="keep L_rob, eq. 4 (off: D14)")
    warmup_epochs: int = Field(
        2,
        ge=0,
        description="N, epochs of the first phase (negative boundary learning), in whose first all are clean",
    )

    fidelity: Literal["smoothstep", "released", "eq3", "x2_1mx_nomax"] = Field(
        "smoothstep",
        description="fidelity grows with the similarity from the floor to the batch's clean level; released and "
        "eq3 do not: the former is 0 for the best match, the latter nowhere above 0; nor x2_1mx_nomax beyond 2/3",
    )
    partition: Literal["threshold", "quantile", "none", "random"] = Field(
        "threshold",
        description="noisy are those with a fidelity below ω; or (released) the lowest share ω of every batch, "
        "at any noise; none (D5); a random share ω",
    )
    omega: float = Field(0.5, ge=0, le=1, description="ω, a fidelity or a share")
    nbl_clean_only: bool = Field(
        True, description="L_intra and L_inter of clean triplets only; off, as released: of all"
    )

    boundary: Literal["gaussian", "uniform", "laplace", "empirical", "zero"] = Field(
        "gaussian",
        description="floor 𝔹: similarity of pictures of random pixels (three laws of the same variance), of the "
        "batch's other pairs (no pass), or 0 (D4)",
    )
    boundary_draws: int = Field(
        4, ge=0, description="K random queries and targets; 0 = the batch size (released)"
    )
    boundary_every: int = Field(
        1, ge=1, description="steps of an epoch from one draw of a random floor to the next"
    )
    boundary_reference: Pictures = Field("random", description="real: references of the batch (D2)")
    boundary_target: Pictures = Field("random", description="real: targets of the batch, rolled by one (D1)")
    boundary_text: Captions = Field(
        "random", description="captions of the batch; empty (D3); own is the same up to sampling error"
    )
    boundary_pairs: Literal["own", "all"] = Field(
        "own", description="K pairs, or (released) every query with every target"
    )
    boundary_dropout: bool = Field(False, description="draw the floor with dropout (released)")

    neg_prompt: Literal["own", "shared"] = Field(
        "own", description="query tokens of the negative query: P_neg, or the backbone's (D10)"
    )
    neg_text: Literal["prefixed", "plain"] = Field(
        "prefixed",
        description="text of the negative query: the caption after one of 25 negations (released), or as it is",
    )
    neg_phrase: Literal["caption", "step"] = Field(
        "caption",
        description="how often a negation is drawn: once for each caption, so that lite's frozen text tower reads "
        "as many texts again, once; or at each step, where lite reads a batch of new texts each time (as long as the "
        "rest of the step, or longer); neg_text = plain costs nothing",
    )

    intra_bounds: Literal["batch", "constants", "eq7", "released"] = Field(
        "batch",
        description="interval of the cosine in L_intra: from the batch, as the text says; the released constants; "
        "eq. 7 as printed (mirrored); released bounds every product of coordinates of all pairs instead",
    )
    inter: Literal["eq6", "released"] = Field(
        "eq6", description="L_inter on logits; released: on probabilities, with next to no gradient"
    )
    signs: Literal["opposite", "plus", "minus", "zero"] = Field(
        "opposite", description="signs T of L_inter: 1 for the own target and -1 for others; D6, D7, D8"
    )

    unlearning: Literal["consistent", "released"] = Field(
        "consistent", description="L_ul on one scale; released mixes scales and hardly has a gradient"
    )
    gamma: float = Field(
        0.7, ge=0, le=1, description="share γ of the plan in the labels; 0 = no transport (D12)"
    )
    btu_negatives: bool = Field(True, description="transport to negative queries too (off: D11)")
    btu_neg_logits: Literal["cneg", "negt"] = Field(
        "cneg",
        description="right half of L_ul's logits: of queries (eq. 9) or targets (eq. 12) with negative queries",
    )
    btu_marginals: Literal["uniform", "partition"] = Field(
        "uniform", description="mass of the columns; partition: for clean targets and noisy negatives only"
    )
    btu_plan: Literal["row_normalised", "raw"] = Field(
        "row_normalised", description="the plan's rows sum to 1, or (eq. 11) to 1/B, next to nothing"
    )
    directions: Literal["rows", "both"] = Field(
        "rows", description="L_ul of the queries; both: and of the columns"
    )
    eps: float = Field(0.03, gt=0, description="weight ε of the plan's entropy")
    iterations: int = Field(100, ge=1, description="most iterations for the plan")

    @model_validator(mode="after")
    def _check(self) -> ConeSepConfig:
        if not self.robust and self.kappa == 0:
            raise ValueError("kappa = 0 without L_rob: nothing would rank the targets")
        highest = HIGHEST.get(self.fidelity, 1.0)
        if self.partition == "threshold" and self.omega > highest:
            raise ValueError(
                f'fidelity = "{self.fidelity}" gives {highest:.3g} at most: with partition = "threshold" and '
                f'omega = {self.omega:g} all would be noisy; use partition = "quantile", or another omega'
            )
        if self.inter == "released" and self.signs != "opposite":
            raise ValueError(f'inter = "released" has no signs = "{self.signs}": leave out one of the two')
        for switch in ONLY_CONSISTENT if self.unlearning == "released" else ():
            value = getattr(self, switch)
            if value != type(self).model_fields[switch].default:
                raise ValueError(
                    f'unlearning = "released" has no {switch} = {value!r}: leave out one of the two'
                )
        return self
