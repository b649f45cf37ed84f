"""SSN: both terms against their objectives, each switch, rates, ranking, cleanliness, small or strange batches."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.testing import assert_close

from triptych.backbones.base import Backbone, BackboneShape
from triptych.errors import UsageError
from triptych.methods import registry
from triptych.methods.base import Losses, TripletBatch
from triptych.methods.ssn import Ssn, SsnConfig
from triptych.objectives import info_nce, shift_divergence, similarity, symmetric

MakeBatch = Callable[..., TripletBatch]
Make = Callable[..., Ssn]


@pytest.fixture
def make(shape: BackboneShape) -> Make:
    """Make the method, with a small feed-forward part unless another is asked for."""
    return lambda **switches: Ssn(SsnConfig(**{"feedforward": 32, **switches}), shape, seed=3).eval()


def named(losses: Losses) -> dict[str, float]:
    return {name: weight for name, _, weight in losses}


def fused(method: Ssn, batch: TripletBatch, backbone: Backbone) -> tuple[Tensor, Tensor, Tensor]:
    """Query, anti-query and target, from the backbone's plain calls."""

    def pooled(tokens: Tensor) -> Tensor:
        return functional.normalize(backbone.targets(tokens).mean(dim=1), dim=1)

    def seen(tokens: Tensor) -> Tensor:
        image = backbone.vision(tokens)
        return torch.cat([image.mean(dim=1)[:, None], image], dim=1)

    states, mask = backbone.text_pass(batch.texts)
    reference, target = batch.reference_tokens, batch.target_tokens
    words = functional.linear(states, method.words.weight, method.words.bias)
    query, anti_query = method.fusion(
        seen(reference), pooled(reference), words, backbone.text(batch.texts), mask
    )
    return query, anti_query, method.fusion.target(seen(target), pooled(target))


