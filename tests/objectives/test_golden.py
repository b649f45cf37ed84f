"""Every golden value of RCL and INTENT, key by key; a key that nothing checks fails the test."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from triptych.objectives import (
    DISTANCES,
    info_nce,
    loyalty,
    mean,
    mix_amplitude,
    query_axis_similarity,
    ratio_window,
    robust_contrastive,
    similarity,
    soft_discriminative,
    symmetric,
)

Golden = Callable[[str], dict[str, Tensor]]
CheckGolden = Callable[..., None]


@pytest.mark.parametrize("size", ["b16", "b64"])
def test_rcl(golden: Golden, golden_inputs: Golden, check_golden: CheckGolden, size: str) -> None:
    stored, inputs = golden(f"rcl_{size}"), golden_inputs(size)
    s = similarity(inputs["fc"], inputs["ft"])
    one = mean(robust_contrastive(s))
    gradient_fc, gradient_ft = torch.autograd.grad(one, [inputs["fc"], inputs["ft"]], retain_graph=True)

    def both(objective: Callable[..., Tensor], temperature: float) -> Tensor:
        return 2 * mean(symmetric(partial(objective, temperature=temperature), s))

    computed = {
        "S": s,
        "rcl_one_dir_tau0.07": one,
        "rcl_one_dir_check": one,
        "rcl_one_dir_grad_fc": gradient_fc,
        "rcl_one_dir_grad_ft": gradient_ft,
        "rcl_one_dir_tau0.1": mean(robust_contrastive(s, temperature=0.1)),
        "conesep_pseudo_symmetric_tau0.07": one,
        "rcl_t2q_dir_tau0.07": mean(robust_contrastive(s.T)),
        "rcl_true_symmetric_mean_tau0.07": mean(symmetric(robust_contrastive, s)),
        "rcl_one_dir_no_mask_tau0.07": mean(robust_contrastive(s, include_diagonal=True)),
        "infonce_ce_tau0.07": mean(info_nce(s)),
    }
    for tau in (0.05, 0.07):  # the original criterion sums both directions
        computed[f"ccl_log_tau{tau}"] = both(robust_contrastive, tau)
        computed[f"ccl_infoNCE_tau{tau}"] = both(info_nce, tau)
    if size == "b64":
        del computed["rcl_one_dir_grad_ft"]  # stored for b16 only
    check_golden(computed, stored)


@pytest.mark.parametrize("size", ["b16", "b64"])
def test_intent(golden: Golden, golden_inputs: Golden, check_golden: CheckGolden, size: str) -> None:
    stored, inputs = golden(f"intent_{size}"), golden_inputs(size)
    fc, ft, tokens, altered = (inputs[name] for name in ("fc", "ft", "fc_tok", "fc_tok_cf"))

    released_s = query_axis_similarity(fc, ft)
    released_loyalty = loyalty(released_s)
    released_loss = mean(soft_discriminative(released_loyalty, form="ce_scaled", scale=10.0))
    computed = {
        "released_S_qaxis": released_s,
        "released_loyalty": released_loyalty,
        "released_odl_ce_T10": released_loss,
        "released_odl_grad_fc": torch.autograd.grad(released_loss, fc)[0],
    }

    s = computed["fixed_S"] = similarity(fc, ft)
    switches = {
        "full": (True, True),
        "wo_PWR": (False, True),
        "wo_NWR": (True, False),
        "wo_both": (False, False),
    }
    for name, (positive, negative) in switches.items():
        degrees = loyalty(s, positive_reward=positive, negative_reward=negative)
        computed[f"fixed_loyalty_{name}"] = degrees
        computed[f"paper_sod_neglog_{name}"] = mean(soft_discriminative(degrees, form="neglog"))
        computed[f"fixed_odl_ce_T10_{name}"] = mean(
            soft_discriminative(degrees, form="ce_scaled", scale=10.0)
        )
    computed["paper_sod_grad_fc"] = torch.autograd.grad(computed["paper_sod_neglog_full"], fc)[0]

    cka = computed["cka_loss"] = mean(DISTANCES["cka"](tokens, altered))
    gradient_x, gradient_y = torch.autograd.grad(cka, [tokens, altered])
    computed["cka_grad_x_norm"] = gradient_x.norm()
    if size == "b16":  # the whole gradients are stored for b16 only
        computed |= {"cka_grad_x": gradient_x, "cka_grad_y": gradient_y}
    computed["caco_mse"] = mean(DISTANCES["mse"](tokens, altered))
    computed["caco_l1"] = mean(DISTANCES["l1"](tokens, altered))
    computed["caco_l2_mean_token_norm"] = mean(DISTANCES["l2"](tokens, altered))
    check_golden(computed, stored)


def test_spectrum_mix(golden: Golden, check_golden: CheckGolden) -> None:
    stored = golden("intent_spectrum_mix")
    mean_, deviation = (
        torch.tensor(values, dtype=torch.float64)[:, None, None]
        for values in (
            (0.48145466, 0.4578275, 0.40821073),
            (0.26862954, 0.26130258, 0.27577711),
        )
    )
    computed: dict[str, Tensor] = {}
    for case in "abc":
        pictures = [stored[f"{case}_img1"], stored[f"{case}_img2"]]
        for kind in ("unit", "clipnorm"):
            share, ratio = (stored[f"{case}_{kind}_{name}"] for name in ("lam", "ratio"))
            first, second = pictures if kind == "unit" else [(p - mean_) / deviation for p in pictures]
            window = ratio_window(first.shape[2], first.shape[3], float(ratio))
            mixed = mix_amplitude(first, second, share, window=window)
            computed[f"{case}_{kind}_mixed1_no_clamp"] = mixed
            computed[f"{case}_{kind}_mixed1_released"] = mixed.clamp(0, 1)
            other = mix_amplitude(
                second, first, share, window=window
            )  # the half that the release throws away
            computed[f"{case}_{kind}_mixed2_released"] = other.clamp(0, 1)
    check_golden(computed, stored, atol=1e-6)  # clipnorm was normalised by float32 means
