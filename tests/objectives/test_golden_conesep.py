"""Every golden value of ConeSep, key by key."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from triptych.objectives import (
    batch_bounds,
    blocked_paths,
    clean_level,
    empirical_boundary,
    entropic_transport,
    fidelity,
    hard_labels,
    low_fidelity,
    mean,
    query_oriented,
    query_oriented_released,
    released_blocked,
    released_labels,
    released_scores,
    scaled_cost,
    similarity,
    soft_labels,
    target_oriented,
    target_oriented_released,
    targeted_unlearning,
    targeted_unlearning_released,
)
from triptych.objectives.unlearning import divergence

Golden = Callable[[str], dict[str, Tensor]]

# A difference of labels and predictions that are nearly the same; the stored labels hold 0.3 in float32, 1e-8 off.
SCALED = {"unlearn_released_grad_fc": 2e-8}


@pytest.mark.parametrize("size", ["b16", "b64"])
def test_conesep(golden: Golden, golden_inputs: Golden, check_golden: Callable[..., None], size: str) -> None:
    stored, inputs = golden(f"conesep_{size}"), golden_inputs(size)
    query, target, negative = (inputs[name] for name in ("fc", "ft", "fneg"))
    for name in ("alpha1_batch", "alpha2_batch"):  # stored in float32 where it is 0
        stored[name] = stored[name].double()
    for name in ("sink_mask_v", "rec_mask"):
        stored[name] = stored[name].bool()

    def gradient(value: Tensor, of: Tensor) -> Tensor:
        return torch.autograd.grad(value, of, retain_graph=True)[0]

    s, sigma = similarity(query, target), similarity(negative, target)
    matched = s.diagonal()
    boundary = empirical_boundary(s)
    grades = fidelity(matched, boundary)
    released_grades = fidelity(matched, boundary, form="released")
    noisy = low_fidelity(grades, omega=float(stored["omega"]))
    released_noisy = low_fidelity(released_grades, omega=float(stored["omega"]), rule="quantile")
    computed = {
        "boundary_input": boundary,
        "fidelity_recommended": grades,
        "rec_s_hi_q95": clean_level(matched),
        "fidelity_released": released_grades,
        "fidelity_paper_eq3_as_printed": fidelity(matched, boundary, form="eq3"),
        "rec_noisy_mask": noisy,
        "released_noisy_mask": released_noisy,
        "released_noisy_ids_sorted": released_noisy.nonzero()[:, 0],
    }

    cosines = (query * negative).sum(dim=1)
    lower, upper = batch_bounds(cosines)
    broadcast = mean(query_oriented_released(query, negative))
    released_inter = mean(target_oriented_released(sigma))
    computed |= {
        "cos_fc_fneg": cosines,
        "alpha1_batch": lower,
        "alpha2_batch": upper,
        "query_oriented_switch_batch_bounds": mean(query_oriented(query, negative, ~noisy)),
        "query_oriented_recommended_constants": mean(
            query_oriented(query, negative, ~noisy, bounds="constants")
        ),
        "query_oriented_paper_eq7_as_printed": mean(query_oriented(query, negative, ~noisy, bounds="eq7")),
        "query_oriented_released_fn_on_BxD": mean(query_oriented(query, negative, bounds="constants")),
        "query_oriented_released": broadcast,
        "query_oriented_released_grad_fneg": gradient(broadcast, negative),
        "S_neg_target_rows_neg": sigma,
        "target_oriented_recommended_paper_eq6": mean(target_oriented(sigma, ~noisy)),
        "target_oriented_released": released_inter,
        "target_oriented_released_grad_fneg": gradient(released_inter, negative),
    }

    scores = torch.cat([s, query @ negative.T], dim=1)
    cost, blocked = scaled_cost(scores), blocked_paths(noisy)
    plan = entropic_transport(cost, blocked=blocked)
    loss = mean(targeted_unlearning(s, query @ negative.T, noisy))
    crossed = mean(targeted_unlearning(s, query @ negative.T, noisy, negative_logits=sigma))
    computed |= {
        "rec_cost": cost,
        "rec_mask": ~blocked,
        "rec_plan": plan,
        "rec_label": soft_labels(plan, hard_labels(noisy)),
        "unlearn_recommended": loss,
        "unlearn_recommended_grad_fc": gradient(loss, query),
        "unlearn_recommended_grad_fneg": gradient(loss, negative),
        "unlearn_switch_negt_logits": crossed,
    }

    mixed = released_scores(s, sigma)
    cost, blocked, hard = (
        scaled_cost(mixed),
        released_blocked(released_noisy),
        released_labels(released_noisy),
    )
    plan, transposed = (
        entropic_transport(cost, blocked=blocked),
        entropic_transport(cost.T, blocked=blocked.T),
    )
    label, transposed_label = soft_labels(plan, hard), soft_labels(transposed, hard.T)
    sharp = torch.softmax(label, dim=1)
    loss = mean(targeted_unlearning_released(s, sigma, released_noisy))
    computed |= {
        "x_no_released": mixed[:, len(s) :],
        "x_no_is_transpose_of_neg_rows": torch.tensor(torch.equal(mixed[:, len(s) :], sigma.T)),
        "sink_cost_v": cost,
        "sink_mask_v": ~blocked,
        "sink_plan_v": plan,
        "plan_v_row_sums": plan.sum(dim=1),
        "plan_v_col_sums": plan.sum(dim=0),
        "plan_t_has_nan": transposed.isnan().any(),
        "label_v_before_softmax": label,
        "label_v_after_softmax_max": sharp.max(),
        "unlearn_kl_v_released": mean(divergence(sharp, torch.log_softmax(mixed, dim=1))),
        "unlearn_kl_t_released": mean(
            divergence(torch.softmax(transposed_label, dim=1), torch.log_softmax(mixed.T, dim=1))
        ),
        "unlearn_released": loss,
        "unlearn_released_grad_fc": gradient(loss, query),
        "unlearn_released_grad_fneg": gradient(loss, negative),
    }
    if size == "b16":  # the transposed half is stored for b16 only
        computed |= {
            "sink_cost_t": cost.T,
            "sink_plan_t": transposed,
            "label_t_before_softmax": transposed_label,
        }
    check_golden(computed, stored, scaled=SCALED)
