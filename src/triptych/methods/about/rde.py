"""RDE: what is said of it."""

from __future__ import annotations

from typing import Any

from triptych.methods.config import About, Difference

PRESETS: dict[str, dict[str, Any]] = {"released": {"reduction": "sum", "warmup_epochs": 0}}

RDE = About(
    idea="Look at a pair in two ways: as a whole, and through the tokens most attended to. Divide all triplets "
    "by a mixture on the losses of each branch, trust those that both hold clean, toss a coin where they disagree, and "
    "keep a trusted pair a margin above a smooth maximum of its negatives.",
    sources="RDE (CVPR 2024), of text and person images; specification, section 7, with its adaptation to composed "
    "queries, which nobody has published",
    differences=(
        Difference("query", "a text", "a text of CLIP", "the fused query; the second branch selects among the text "
                   "positions of the fusion pass, by the attention of the first one, itself included"),
        Difference("target", "a picture", "patches of CLIP, by the attention of the class token", "query tokens, by "
                   "the mean attention that they receive"),
        Difference("number of selected tokens", "-", "share of all positions, rounded down, without first and last",
                   "share of the real ones, rounded up (switch ratio)"),
        Difference("reduction of the loss", "-", "sum over the batch", "mean (switch reduction)"),
        Difference("first division", "-", "on the untrained model", "after one epoch (switch warmup_epochs)"),
        Difference("length of the fit", "-", "by the known noise ratio", "switch expected_noise"),
        Difference("seed of mixture and coins", "-", "global state", "the epoch; seed and epoch"),
        Difference("triplets that fill no batch", "-", "-", "scored among as many others, which the batch "
                   "before lends"),
        Difference("a lone token in a batch", "-", "no batch statistics, an error", "normalised by the running ones"),
        Difference("cleanliness", "-", "-", "mean of both posteriors; before a division the annotated probability"),
    ),
)  # fmt: skip
