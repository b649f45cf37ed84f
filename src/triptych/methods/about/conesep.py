"""ConeSep: what is said of it, and its ablation rows."""

from __future__ import annotations

from typing import Any

from triptych.methods.config import Ablation, About, Difference

_T3, _T5 = "ConeSep table 3", "ConeSep tables 5 and 6"

ABLATIONS = {
    "D1": Ablation("w/o random_target", _T3, {"boundary_target": "real"}),
    "D2": Ablation("w/o random_reference", _T3, {"boundary_reference": "real"}),
    "D3": Ablation("w/o random_mod", _T3, {"boundary_text": "empty"}),
    "D4": Ablation("w/o boundary", _T3, {"boundary": "zero"}),
    "D5": Ablation("w/o Fidelity", _T3, {"partition": "none"}),
    "D6": Ablation("neg-tar_y", _T3, {"signs": "plus"}),
    "D7": Ablation("neg-tar_n", _T3, {"signs": "minus"}),
    "D8": Ablation("neg-tar", _T3, {"signs": "zero"}),
    "D9": Ablation("neg-query", _T3, {"zeta": 0.0}),
    "D10": Ablation("neg-prompt", _T3, {"neg_prompt": "shared"}),
    "D11": Ablation("w/o negative", _T3, {"btu_negatives": False}),
    "D12": Ablation("w/o OT", _T3, {"gamma": 0.0}),
    "D13": Ablation("w/o Unlearn", _T3, {"kappa": 0.0}),
    "D14": Ablation("w/o rank", _T3, {"robust": False}),
    "E1": Ablation("w/ Empirical", _T5, {"boundary": "empirical"}),
    "E2": Ablation("w/ Uniform Dist", _T5, {"boundary": "uniform"}),
    "E3": Ablation("w/ Laplace Dist", _T5, {"boundary": "laplace"}),
}

PRESETS: dict[str, dict[str, Any]] = {
    "released": {
        "zeta": 0.8,
        "nu": 0.5,
        "kappa": 0.5,
        "gamma": 0.7,
        "temperature": 0.07,
        "warmup_epochs": 2,
        "fidelity": "released",
        "partition": "quantile",
        "omega": 0.5,
        "nbl_clean_only": False,
        "boundary_draws": 0,
        "boundary_pairs": "all",
        "boundary_dropout": True,
        "boundary_every": 1,
        "neg_text": "prefixed",
        "neg_phrase": "step",
        "intra_bounds": "released",
        "inter": "released",
        "unlearning": "released",
    },
    "paper": {
        "zeta": 0.5,
        "nu": 0.5,
        "kappa": 0.5,
        "gamma": 0.7,
        "fidelity": "eq3",
        "partition": "quantile",
        "omega": 0.5,
        "nbl_clean_only": True,
        "boundary_draws": 4,
        "boundary_pairs": "own",
        "boundary_dropout": False,
        "boundary_every": 1,
        "neg_text": "plain",
        "intra_bounds": "eq7",
        "inter": "eq6",
        "unlearning": "consistent",
        "btu_neg_logits": "negt",
        "btu_marginals": "uniform",
        "btu_plan": "raw",
        "directions": "rows",
    },
}

