"""TME: what is said of it."""

from __future__ import annotations

from typing import Any

from triptych.methods.config import About, Difference

PRESETS: dict[str, dict[str, Any]] = {"released": {"score_rest": False}}

TME = About(
    idea="Fit a mixture of two Gaussians to the losses of all triplets and match only those of the low component. So "
    "that the others teach too, a learned prompt reads the text alone, and a visual difference, the Q-Former's view of "
    "target minus reference, stands in the place of the words: it finds the target whatever the text says.",
    sources="TME (CVPR 2025); specification, section 8",
    differences=(
        Difference("triplets that fill no batch", "-", "never scored: loss 0, the lowest, so always clean", "scored "
                   "among as many others, which the batch before lends (switch score_rest)"),
        Difference("score of a triplet", "-", "its loss among a random batch", "the same (switch score: cosine)"),
        Difference("seed of the mixture", "-", "NumPy's global state", "the epoch; one pass in an order of its own"),
        Difference("mean word embedding", "-", "over 32 positions, padding included", "padding included, up to the "
                   "longest text of the batch on backbones that pad so (switch masked_mean)"),
        Difference("negative_align_loss", "-", "a copy of the positive option, and inert", "left out"),
        Difference("second optimiser", "-", "for the phase in which only W_Δ and P learn", "one optimiser, whose "
                   "others rest; the moments of W_Δ and P go on into the next phase"),
        Difference("probabilities of infonce", "-", "clamped to 1e-7", "exact"),
        Difference("weight of L_rd", "0.2 on CIRR, 0.1 on FashionIQ", "0.2", "0.1 (switch beta)"),
        Difference("cleanliness", "-", "-", "the mixture's posterior; until there is one the annotated probability, "
                   "of the prompt's query where only P and W_Δ learn"),
    ),
)  # fmt: skip
