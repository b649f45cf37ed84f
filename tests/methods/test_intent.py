"""INTENT: each term against its objective, each switch, the schedule, the counterfactuals and their draws."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from triptych.backbones.base import Backbone, BackboneShape
from triptych.methods.base import Losses, TripletBatch
from triptych.methods.intent import Intent, IntentConfig, _derangement
from triptych.objectives import (
    cka_distance,
    grayscale,
    loyalty,
    mix_amplitude,
    robust_contrastive,
    similarity,
    soft_discriminative,
)

MakeBatch = Callable[..., TripletBatch]
Make = Callable[..., Intent]


@pytest.fixture
def make(shape: BackboneShape) -> Make:
    return lambda epoch=0, **switches: _at_epoch(Intent(IntentConfig(**switches), shape, seed=3), epoch)


def _at_epoch(method: Intent, epoch: int) -> Intent:
    method.begin_epoch(SimpleNamespace(epoch=epoch, epochs=20, seed=0))
    return method


def named(losses: Losses) -> dict[str, float]:
    return {name: weight for name, _, weight in losses}


def test_the_three_terms_by_their_objectives(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    method, batch = make(), make_batch()
    losses = method.losses(batch, backbone)
    assert named(losses) == {"robust": 1.0, "sod": 0.2, "caco": 0.6}

    composed = backbone.compose(batch.reference_tokens, batch.texts)
    s = similarity(composed.vector, backbone.targets(batch.target_tokens))
    assert_close(losses["robust"], robust_contrastive(s, temperature=0.07))
    assert_close(losses["sod"], soft_discriminative(loyalty(s), form="ce_scaled", scale=10.0))

    draws = torch.Generator().manual_seed(0)
    irrelevant = batch.target_pixels[_derangement(6, draws)]
    share = torch.rand(6, generator=draws)
    pixels = mix_amplitude(batch.reference_pixels, irrelevant, share, window=(11, 11)).clamp(0, 1)
    altered = backbone.compose(backbone.encode_images(pixels), batch.texts)
    tokens = [
        functional.normalize(method.causal(hidden[:, :4]), dim=-1)
        for hidden in (composed.hidden, altered.hidden)
    ]
    assert_close(losses["caco"], cka_distance(*tokens))
    total = losses["robust"].mean() + 0.2 * losses["sod"].mean() + 0.6 * losses["caco"].mean()
    assert_close(losses.total(), total)


CHANGES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "B1 without robust": ({"robust": False}, {"robust"}),
    "B2 without mask": ({"mask_diagonal": False}, {"robust"}),
    "B3 without sod": ({"mu": 0.0}, {"sod"}),
    "A1 without the pass": ({"alpha": 0.0}, {"caco"}),
    "A1 no intervention": ({"intervention": "none"}, {"caco"}),
    "A2 grayscale": ({"intervention": "grayscale"}, {"caco"}),
    "A3 without positive reward": ({"positive_weight_reward": False}, {"sod"}),
    "A4 without negative reward": ({"negative_weight_reward": False}, {"sod"}),
    "A5 without both": ({"positive_weight_reward": False, "negative_weight_reward": False}, {"sod"}),
    "B4 mse": ({"caco": "mse"}, {"caco"}),
    "B5 l1": ({"caco": "l1"}, {"caco"}),
    "B6 l2": ({"caco": "l2"}, {"caco"}),
    "C1 mask": ({"intervention": "mask"}, {"caco"}),
    "C2 shuffle": ({"intervention": "shuffle"}, {"caco"}),
    "C3 blur": ({"intervention": "blur"}, {"caco"}),
    "C4 style": ({"intervention": "style"}, {"caco"}),
    "temperature": ({"temperature": 0.1}, {"robust", "sod"}),
    "neglog": ({"sod": "neglog"}, {"sod"}),
    "scale": ({"scale": 5.0}, {"sod"}),
    "released norm": ({"loyalty_norm": "Q_released"}, {"sod"}),
    "own target": ({"irrelevant": "own_target"}, {"caco"}),
    "narrow lambda": ({"lambda_range": (0.3, 0.7)}, {"caco"}),
    "article's window": ({"window": "px64"}, {"caco"}),
    "whole spectrum": ({"window_ratio": 1.0}, {"caco"}),
    "released clamp": ({"mix_clamp": "released"}, {"caco"}),
    "jitter": ({"jitter": 0.2}, {"caco"}),
    "noise": ({"pixel_noise": 0.1}, {"caco"}),
    "pooled": ({"cka_tokens": "pooled"}, {"caco"}),
    "pooled mse": ({"cka_tokens": "pooled", "caco": "mse"}, {"caco"}),
    "bank": ({"counterfactual_bank": 4}, {"caco"}),
}
IN_ONE_STEP_EQUAL = {
    "compat": "it sets other switches; see test_presets",
    "learnable_scale": "it changes what is trained, not a step's loss",
    "robust_from_epoch": "it changes later epochs; see the schedule",
    "vic_schedule": "it changes later epochs; see the schedule",
}


def test_every_switch_is_tried() -> None:
    tried = {key for switches, _ in CHANGES.values() for key in switches}
    assert tried | set(IN_ONE_STEP_EQUAL) == set(IntentConfig.model_fields)


@pytest.mark.parametrize("change", CHANGES)
def test_a_switch_changes_its_terms_and_no_other(
    change: str, backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    switches, terms = CHANGES[change]
    plain = make().losses(make_batch(), backbone)
    changed_method = make(**switches)
    changed = changed_method.losses(make_batch(), backbone)
    for term in named(plain):
        if term not in named(changed):
            assert term in terms
        else:
            assert torch.equal(plain[term], changed[term]) == (term not in terms), term
            assert changed[term].isfinite().all()
    changed.total().backward()
    for parameter in [*changed_method.parameters(), *backbone.parameters()]:
        assert parameter.grad is None or parameter.grad.isfinite().all()


def test_negative_reward_is_without_effect_under_neglog(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    full, without, bare, positive = (
        make(sod="neglog", positive_weight_reward=positive, negative_weight_reward=negative)
        .losses(make_batch(), backbone)["sod"]
        .detach()
        for positive, negative in ((True, True), (True, False), (False, False), (False, True))
    )
    assert torch.equal(full, without)
    assert torch.equal(bare, positive)
    assert not torch.allclose(full, bare)


def test_gradients_reach_both_branches_the_projection_and_the_scale(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    method = make()
    method.losses(make_batch(), backbone).total().backward()
    assert method.scale.grad is not None
    assert method.scale.grad != 0
    assert method.causal.weight.grad is not None
    assert method.causal.weight.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in backbone.tower.parameters())
    assert not make(learnable_scale=False).scale.requires_grad


def test_schedules(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    for epoch, expected in ((0, True), (1, True), (2, False), (9, False)):
        assert ("caco" in make(epoch, vic_schedule="first2").losses(make_batch(), backbone)) == expected
        assert "caco" in make(epoch).losses(make_batch(), backbone)
        assert ("robust" in make(epoch, robust_from_epoch=2).losses(make_batch(), backbone)) != expected


def test_needs_follow_the_schedule_and_the_bank(make: Make) -> None:
    assert make().needs(0) == make().needs(19) == {"pixels"}
    assert make(counterfactual_bank=4).needs(0) == {"counterfactuals"}
    assert make(counterfactual_bank=4).counterfactual_bank == 4
    assert make().counterfactual_bank == 0
    first = make(vic_schedule="first2")
    assert [first.needs(epoch) for epoch in (0, 1, 2)] == [{"pixels"}, {"pixels"}, frozenset()]
    assert make(alpha=0.0).needs(0) == make(intervention="none").needs(0) == frozenset()


def test_a_batch_without_what_was_asked_for_is_refused(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    with pytest.raises(ValueError, match="reference_pixels"):
        make().losses(make_batch(reference_pixels=None), backbone)
    with pytest.raises(ValueError, match="counterfactual_tokens"):
        make(counterfactual_bank=4).losses(make_batch(counterfactual_tokens=None), backbone)
    tokens_only = make_batch(reference_pixels=None, target_pixels=None, counterfactual_tokens=None)
    assert set(named(make(alpha=0.0).losses(tokens_only, backbone))) == {"robust", "sod"}


def test_the_step_generator_decides_the_counterfactuals(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    def caco(seed: int, **switches: Any) -> Tensor:
        return make(**switches).losses(make_batch(seed=seed), backbone)["caco"].detach()

    torch.manual_seed(1)
    first = caco(7)
    torch.manual_seed(2)
    assert torch.equal(caco(7), first)
    assert not torch.equal(caco(8), first)
    assert torch.equal(
        caco(7, counterfactual_bank=4), caco(8, counterfactual_bank=4)
    )  # drawn before training


@given(st.integers(2, 40), st.integers(0, 10_000))
def test_a_derangement_moves_everyone(size: int, seed: int) -> None:
    partner = _derangement(size, torch.Generator().manual_seed(seed))
    assert sorted(partner.tolist()) == list(range(size))
    assert (partner != torch.arange(size)).all()


def test_every_partner_is_equally_likely_and_a_lone_one_keeps_itself() -> None:
    draws = torch.Generator().manual_seed(0)
    counts = torch.zeros(5, 5)
    for _ in range(4000):
        counts[torch.arange(5), _derangement(5, draws)] += 1
    assert_close(counts / 4000, (1 - torch.eye(5)) / 4, rtol=0.0, atol=0.04)
    assert _derangement(1, draws).tolist() == [0]


@pytest.mark.parametrize("intervention", ["fft", "grayscale", "mask", "shuffle", "blur", "style"])
@pytest.mark.parametrize("clamp", ["unit", "released"])
def test_counterfactuals_are_pictures(
    intervention: str, clamp: str, backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    batch = make_batch()
    assert batch.reference_pixels is not None
    assert batch.target_pixels is not None
    method = make(intervention=intervention, mix_clamp=clamp, jitter=0.1, pixel_noise=0.05)
    draw = torch.Generator().manual_seed
    pixels = method.counterfactual(batch.reference_pixels, batch.target_pixels, backbone, draw(1))
    assert pixels.shape == batch.reference_pixels.shape
    assert pixels.min() >= 0
    assert pixels.max() <= 1
    assert (pixels - batch.reference_pixels).abs().mean() > 0.01
    again = method.counterfactual(batch.reference_pixels, batch.target_pixels, backbone, draw(1))
    assert torch.equal(pixels, again)


def test_grayscale_counterfactuals_are_grey(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    pixels = make_batch().reference_pixels
    altered = make(intervention="grayscale").counterfactual(pixels, pixels, backbone, torch.Generator())
    assert torch.equal(altered, grayscale(pixels))


def test_released_clamp_saturates_most_of_a_random_picture(backbone: Backbone, make: Make) -> None:
    """Normalised pixels clamped to [0, 1] leave [mean, mean + deviation] only."""
    draws = torch.Generator().manual_seed(0)
    x, other = torch.rand(2, 4, 3, 16, 16, generator=draws)
    altered = make(mix_clamp="released", lambda_range=(0.0, 0.0)).counterfactual(x, other, backbone, draws)
    low = backbone.pixel_mean[:, None, None].expand_as(x)
    high = (backbone.pixel_mean + backbone.pixel_std)[:, None, None].expand_as(x)
    assert_close(altered, x.clamp(low, high))
    saturated = torch.isclose(altered, low) | torch.isclose(altered, high)
    assert saturated.float().mean().item() == pytest.approx(0.73, abs=0.03)


def test_lambda_range_bounds_the_share(backbone: Backbone, make: Make) -> None:
    """On flat pictures the mix is λ of the other: 0 and 1 give λ itself."""
    black, white = torch.zeros(500, 3, 4, 4), torch.ones(500, 3, 4, 4)
    draws = torch.Generator().manual_seed(0)
    shares = make(lambda_range=(0.3, 0.7)).counterfactual(black, white, backbone, draws)[:, 0, 0, 0]
    assert shares.min() >= 0.3
    assert shares.max() <= 0.7
    assert shares.mean().item() == pytest.approx(0.5, abs=0.02)
    assert shares.unique().numel() > 400


def test_recipes_of_banks_differ_where_the_pictures_do(make: Make) -> None:
    pictures = (
        "intervention",
        "lambda_range",
        "window",
        "window_ratio",
        "mix_clamp",
        "jitter",
        "pixel_noise",
    )
    recipes = {
        make(**switches).counterfactual_recipe
        for switches, _ in CHANGES.values()
        if set(switches) & set(pictures)
    }
    assert len(recipes) == sum(bool(set(switches) & set(pictures)) for switches, _ in CHANGES.values())
    assert make(mu=0.5).counterfactual_recipe == make().counterfactual_recipe


def test_cleanliness_is_the_loyalty_of_the_annotated_pair(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    batch = make_batch()
    s = similarity(
        backbone.compose(batch.reference_tokens, batch.texts).vector, backbone.targets(batch.target_tokens)
    )
    trusted = make().cleanliness(batch, backbone)
    assert not trusted.requires_grad
    assert_close(trusted, loyalty(s).diagonal().detach())
    assert torch.equal(make(positive_weight_reward=False).cleanliness(batch, backbone), trusted)
    first = s.argmax(dim=1) == torch.arange(len(batch))
    assert torch.equal(trusted > 0.5, first)
    assert not torch.allclose(make(loyalty_norm="Q_released").cleanliness(batch, backbone), trusted)


def test_half_precision_features_give_float32_losses(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    batch, method = make_batch(), make()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = method.losses(batch, backbone)
    exact = method.losses(make_batch(), backbone)
    for name, values, _ in losses:
        assert values.dtype == torch.float32
        assert_close(values, exact[name], rtol=0.1, atol=0.05)
    losses.total().backward()


def test_identical_triplets_and_black_pictures_stay_finite(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    batch = make_batch()
    black = torch.zeros(6, 3, 16, 16)
    tokens = backbone.encode_images(black)
    same = replace(
        batch,
        texts=("x",) * 6,
        reference_tokens=tokens,
        target_tokens=tokens,
        reference_pixels=black,
        target_pixels=black,
    )
    method = make()
    losses = method.losses(same, backbone)
    losses.total().backward()
    for _, values, _ in losses:
        assert values.isfinite().all()
    for parameter in [*method.parameters(), *backbone.parameters()]:
        assert parameter.grad is None or parameter.grad.isfinite().all()
