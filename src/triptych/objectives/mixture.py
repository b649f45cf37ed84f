"""A mixture of two Gaussians on the losses of all triplets: the component of low losses is the clean one."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class FitOptions:
    """How a mixture is fitted.

    Attributes:
        iterations: most steps of expectation and maximisation.
        tolerance: gain of the likelihood at which it stops.
        floor: added to the variances.
    """

    iterations: int
    tolerance: float
    floor: float


SHORT_FIT = FitOptions(10, 1e-2, 5e-4)
"""TME; RDE for little noise."""
LONG_FIT = FitOptions(100, 1e-4, 1e-6)
"""RDE for much noise."""


@dataclass(frozen=True)
class Mixture:
    """Two Gaussians fitted to losses that were rescaled to [0, 1], the clean component first.

    Attributes:
        clean: ``[N]`` posterior of the component with the lower mean.
        means: ``[2]`` of the rescaled losses, in order.
        variances: ``[2]`` of the rescaled losses.
        weights: ``[2]`` share of each component.
        iterations: steps taken.
    """

    clean: Tensor
    means: Tensor
    variances: Tensor
    weights: Tensor
    iterations: int


def rde_fit(noise_ratio: float) -> FitOptions:
    """Pick RDE's options: the short fit up to a noise ratio of 0.4, the long one above."""
    return SHORT_FIT if noise_ratio <= 0.4 else LONG_FIT


def rescale(losses: Tensor) -> Tensor:
    """Map losses ``[N]`` to [0, 1], the lowest to 0 and the highest to 1; equal losses all to 0.

    Raises:
        ValueError: ``losses`` is not ``[N]`` with N at least 1, or has values that are not finite.
    """
    if losses.ndim != 1 or not len(losses):
        raise ValueError(f"expected a loss per triplet, [N] with N at least 1, got {list(losses.shape)}")
    wrong = int((~losses.isfinite()).sum())
    if wrong:
        raise ValueError(f"{wrong} of {len(losses)} losses are not finite; no division can be made of them")
    losses = losses.detach().to(torch.promote_types(losses.dtype, torch.float32))
    low, high = losses.aminmax()
    spread = high / 2 - low / 2  # halved: the range of finite numbers may be beyond the largest one
    return (losses / 2 - low / 2) / torch.where(spread > 0, spread, torch.ones_like(spread))


def fit_mixture(losses: Tensor, *, seed: int, options: FitOptions = SHORT_FIT) -> Mixture:
    r"""Fit two Gaussians to the losses of all triplets and give each triplet's chance to be clean.

    The losses are rescaled to [0, 1]. For scores where a high value is clean (TME's switch ``tme_score``:
    ``cosine``) pass their negatives. Losses that are all equal tell nothing apart: every triplet is then clean
    with certainty.

    Args:
        losses: ``[N]`` on any device; no gradient.
        seed: seeds the start of the fit; no global state is touched.
        options: :data:`SHORT_FIT`, :data:`LONG_FIT` or others; of RDE :func:`rde_fit`.

    Returns:
        The mixture, in the precision and on the device of the losses (float32 at least). A wide clean
        component can also claim the very highest losses, as published.

    Raises:
        ValueError: ``losses`` is not ``[N]``, or has values that are not finite.

    Source: TME (CVPR 2025) and RDE (CVPR 2024), after Arazo et al. 2019 and Li et al. 2020; specification,
    sections 7 and 8.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    scaled = rescale(losses)
    if scaled.max() == 0:
        zeros = scaled.new_zeros(2)
        return Mixture(torch.ones_like(scaled), zeros, zeros, scaled.new_tensor([1.0, 0.0]), 0)
    column = scaled.double().cpu().numpy()[:, None]
    model = GaussianMixture(
        2,
        max_iter=options.iterations,
        tol=options.tolerance,
        reg_covar=options.floor,
        random_state=seed % 2**32,
    )
    with warnings.catch_warnings():  # few iterations are the published choice, so that they end it is no news
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(column)
    order = np.argsort(model.means_.ravel(), kind="stable")
    return Mixture(
        clean=torch.from_numpy(model.predict_proba(column)[:, order[0]]).to(scaled),
        means=torch.from_numpy(model.means_.ravel()[order]).to(scaled),
        variances=torch.from_numpy(model.covariances_.ravel()[order]).to(scaled),
        weights=torch.from_numpy(model.weights_[order]).to(scaled),
        iterations=int(model.n_iter_),
    )
