"""CALA: both terms against their objectives, each switch, ranking, cleanliness, and small or strange batches."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

from triptych.backbones.base import Backbone, BackboneShape
from triptych.errors import UsageError
from triptych.methods import registry
from triptych.methods.base import Losses, TripletBatch
from triptych.methods.cala import Cala, CalaConfig
from triptych.objectives import info_nce, similarity

MakeBatch = Callable[..., TripletBatch]
Make = Callable[..., Cala]
PASSES = ("compose", "text_pass", "image_pass")


@pytest.fixture
def make(shape: BackboneShape) -> Make:
    return lambda **switches: Cala(CalaConfig(**switches), shape, seed=3).eval()


def named(losses: Losses) -> dict[str, float]:
    return {name: weight for name, _, weight in losses}


def test_both_terms_by_hand(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    """The arithmetic of the golden file, on what the backbone's passes give."""
    method, batch = make(), make_batch()
    losses = method.losses(batch, backbone)
    assert named(losses) == {"contrastive": 0.9, "reasoning": 0.1}

    fused = backbone.compose(batch.reference_tokens, batch.texts).hidden[:, :4]
    text, mask = backbone.text_pass(batch.texts)
    target, reference = (backbone.image_pass(t) for t in (batch.target_tokens, batch.reference_tokens))
    q = functional.normalize(fused[:, 0] + text[:, 0], dim=1)
    matching = 100 * q @ functional.normalize(target[:, 0], dim=1).T
    aligning = 10 * text[:, 0] @ method.twin(reference, target).T
    assert_close(
        losses["contrastive"],
        info_nce(0.45 * aligning + 0.55 * matching, temperature=1.0),
        rtol=1e-4,
        atol=1e-5,
    )
    reasoning = 10 * method.hinge(fused, text, target, mask) @ fused[:, 0].T
    assert_close(losses["reasoning"], info_nce(reasoning, temperature=1.0), rtol=1e-4, atol=1e-5)
    total = 0.9 * losses["contrastive"].mean() + 0.1 * losses["reasoning"].mean()
    assert_close(losses.total(), total)


def test_a_query_and_a_target_score_as_in_training(
    backbone: Backbone, make: Make, make_batch: MakeBatch, shape: BackboneShape
) -> None:
    method, batch = make(w_tac=0.0, w_hca=0.0), make_batch()
    query = method.query(batch.reference_tokens, batch.texts, backbone)
    targets = method.targets(batch.target_tokens, backbone)
    assert query.shape == (6, shape.hidden)
    assert targets.shape == (6, 1, shape.hidden)
    for rows in (query, targets[:, 0], method.text_query(batch.texts, backbone)):
        assert_close(rows.norm(dim=1), torch.ones(6))
    losses = method.losses(batch, backbone)
    assert named(losses) == {"contrastive": 1.0}
    assert_close(losses["contrastive"], info_nce(similarity(query, targets), temperature=0.01))


def test_a_score_does_not_depend_on_the_batch(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    """With the release's padded hinge too: ranking does not use it."""
    batch = make_batch()
    for method in (make(), make(unmasked=True)):
        together = method.query(batch.reference_tokens, batch.texts, backbone)
        alone = method.query(batch.reference_tokens[:1], batch.texts[:1], backbone)
        assert_close(alone[0], together[0])
        gallery = method.targets(batch.target_tokens, backbone)
        assert_close(method.targets(batch.target_tokens[:1], backbone), gallery[:1])


CHANGES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "without the gap": ({"w_tac": 0.0}, {"contrastive"}),
    "without the hinge": ({"w_hca": 0.0}, {"reasoning"}),
    "temperature": ({"temperature": 0.05}, {"contrastive"}),
    "association temperature": ({"association_temperature": 1.0}, {"contrastive", "reasoning"}),
    "released padding": ({"unmasked": True}, {"reasoning"}),
}
IN_ONE_STEP_EQUAL = {
    "backbone": "it has one value for now",
    "compat": "it sets other switches; see test_presets",
    "robust_from_epoch": "an ordinary baseline has no noise-robust term",
    "hinge_dropout": "it acts in training alone; see below",
    "attention_rate": "it changes the optimiser; see below",
}


def test_every_switch_is_tried() -> None:
    tried = {key for switches, _ in CHANGES.values() for key in switches}
    assert tried | set(IN_ONE_STEP_EQUAL) == set(CalaConfig.model_fields)


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
    assert torch.equal(plain.cleanliness, changed.cleanliness)


def test_what_acts_in_training_alone(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    def reasoning(method: Cala) -> torch.Tensor:
        torch.manual_seed(0)
        return method.losses(make_batch(), backbone)["reasoning"].detach()

    assert torch.equal(reasoning(make(hinge_dropout=0.5)), reasoning(make()))
    assert torch.equal(reasoning(make(hinge_dropout=0.0).train()), reasoning(make()))
    assert not torch.allclose(reasoning(make().train()), reasoning(make()))
    names = ["backbone.query_tokens", "method.twin.target_query.in_proj_weight", "method.hinge.value.bias"]
    assert [make().rate(name) for name in names] == [1.0, 2.0, 2.0]
    assert [make(attention_rate=1.0).rate(name) for name in names] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("switches", "expected"),
    [
        ({}, {"compose": 1, "text_pass": 1, "image_pass": 2}),
        ({"w_tac": 0.0}, {"compose": 1, "text_pass": 1, "image_pass": 1}),
    ],
)
def test_no_more_passes_than_needed(
    switches: dict[str, float],
    expected: dict[str, int],
    backbone: Backbone,
    make: Make,
    make_batch: MakeBatch,
) -> None:
    batch = make_batch()
    with ExitStack() as spies:
        calls = {
            name: spies.enter_context(patch.object(backbone, name, wraps=getattr(backbone, name)))
            for name in PASSES
        }
        make(**switches).losses(batch, backbone)
    assert {name: call.call_count for name, call in calls.items()} == expected


def test_what_is_refused() -> None:
    for switch in (
        "w_tac",
        "w_hca",
    ):  # with the whole weight on an association nothing would rank the targets
        with pytest.raises(UsageError, match=switch):
            registry.configure("cala", {switch: 1.0})
    with pytest.raises(UsageError, match=r"backbone.*shared"):
        registry.configure("cala", {"backbone": "vitl_three"})


def test_cleanliness_is_the_annotated_probability(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    method, batch = make(), make_batch()
    scores = similarity(
        method.query(batch.reference_tokens, batch.texts, backbone),
        method.targets(batch.target_tokens, backbone),
    )
    expected = torch.softmax(scores / 0.07, dim=1).diagonal().detach()
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
    method, batch = make(), make_batch(8)
    parameters = [p for p in [*method.parameters(), *backbone.parameters()] if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=3e-3)
    first = None
    for _ in range(30):
        optimizer.zero_grad()
        loss = method.losses(batch, backbone).total()
        first = loss.item() if first is None else first
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.5 * first
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


@pytest.mark.parametrize("unmasked", [False, True])
def test_identical_triplets_and_no_words_stay_finite(
    unmasked: bool, backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    tokens = torch.zeros_like(make_batch().reference_tokens)
    batch = make_batch(texts=("",) * 6, reference_tokens=tokens, target_tokens=tokens)
    method = make(unmasked=unmasked)
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


def test_the_seed_decides_the_start(make: Make, shape: BackboneShape) -> None:
    first, again, other = (Cala(CalaConfig(), shape, seed=seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["hinge.value.weight"], other["hinge.value.weight"])