CONESEP = About(
    idea="Estimate a floor of similarity from random pictures and captions, and grade each triplet by how far its "
    "similarity exceeds it (GFQ). Learn for each query a negative one, away from its target and orthogonal to the "
    "query (NBL). Then move the probability of poor triplets from their target to their negative query, by labels "
    "that an optimal transport makes (BTU).",
    sources="ConeSep eqs. 1-13 and algorithm 1; specification, sections 11 and 12",
    differences=(
        Difference("fidelity (eq. 3)", "x^2 (x - 1), never above 0", "x over its batch maximum, x^2 (1 - x^2): 0 at "
                   "the floor and at the best match", "grows from 0 at the floor to 1 at the batch's 95 % quantile "
                   "(switch fidelity)"),
        Difference("omega", "a threshold", "the lowest half of every batch, at any noise", "a threshold of 0.5; the "
                   "share of noisy is logged (switch partition)"),
        Difference("random draws", "4", "as many as the batch, all pairs, with dropout", "4 pairs, eval mode (switches "
                   "boundary_draws, boundary_pairs, boundary_dropout)"),
        Difference("interval of L_intra", "eq. 7 has it mirrored against the text", "constants, and the product of "
                   "coordinates instead of the cosine, over all pairs", "the text's interval of the cosine (switch "
                   "intra_bounds)"),
        Difference("L_inter", "on logits, of clean queries", "on probabilities, of all, with next to no gradient",
                   "paper (switch inter)"),
        Difference("right half of L_ul", "cost of queries and negatives, logits of negatives and targets", "negatives "
                   "and targets, transposed", "queries and negatives in both (switch btu_neg_logits)"),
        Difference("scales of L_ul", "cosines", "probabilities left, cosines right, no temperature", "cosines; over "
                   "the temperature as logits (switch unlearning)"),
        Difference("blocked paths", "each clean query's own negative", "the last column for all clean ones", "paper"),
        Difference("labels of the noisy", "their own negative", "the last column for all", "paper"),
        Difference("labels", "as they are", "softmaxed again, so nearly uniform: L_ul hardly moves anything",
                   "as they are"),
        Difference("directions of L_ul", "rows", "mean of rows and columns", "rows (switch directions)"),
        Difference("divergence (eq. 12)", "KL(log prediction || Y)", "KL(Y || prediction)", "released"),
        Difference("marginals", "uniform: half of all mass goes to negatives at any noise", "uniform", "uniform "
                   "(switch btu_marginals)"),
        Difference("Sinkhorn", "10-20 iterations, epsilon not stated", "0.03, 100 at most", "released (switches eps, "
                   "iterations)"),
        Difference("weights", "0.5 each", "zeta 0.8, nu 0.5, kappa 0.5", "0.5 each"),
        Difference("epochs and batch", "20, 128", "12, 128 (its README: 20, 256)", "20, 128"),
        Difference("robust loss", "symmetric", "one direction and its transpose, the same number", "one direction"),
        Difference("partition in the first phase", "L_intra and L_inter of clean triplets", "none: all triplets",
                   "epoch 0 all, then the clean ones (switch nbl_clean_only)"),
        Difference("P_neg", "an additional input", "replaces the query tokens", "released; starts as their copy"),
        Difference("text of the negative query", "the caption", "a negation before it", "a negation, the same one "
                   "each time for a caption: a frozen text tower reads it once (switches neg_text, neg_phrase)"),
        Difference("first phase", "N epochs, not stated", "2", "2 (switch warmup_epochs)"),
        Difference("plan in the labels (eq. 11)", "as it is: rows sum to 1/B", "rows sum to 1", "released (switch "
                   "btu_plan)"),
        Difference("FashionIQ average, 20 %", "65.31 in the text, 64.97 in table 5", "-", "64.97"),
        Difference("gains 0.92, 1.54, 1.41", "relative per cent", "-", "points are reported"),
        Difference("evaluation", "-", "reference removed, validation in train mode", "both protocols, eval mode"),
    ),
    finite_paper=(
        "eq. 3 is not above 0 for similarities up to 1 over the floor, so no triplet reaches the threshold 0.5: the "
        "lowest half of the batch is noisy instead (partition = quantile). It falls up to 2/3 over the floor, so "
        "these are the best matches",
        "eq. 7 is 0 for cosines from -alpha_2 to -alpha_1, the text's interval mirrored; taken as printed",
        "eq. 10 adds infinity to blocked costs: blocked entries carry nothing",
        "eq. 11 gives labels that do not sum to 1; the divergence is taken of them as they are",
        "eq. 12 takes the logarithm of similarities, which may be negative, as a distribution: KL(Y || softmax)",
        "eq. 5 adds P_neg to the inputs without a place for it: it replaces the query tokens, as released",
    ),
)  # fmt: skip
