"""Every golden value of CALA, key by key; a key that nothing checks fails the test."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from triptych.methods.layers.cala_attention import HingeAttention, TwinAttention
from triptych.objectives import info_nce, mean, similarity

Golden = Callable[[str], dict[str, Tensor]]

HINGE = {"query": "query_ref1", "text_key": "key_text1", "target_key": "key_tar1", "value": "value1"}
TWIN = {
    "reference_query": "reference_as_query_attention",
    "target_query": "target_as_query_attention",
}


def renamed(stored: dict[str, Tensor], prefix: str, names: dict[str, str]) -> dict[str, Tensor]:
    """The stored weights under our names."""
    return {
        ours + name.removeprefix(prefix + theirs): value
        for ours, theirs in names.items()
        for name, value in stored.items()
        if name.startswith(prefix + theirs + ".")
    }


def test_cala(golden: Golden, check_golden: Callable[..., None]) -> None:
    stored = golden("cala_b16")
    names = ("ref_tokens", "text_tokens", "target_tokens", "ref_visual_tokens")
    multimodal, text, target, reference = (stored[name] for name in names)
    width, generator = text.shape[2], torch.Generator()
    hinge = HingeAttention(width, generator=generator).double().eval()
    hinge.load_state_dict(renamed(stored, "w_hinge.", HINGE))
    twin = TwinAttention(width, generator=generator).double().eval()
    twin.load_state_dict(renamed(stored, "w_twin.", TWIN))

    pseudo_target, gap = hinge(multimodal, text, target), twin(reference, target)
    r, m, t = multimodal[:, 0], text[:, 0], functional.normalize(target[:, 0], dim=1)
    matching = 100 * similarity(functional.normalize(r + m, dim=1), t[:, None])
    aligning = 10 * similarity(m, gap[:, None])
    reasoning = 10 * similarity(pseudo_target, r[:, None])
    contrastive = mean(info_nce(0.45 * aligning + 0.55 * matching, temperature=1.0))
    reason = mean(info_nce(reasoning, temperature=1.0))
    computed = {
        "hinge_pseudo_target": pseudo_target,
        "visual_gap": gap,
        "matching_logits": matching,
        "aligning_logits": aligning,
        "reasoning_logits": reasoning,
        "contrastive_loss": contrastive,
        "reasoning_loss": reason,
        "total_tac0.45_hca0.1": 0.1 * reason + 0.9 * contrastive,
    }
    check_golden(computed, stored)
