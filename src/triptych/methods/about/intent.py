"""INTENT: what is said of it, and its ablation rows."""

from __future__ import annotations

from typing import Any

from triptych.methods.config import Ablation, About, Difference

_T3, _T4, _T5 = "INTENT table 3", "INTENT table 4", "INTENT table 5"

ABLATIONS = {
    "A1": Ablation("w/o VIC", _T3, {"alpha": 0.0}),
    "A2": Ablation("w/o Intervention", _T3, {"intervention": "grayscale"}),
    "A3": Ablation("w/o PWR", _T3, {"positive_weight_reward": False}),
    "A4": Ablation("w/o NWR", _T3, {"negative_weight_reward": False}),
    "A5": Ablation("w/o both", _T3, {"positive_weight_reward": False, "negative_weight_reward": False}),
    "B1": Ablation("w/o robust", _T4, {"robust": False}),
    "B2": Ablation("w/o mask", _T4, {"mask_diagonal": False}),
    "B3": Ablation("w/o sod", _T4, {"mu": 0.0}),
    "B4": Ablation("MSE", _T4, {"caco": "mse"}),
    "B5": Ablation("L1", _T4, {"caco": "l1"}),
    "B6": Ablation("L2", _T4, {"caco": "l2"}),
    "C1": Ablation("Random Mask", _T5, {"intervention": "mask"}),
    "C2": Ablation("Patch Shuffle", _T5, {"intervention": "shuffle"}),
    "C3": Ablation("Gaussian Blur", _T5, {"intervention": "blur"}),
    "C4": Ablation("Style Transfer", _T5, {"intervention": "style"}),
}

PRESETS: dict[str, dict[str, Any]] = {
    "released": {
        "mu": 0.5,
        "alpha": 1.0,
        "sod": "ce_scaled",
        "loyalty_norm": "Q_released",
        "vic_schedule": "first2",
        "irrelevant": "own_target",
        "window_ratio": 1.0,
        "mix_clamp": "released",
    },
    "paper": {
        "mu": 0.2,
        "alpha": 0.6,
        "sod": "neglog",
        "loyalty_norm": "D",
        "vic_schedule": "always",
        "irrelevant": "random",
        "mix_clamp": "unit",
    },
}

INTENT = About(
    idea="Alter the amplitude spectrum of the reference, keep its phase, and require the composed query tokens of both "
    "versions to have the same relations (VIC). Train with negatives only, and with a soft classification over "
    "'loyalty', which raises a positive where no negative competes, and negatives where the positive is weak (BiODL).",
    sources="INTENT eqs. 1-11 and algorithm 1; specification, section 10",
    differences=(
        Difference("soft discriminative loss", "-log l_ii (eq. 10)", "CE on T l, T learned from 10", "released form; "
                   "under eq. 10 the reward of negatives has no effect at all (switch sod)"),
        Difference("similarity of the loyalty", "cosine", "targets normalised once more over the query axis", "the "
                   "retrieval score (switch loyalty_norm)"),
        Difference("intervention", "every epoch", "the first two epochs", "every epoch (switch vic_schedule)"),
        Difference("irrelevant image", "a random one", "the triplet's own target", "a random other target of "
                   "the batch (switch irrelevant)"),
        Difference("window of the spectrum", "a centre crop", "ratio 1, the whole spectrum", "ratio 0.5 (switches "
                   "window, window_ratio)"),
        Difference("clamp of the mix", "not stated", "to [0, 1] although pixels are normalised", "in [0, 1] pixel "
                   "space (switch mix_clamp)"),
        Difference("weights", "mu 0.2, alpha 0.6", "0.5, 1.0", "paper"),
        Difference("centering matrix", "e a unit vector", "all ones / Q", "ones"),
        Difference("index of eq. 5", "pushes the annotated pair", "pushes the others", "released"),
        Difference("learning rate", "4e-5, 10 epochs", "2e-5, 20 epochs", "the backbone's own for lite"),
        Difference("fuzzy branch, orthogonal W", "-", "computed, never used", "left out"),
    ),
)  # fmt: skip
