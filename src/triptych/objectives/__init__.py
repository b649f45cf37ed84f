"""Pure functions on features; a loss gives a value per triplet, ``[B]``, and :func:`mean` reduces it."""

from triptych.objectives.alignment import DISTANCES, cka_distance, l1_distance, l2_distance, mse_distance
from triptych.objectives.cleanliness import (
    TransitionRates,
    estimate_cleanliness,
    lowest_loss,
    transition_rates,
)
from triptych.objectives.consistency import consistency
from triptych.objectives.division import consensus, likely_clean, low_losses, lowest_losses, toss
from triptych.objectives.fidelity import clean_level, empirical_boundary, fidelity, low_fidelity
from triptych.objectives.info_nce import info_nce
from triptych.objectives.interventions import (
    add_noise,
    gaussian_blur,
    grayscale,
    jitter_colours,
    random_mask,
    shuffle_patches,
    transfer_style,
)
from triptych.objectives.loyalty import loyalty, query_axis_similarity, soft_discriminative
from triptych.objectives.mixture import (
    LONG_FIT,
    SHORT_FIT,
    FitOptions,
    Mixture,
    fit_mixture,
    rde_fit,
    rescale,
)
from triptych.objectives.mutual_knowledge import anchored_mutual_knowledge, mutual_knowledge
from triptych.objectives.negative_boundary import (
    batch_bounds,
    query_oriented,
    query_oriented_released,
    target_oriented,
    target_oriented_released,
)
from triptych.objectives.outliers import dbscan_labels, outliers, trusted_mask
from triptych.objectives.partitioned_contrastive import partitioned_contrastive
from triptych.objectives.precision import full_precision, same_precision
from triptych.objectives.probability import match_probabilities, positive_and_negative
from triptych.objectives.reduction import mean, restrict, symmetric
from triptych.objectives.robust_contrastive import robust_contrastive
from triptych.objectives.semantic_alignment import prompt_alignment, semantic_alignment
from triptych.objectives.semantic_shift import shift_divergence
from triptych.objectives.similarity import similarity
from triptych.objectives.soft_margin import MarginShape, adaptive_margin, soft_margin
from triptych.objectives.spectrum import mix_amplitude, radius_window, ratio_window
from triptych.objectives.transport import entropic_transport
from triptych.objectives.triplet_alignment import triplet_alignment
from triptych.objectives.unlearning import (
    blocked_paths,
    hard_labels,
    partition_mass,
    scaled_cost,
    soft_labels,
    targeted_unlearning,
)
from triptych.objectives.unlearning_released import (
    released_blocked,
    released_labels,
    released_scores,
    targeted_unlearning_released,
)

__all__ = [
    "DISTANCES",
    "LONG_FIT",
    "SHORT_FIT",
    "FitOptions",
    "MarginShape",
    "Mixture",
    "TransitionRates",
    "adaptive_margin",
    "add_noise",
    "anchored_mutual_knowledge",
    "batch_bounds",
    "blocked_paths",
    "cka_distance",
    "clean_level",
    "consensus",
    "consistency",
    "dbscan_labels",
    "empirical_boundary",
    "entropic_transport",
    "estimate_cleanliness",
    "fidelity",
    "fit_mixture",
    "full_precision",
    "gaussian_blur",
    "grayscale",
    "hard_labels",
    "info_nce",
    "jitter_colours",
    "l1_distance",
    "l2_distance",
    "likely_clean",
    "low_fidelity",
    "low_losses",
    "lowest_loss",
    "lowest_losses",
    "loyalty",
    "match_probabilities",
    "mean",
    "mix_amplitude",
    "mse_distance",
    "mutual_knowledge",
    "outliers",
    "partition_mass",
    "partitioned_contrastive",
    "positive_and_negative",
    "prompt_alignment",
    "query_axis_similarity",
    "query_oriented",
    "query_oriented_released",
    "radius_window",
    "random_mask",
    "ratio_window",
    "rde_fit",
    "released_blocked",
    "released_labels",
    "released_scores",
    "rescale",
    "restrict",
    "robust_contrastive",
    "same_precision",
    "scaled_cost",
    "semantic_alignment",
    "shift_divergence",
    "shuffle_patches",
    "similarity",
    "soft_discriminative",
    "soft_labels",
    "soft_margin",
    "symmetric",
    "target_oriented",
    "target_oriented_released",
    "targeted_unlearning",
    "targeted_unlearning_released",
    "toss",
    "transfer_style",
    "transition_rates",
    "triplet_alignment",
    "trusted_mask",
]
