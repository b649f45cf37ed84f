"""Pure functions on features; a loss gives a value per triplet, ``[B]``, and :func:`mean` reduces it."""

from triptych.objectives.alignment import DISTANCES, cka_distance, l1_distance, l2_distance, mse_distance
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
from triptych.objectives.precision import full_precision, same_precision
from triptych.objectives.probability import match_probabilities, positive_and_negative
from triptych.objectives.reduction import mean, symmetric
from triptych.objectives.robust_contrastive import robust_contrastive
from triptych.objectives.similarity import similarity
from triptych.objectives.spectrum import mix_amplitude, radius_window, ratio_window

__all__ = [
    "DISTANCES",
    "add_noise",
    "cka_distance",
    "full_precision",
    "gaussian_blur",
    "grayscale",
    "info_nce",
    "jitter_colours",
    "l1_distance",
    "l2_distance",
    "loyalty",
    "match_probabilities",
    "mean",
    "mix_amplitude",
    "mse_distance",
    "positive_and_negative",
    "query_axis_similarity",
    "radius_window",
    "random_mask",
    "ratio_window",
    "robust_contrastive",
    "same_precision",
    "shuffle_patches",
    "similarity",
    "soft_discriminative",
    "symmetric",
    "transfer_style",
]