def test_both_terms_by_their_objectives(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    method, batch = make(), make_batch()
    losses = method.losses(batch, backbone)
    assert named(losses) == {"matching": 1.0, "shift": 1.0}
    query, anti_query, targets = fused(method, batch, backbone)
    kept, removed = query @ targets.T, anti_query @ targets.T
    assert_close(
        losses["matching"], symmetric(partial(info_nce, temperature=0.01), kept), rtol=1e-4, atol=1e-5
    )
    assert_close(losses["shift"], shift_divergence(kept, removed), rtol=1e-4, atol=1e-5)
    assert_close(losses.total(), losses["matching"].mean() + losses["shift"].mean())
    weighted = make(kl_weight=0.1).losses(batch, backbone)
    assert named(weighted) == {"matching": 1.0, "shift": 0.1}


def test_a_query_and_a_target_score_as_in_training(
    backbone: Backbone, make: Make, make_batch: MakeBatch, shape: BackboneShape
) -> None:
    method, batch = make(), make_batch()
    query = method.query(batch.reference_tokens, batch.texts, backbone)
    targets = method.targets(batch.target_tokens, backbone)
    assert query.shape == (6, shape.dim)
    assert targets.shape == (6, 1, shape.dim)
    for rows in (query, targets[:, 0]):
        assert_close(rows.norm(dim=1), torch.ones(6))
    loss = symmetric(partial(info_nce, temperature=0.01), similarity(query, targets))
    assert_close(method.losses(batch, backbone)["matching"], loss)
    assert torch.equal(method.text_query(batch.texts, backbone), backbone.text(batch.texts))


def test_a_score_depends_on_the_batch_only_as_released(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    """The first text is the shortest: alone it has no padding."""
    batch = make_batch()
    for method in (make(), make(mask_padding=False)):
        together = method.query(batch.reference_tokens, batch.texts, backbone)[0]
        alone = method.query(batch.reference_tokens[:1], batch.texts[:1], backbone)[0]
        assert torch.allclose(alone, together, rtol=1e-5, atol=1e-6) == method.config.mask_padding
        gallery = method.targets(batch.target_tokens, backbone)
        assert_close(method.targets(batch.target_tokens[:1], backbone), gallery[:1])


def test_a_class_token_stands_first_where_there_is_one(
    backbone: Backbone, make_batch: MakeBatch, shape: BackboneShape
) -> None:
    batch = make_batch()
    config = SsnConfig(feedforward=32)
    method = Ssn(config, replace(shape, class_token=True), seed=3).eval()
    image = backbone.vision(batch.target_tokens)
    pooled = functional.normalize(backbone.targets(batch.target_tokens).mean(dim=1), dim=1)
    targets = method.targets(batch.target_tokens, backbone)[:, 0]
    assert_close(targets, method.fusion.target(image, pooled))
    assert not torch.allclose(
        targets, Ssn(config, shape, seed=3).eval().targets(batch.target_tokens, backbone)[:, 0]
    )


CHANGES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "without the anti-query": ({"kl_weight": 0.0}, {"shift"}),
    "temperature": ({"temperature": 0.05}, {"matching", "shift"}),
    "released padding": ({"mask_padding": False}, {"matching", "shift"}),
    "heads": ({"heads": 2}, {"matching", "shift"}),
    "feed-forward": ({"feedforward": 64}, {"matching", "shift"}),
}
IN_ONE_STEP_EQUAL = {
    "compat": "it sets other switches; see test_presets",
    "robust_from_epoch": "an ordinary baseline has no noise-robust term",
    "dropout": "it acts in training alone; see below",
    "backbone_rate": "it changes the optimiser; see below",
}


def test_every_switch_is_tried() -> None:
    tried = {key for switches, _ in CHANGES.values() for key in switches}
    assert tried | set(IN_ONE_STEP_EQUAL) == set(SsnConfig.model_fields)


@pytest.mark.parametrize("change", CHANGES)
def test_a_switch_changes_its_terms_and_no_other(
    change: str, backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    switches, terms = CHANGES[change]
    plain, changed = (m.losses(make_batch(), backbone) for m in (make(), make(**switches)))
    for term in named(plain):
        if term not in named(changed):
            assert term in terms
        else:
            assert torch.equal(plain[term], changed[term]) == (term not in terms), term


def test_dropout_acts_in_training_alone(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    def shift(method: Ssn) -> Tensor:
        torch.manual_seed(0)
        return method.losses(make_batch(), backbone)["shift"].detach()

    assert torch.equal(shift(make(dropout=0.5)), shift(make()))
    assert_close(shift(make(dropout=0.0).train()), shift(make()), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(shift(make().train()), shift(make()))


def test_rates_of_the_groups(make: Make) -> None:
    """The head's over CLIP's 0.2 are the release's 4, 4, 2 and 1 times lr_ratio; every parameter has a group."""
    rates = {name: make(backbone_rate=0.2).rate(f"method.{name}") for name in make().state_dict()}
    groups = {name.split(".")[0] + "." + name.split(".")[1]: rate for name, rate in rates.items()}
    assert groups == {
        "words.weight": 0.4,
        "words.bias": 0.4,
        "fusion.types": 0.8,
        "fusion.image_projection": 0.4,
        "fusion.text_gate": 0.8,
        "fusion.image_gate": 0.8,
        "fusion.fusion": 0.8,
        "fusion.combiner": 1.0,
        "fusion.output": 1.0,
        "fusion.share": 1.0,
    }
    assert make().rate("backbone.query_tokens") == 1.0
    assert make(backbone_rate=0.2).rate("backbone.fusion.types") == 0.2


def test_no_more_passes_than_needed(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    batch, method = make_batch(), make()
    with ExitStack() as spies:
        calls = {
            name: spies.enter_context(patch.object(backbone, name, wraps=getattr(backbone, name)))
            for name in ("compose", "text_pass", "look")
        }
        method.losses(batch, backbone)
        assert {name: call.call_count for name, call in calls.items()} == {
            "compose": 0,
            "text_pass": 1,
            "look": 2,
        }
        calls["text_pass"].reset_mock()
        method.targets(batch.target_tokens, backbone)
        assert not calls["text_pass"].called


def test_layers_only_where_widths_differ(shape: BackboneShape) -> None:
    same = Ssn(SsnConfig(feedforward=32), replace(shape, dim=shape.hidden))
    assert isinstance(same.words, nn.Identity)
    with pytest.raises(UsageError, match=r"heads = 8 .* dim = 12"):
        registry.create("ssn", {}, replace(shape, dim=12))


def test_cleanliness_is_the_annotated_probability(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    method, batch = make(), make_batch()
    query, _, targets = fused(method, batch, backbone)
    expected = torch.softmax(query @ targets.T / 0.07, dim=1).diagonal().detach()
    trusted = method.cleanliness(batch, backbone)
    assert not trusted.requires_grad
    assert_close(trusted, expected)
    step = method.losses(batch, backbone)
    assert step.cleanliness is not None
    assert_close(step.cleanliness, expected)
    assert_close(torch.as_tensor(step.diagnostics["p_positive"]), expected.mean())
    assert set(step.diagnostics) == {"p_positive", "p_negative"}


def test_after_some_steps_swapped_targets_are_trusted_less(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    method, batch = make(kl_weight=0.1), make_batch(8)
    parameters = [p for p in [*method.parameters(), *backbone.parameters()] if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=3e-3)
    first = method.losses(batch, backbone)["matching"].mean().item()
    for _ in range(30):
        optimizer.zero_grad()
        method.losses(batch, backbone).total().backward()
        optimizer.step()
    assert method.losses(batch, backbone)["matching"].mean().item() < 0.5 * first
    swapped = replace(batch, target_tokens=batch.target_tokens[[1, 0, 2, 3, 4, 5, 6, 7]])
    trusted = method.cleanliness(swapped, backbone)
    assert trusted[:2].max() < trusted[2:].min()


@pytest.mark.parametrize("size", [1, 2, 7])
def test_small_batches_are_finite(size: int, backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    method, batch = make().train(), make_batch(size)
    losses = method.losses(batch, backbone)
    for _, values, _ in losses:
        assert values.shape == (size,)
        assert values.dtype == torch.float32
        assert values.isfinite().all()
    losses.total().backward()
    for parameter in [*method.parameters(), *backbone.parameters()]:
        assert parameter.grad is None or parameter.grad.isfinite().all()
    trusted = method.cleanliness(batch, backbone)
    assert ((trusted >= 0) & (trusted <= 1)).all()


@pytest.mark.parametrize("mask_padding", [False, True])
def test_identical_triplets_and_no_words_stay_finite(
    mask_padding: bool, backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    tokens = torch.zeros_like(make_batch().reference_tokens)
    batch = make_batch(texts=("",) * 6, reference_tokens=tokens, target_tokens=tokens)
    method = make(mask_padding=mask_padding)
    losses = method.losses(batch, backbone)
    losses.total().backward()
    for _, values, _ in losses:
        assert values.isfinite().all()
    for parameter in [*method.parameters(), *backbone.parameters()]:
        assert parameter.grad is None or parameter.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_features_give_float32_losses(
    dtype: torch.dtype, backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    method = make()
    with torch.autocast("cpu", dtype=dtype):
        losses = method.losses(make_batch(), backbone)
    exact = method.losses(make_batch(), backbone)
    for name, values, _ in losses:
        assert values.dtype == torch.float32
        assert_close(values, exact[name], rtol=0.2, atol=0.5)
    losses.total().backward()
    for parameter in [*method.parameters(), *backbone.parameters()]:
        assert parameter.grad is None or parameter.grad.isfinite().all()


def test_the_seed_decides_the_start(shape: BackboneShape) -> None:
    first, again, other = (Ssn(SsnConfig(), shape, seed=seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["words.weight"], other["words.weight"])
    assert not torch.equal(first["fusion.types"], other["fusion.types"])
