"""Every golden value of SSN, key by key; a key that nothing checks fails the test."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from triptych.methods.layers.ssn_fusion import SsnFusion
from triptych.objectives import info_nce, mean, shift_divergence, similarity, symmetric

Golden = Callable[[str], dict[str, Tensor]]

INPUTS = (
    "text_tokens",
    "text_embeds",
    "ref_vis_tokens",
    "ref_embeds",
    "tgt_vis_tokens",
    "tgt_embeds",
    "text_mask",
)
NAMES = {
    "token_type_embeddings.weight": "types",
    "text_token_selection_mask.0": "text_gate",
    "image_token_selection_mask.0": "image_gate",
    "image_token_proj_layer": "image_projection",
    "fusion_layer.layers.0": "fusion",
    "combiner_layer": "combiner",
    "output_layer": "output",
    "dynamic_scalar": "share",
}


def test_ssn(golden: Golden, check_golden: Callable[..., None]) -> None:
    stored = golden("ssn_b16")
    text, text_embedding, image, embedding, target, target_embedding, mask = (stored[k] for k in INPUTS)
    weights = {}
    for name in stored:
        if name.startswith("w_"):
            theirs = next(theirs for theirs in NAMES if name.startswith(f"w_{theirs}"))
            weights[NAMES[theirs] + name.removeprefix(f"w_{theirs}")] = stored[name]
    fusion = SsnFusion(image.shape[2], text.shape[2], generator=torch.Generator()).double().eval()
    fusion.load_state_dict(weights)

    query, anti_query = fusion(image, embedding, text, text_embedding, mask)
    targets = fusion.target(target, target_embedding)
    kept, removed = similarity(query, targets[:, None]), similarity(anti_query, targets[:, None])
    matching = mean(symmetric(partial(info_nce, temperature=0.01), kept))
    shift = mean(shift_divergence(kept, removed))
    computed = {
        "pos_query": query,
        "neg_query": anti_query,
        "target": targets,
        "pos_logits": 100 * kept,
        "neg_logits": 100 * removed,
        "loss_ce": matching,
        "loss_kl": shift,
        "loss_total_kl_weight1": matching + shift,
    }
    check_golden(computed, stored)
    assert torch.equal(fusion.query(image, embedding, text, text_embedding, mask), query)
