"""Every golden value of TME, key by key; a key that nothing checks fails the test."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from triptych.objectives import (
    fit_mixture,
    info_nce,
    likely_clean,
    lowest_losses,
    mean,
    partitioned_contrastive,
    rescale,
    semantic_alignment,
    similarity,
)

Golden = Callable[[str], dict[str, Tensor]]


@pytest.mark.parametrize("size", ["b16", "b64"])
def test_losses(golden: Golden, golden_inputs: Golden, check_golden: Callable[..., None], size: str) -> None:
    stored, inputs = golden(f"tme_losses_{size}"), golden_inputs(size)
    s, clean = similarity(inputs["fc"], inputs["ft"]), stored["labels"].bool()

    computed = {"per_loss_eval": info_nce(s)}
    for positive, negative, weight in (
        ("RCL", "None", 1.0),
        ("infoNCE", "None", 1.0),
        ("RCL", "RCL", 0.7),
        ("infoNCE", "RCL", 0.5),
    ):
        name = f"pos={positive}_neg={negative}_to={weight}"
        tau = torch.tensor(0.07, dtype=torch.float64, requires_grad=True)
        losses = {"positive": positive.lower(), "negative": negative.lower()}
        value = mean(partitioned_contrastive(s, clean, weight=weight, temperature=tau, **losses))
        computed[f"loss_{name}"] = value
        (computed[f"grad_temp_{name}"],) = torch.autograd.grad(value, tau, retain_graph=True)
    for form in ("mse", "smoothl1"):
        aligned = semantic_alignment(stored["align_left"], stored["align_right"], clean, form=form)
        computed[f"align_{form}_clean_only"] = mean(aligned)
    check_golden(computed, stored)


def test_division(golden: Golden, check_golden: Callable[..., None]) -> None:
    """Fitted here in float64, there in float32; divisions and steps must agree exactly all the same."""
    stored = golden("tme_gmm")
    exact: dict[str, Tensor] = {}
    close: dict[str, Tensor] = {}
    for case in "abc":
        losses = stored[f"{case}_loss_raw_float32"]
        mixture = fit_mixture(losses, seed=0)
        close[f"{case}_loss_minmax"] = rescale(losses)
        close[f"{case}_prob_clean"] = mixture.clean
        close[f"{case}_gmm_means_sorted"] = mixture.means
        close[f"{case}_gmm_vars_sorted"] = mixture.variances
        close[f"{case}_gmm_weights_sorted"] = mixture.weights
        exact[f"{case}_gmm_n_iter"] = torch.tensor(mixture.iterations)
        exact[f"{case}_pred"] = likely_clean(mixture.clean).long()
        exact[f"{case}_pred_percent0.2"] = lowest_losses(losses, noisy=0.2).float()
        for seed in range(1, 5):  # on separated losses the start does not matter
            assert torch.equal(likely_clean(fit_mixture(losses, seed=seed).clean), stored[f"{case}_pred"] > 0)
    for name, value in exact.items():
        assert torch.equal(value, stored[name]), name
    check_golden(exact | close, stored, rtol=1e-4, atol=1e-6)
