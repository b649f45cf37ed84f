"""Every golden value of SPRC, key by key; a key that nothing checks fails the test."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from triptych.objectives import info_nce, mean, prompt_alignment, similarity

Golden = Callable[[str], dict[str, Tensor]]


@pytest.mark.parametrize("size", ["b16", "b64"])
def test_sprc(golden: Golden, golden_inputs: Golden, check_golden: Callable[..., None], size: str) -> None:
    stored, inputs = golden(f"sprc_{size}"), golden_inputs(size)
    unit = functional.normalize(inputs["fc"], dim=1)  # once more, as released: the gradient is tangent
    query = mean(info_nce(similarity(unit, inputs["ft"])))
    prompt = mean(info_nce(similarity(inputs["ftext"], inputs["ft"])))
    align = mean(prompt_alignment(stored["fusion_query_tokens"], stored["prompt_tokens"]))
    computed = {
        "loss_itc": query,
        "loss_rtc": prompt,
        "loss_align": align,
        "itc_grad_fc": torch.autograd.grad(query, inputs["fc"])[0],
        "total_cirr": query + 0.4 * prompt + 0.4 * align,
        "total_fiq": query + prompt + align,
    }
    check_golden(computed, stored)
