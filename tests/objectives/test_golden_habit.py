"""Every golden value of HABIT, key by key; a key that nothing checks fails the test."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from triptych.objectives import (
    MarginShape,
    anchored_mutual_knowledge,
    consistency,
    dbscan_labels,
    estimate_cleanliness,
    lowest_loss,
    mean,
    mutual_knowledge,
    robust_contrastive,
    similarity,
    soft_margin,
    transition_rates,
    trusted_mask,
)

Golden = Callable[[str], dict[str, Tensor]]

RELEASED_MARGIN = 0.5
SHAPES: tuple[MarginShape, ...] = ("linear", "exponential", "sin")


@pytest.mark.parametrize("size", ["b16", "b64", "b256lit"])
def test_habit(golden: Golden, golden_inputs: Golden, check_golden: Callable[..., None], size: str) -> None:
    stored, inputs = golden(f"habit_{size}"), golden_inputs(size)
    fc, targets, tokens = (inputs[name] for name in ("fc", "ft", "fc_tok"))
    s = similarity(fc, targets)

    def gradient(loss: Tensor) -> Tensor:
        return torch.autograd.grad(loss, fc, retain_graph=True)[0]

    anchor = lowest_loss(s)
    knowledge = anchored_mutual_knowledge(tokens, targets, anchor)
    rates = transition_rates(tokens, targets, anchor)
    cleanliness = estimate_cleanliness(rates)
    computed = {
        "anchor_index": anchor,
        "rank_loss_unmasked": mean(robust_contrastive(s)),
        "mi_anchor": knowledge[anchor, 0],
        "mi_own_anchorC-ownT_ownC-anchorT": knowledge,
        "tr_own_textlike_imagelike": torch.stack(rates, dim=1),
        "cleanliness": cleanliness,
        "db_labels_cleanliness": dbscan_labels(cleanliness),
    }
    if size == "b16":
        computed["mi_own_bins5"] = mutual_knowledge(tokens, targets, bins=5)

    e, e_before = stored["db_current"], stored["db_history"]
    mask = trusted_mask(e, e_before)
    assert not mask.all()
    computed |= {
        "db_labels_current": dbscan_labels(e),
        "db_labels_history": dbscan_labels(e_before),
        "db_mask": mask.double(),
        "labels_current_after_mask": e * mask,
    }

    ranked = mean(robust_contrastive(s, mask=mask))
    computed |= {"rank_loss_masked": ranked, "rank_grad_fc": gradient(ranked)}

    def hinge(shape: MarginShape, mask_hinge: bool = False) -> Tensor:
        return mean(soft_margin(s, e, mask=mask, margin=RELEASED_MARGIN, shape=shape, mask_hinge=mask_hinge))

    computed |= {f"soft_margin_{shape}_released": hinge(shape) for shape in SHAPES}
    computed |= {
        "soft_margin_exponential_grad_fc": gradient(computed["soft_margin_exponential_released"]),
        "soft_margin_none": hinge("none"),
        "soft_margin_exponential_recommended_masked": hinge("exponential", mask_hinge=True),
    }

    past = stored["sim_history"]
    released = mean(consistency(s, past, e, e_before, mask=mask, pairing="crossed"))
    computed |= {
        "kl_released": released,
        "kl_released_grad_fc": gradient(released),
        "kl_recommended": mean(consistency(s, past, e, e_before, mask=mask)),
        "kl_recommended_batchmean_switch": mean(
            consistency(s, past, e, e_before, mask=mask, reduction="row")
        ),
    }
    check_golden(computed, stored)
