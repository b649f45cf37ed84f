"""HABIT: what is said of it, and its ablation rows."""

from __future__ import annotations

from typing import Any

from triptych.methods.config import Ablation, About, Difference

_T3 = "HABIT table 3"

ABLATIONS = {
    "D1": Ablation("w/o Sample", _T3, {"anchor": "random"}),
    "D2": Ablation("w/o TR", _T3, {"relative_rates": False}),
    "D3": Ablation("w/o MKE", _T3, {"mutual_knowledge": False}),
    "D4": Ablation("w/o CS", _T3, {"past_outliers": False}),
    "D5": Ablation("w/o KL", _T3, {"w_kl": 0.0}),
    "D6": Ablation("w/o History", _T3, {"past_outliers": False, "w_kl": 0.0}),
    "D7": Ablation("w/o mask", _T3, {"mask": False}),
    "D8": Ablation("w/o M_Rank", _T3, {"mask_robust": False}),
    "D9": Ablation("w/o M_Soft", _T3, {"mask_soft": False}),
    "D10": Ablation("w/o M_KL", _T3, {"mask_kl": False}),
    "D11": Ablation("w/o L_rank", _T3, {"robust": False}),
    "D12": Ablation("w/o L_soft", _T3, {"w_soft": 0.0}),
    "D13": Ablation("w/o L_KL & L_soft", _T3, {"w_kl": 0.0, "w_soft": 0.0}),
}

PRESETS: dict[str, dict[str, Any]] = {
    "released": {
        "history": "released",
        "w_soft": 0.1,
        "w_kl": 10.0,
        "margin": 0.5,
        "margin_shape": "exponential",
        "mask_hinge": False,
        "temperature": 0.07,
        "kl_pairing": "crossed",
        "kl_reduction": "element",
        "kl_weights": "cleanliness",
        "dbscan": "two_sided",
        "eps": 0.01,
        "min_samples": 10,
        "bins": 10,
        "floor": 1e-12,
    },
    "paper": {
        "history": "sample_bank",
        "w_soft": 0.5,
        "w_kl": 10.0,
        "margin": 0.2,
        "margin_shape": "exponential",
        "mask_hinge": True,
        "temperature": 0.1,
        "kl_pairing": "own",
        "kl_reduction": "row",
        "kl_weights": "mask",
        "dbscan": "two_sided",
    },
}

HABIT = About(
    idea="Estimate how clean a triplet is from the mutual information of its composed and target features, relative to "
    "that of the batch's lowest-loss triplet. Distrust what DBSCAN calls an outlier now and called one at its last "
    "visit. Train with negatives only, with a hinge whose margin grows with cleanliness, and with a divergence from "
    "the similarities that the features of the last visit give.",
    sources="HABIT eqs. 1-10 and algorithm 1; specification, section 9",
    differences=(
        Difference("history", "of the same samples", "by place in the epoch under a new shuffle: of other samples",
                   "by triplet; past similarities from kept features; triplets without history are not maskable and "
                   "stay out of L_KL (switch history)"),
        Difference("batch size", "128", "256 in four literals", "any"),
        Difference("learning rate", "5e-5", "2e-5", "the backbone's own (training.learning_rate)"),
        Difference("weights and margin", "w_soft 0.5, w_KL 10, m 0.2 (algorithm 1: weights 1)", "0.1, 10, m 0.5",
                   "the paper's (switches w_soft, w_kl, margin)"),
        Difference("temperature", "0.1", "0.07", "0.07 (switch temperature)"),
        Difference("L_KL", "mean over rows, each side with the mask of its time", "mean over all entries; present "
                   "similarities with past cleanliness and the reverse", "mean over all entries, each side with the "
                   "cleanliness of its time, distrusted rows left out (switches kl_reduction, kl_pairing, kl_weights)"),
        Difference("hinge of a distrusted triplet", "none (eq. 7)", "margin 0, still pulled", "none (switch "
                   "mask_hinge)"),
        Difference("mask in L_rank", "outside of 1 - p, and over the diagonal too", "in front of p, others only",
                   "released: distrusted rows cost nothing"),
        Difference("standard sample", "lowest loss; least mutual knowledge in algorithm 1", "lowest loss",
                   "lowest loss"),
        Difference("outliers", "outside the normal range", "both sides: the cleanest too, and all where B is below "
                   "min_samples", "both sides (switch dbscan)"),
        Difference("mutual information", "of features", "of all Q D entries as if exchangeable", "the same"),
        Difference("margin", "exponential, m = 0.2", "exponential, m = 0.5; sin and linear unused", "exponential "
                   "(switch margin_shape)"),
        Difference("history of cleanliness", "-", "before the mask; the margin's after it", "the same"),
        Difference("DBSCAN", "-", "eps argument unused, all processes", "switches eps and min_samples, one process"),
        Difference("SPRC at 0 %, FashionIQ mean R@10", "printed 54.92", "-", "54.72, the mean of its own cells"),
        Difference("division by m0 (eq. 3)", "as it is", "as it is", "m0 of 0.001 at least (switch floor)"),
    ),
    finite_paper=(
        "eq. 3 divides by the standard sample's mutual knowledge, which may be 0: by 0.001 at least (floor)",
        "eq. 5 speaks of the same batch one iteration before, which a shuffled loader never shows: each triplet's "
        "last visit (history = sample_bank)",
        "eq. 6 compares similarities, which are no distributions: softmax of 10 times each, as released; a row with "
        "m = 0 is flat on the left, a constant without gradient, and is left out",
        "eq. 8 is infinite for distrusted rows (log 0) and pushes the annotated pair: the released form",
        "algorithm 1 contradicts the text: it takes the least mutual knowledge as standard sample and weighs all "
        "losses by 1; the text's lowest loss, 10 and 0.5 are taken",
    ),
)  # fmt: skip
