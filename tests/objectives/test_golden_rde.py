"""Every golden value of RDE, key by key; a key that nothing checks fails the test."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from triptych.objectives import consensus, likely_clean, similarity, triplet_alignment

Golden = Callable[[str], dict[str, Tensor]]


@pytest.mark.parametrize("size", ["b16", "b64"])
def test_rde(golden: Golden, golden_inputs: Golden, check_golden: Callable[..., None], size: str) -> None:
    stored, inputs = golden(f"rde_{size}"), golden_inputs(size)
    s = similarity(inputs["fc"], inputs["ft"])
    pooled = functional.normalize(inputs["ft"].mean(dim=1), dim=1)
    other = similarity(inputs["fc"], pooled[:, None])
    computed = {
        f"tal_per_tau{tau}_m0.1": triplet_alignment(s, temperature=tau) for tau in (0.015, 0.02, 0.07)
    }
    (computed["tal_grad_fc_tau0.015"],) = torch.autograd.grad(triplet_alignment(s).sum(), inputs["fc"])

    first, second = stored["pred_A"].bool(), stored["pred_B"].bool()
    coins = torch.zeros_like(first).masked_scatter(first != second, stored["coin"].bool())
    trusted = consensus(first, second, coins)
    computed |= {
        "label_hat": trusted.double(),
        "tal_weighted_sum_branchA": (trusted * triplet_alignment(s)).sum(),
        "S_global": other,
        "tal_weighted_sum_branchB": (trusted * triplet_alignment(other)).sum(),
    }
    for name in ("", "_allclean"):
        clean = likely_clean(stored[f"split_prob_in{name}"], never_all=True)
        computed[f"split_prob_out{name}"] = clean.long()
    check_golden(computed, stored)
