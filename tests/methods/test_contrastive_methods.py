"""InfoNCE and RCL: the objective on the one score, their switches, and small batches."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from triptych.backbones.base import Backbone, BackboneShape
from triptych.methods import registry
from triptych.methods.base import TripletBatch
from triptych.objectives import info_nce, robust_contrastive, similarity, symmetric

MakeBatch = Callable[..., TripletBatch]
METHODS = [pytest.param("infonce", "infonce", info_nce), pytest.param("rcl", "robust", robust_contrastive)]


def scores(batch: TripletBatch, backbone: Backbone) -> Tensor:
    composed = backbone.compose(batch.reference_tokens, batch.texts)
    return similarity(composed.vector, backbone.targets(batch.target_tokens))


@pytest.mark.parametrize(("name", "term", "objective"), METHODS)
def test_the_loss_is_the_objective_on_the_score(
    name: str,
    term: str,
    objective: Callable[..., Tensor],
    backbone: Backbone,
    shape: BackboneShape,
    make_batch: MakeBatch,
) -> None:
    batch = make_batch()
    s = scores(batch, backbone)
    losses = registry.create(name, {}, shape).losses(batch, backbone)
    assert [(found, weight) for found, _, weight in losses] == [(term, 1.0)]
    assert_close(losses[term], objective(s, temperature=0.07))
    assert_close(losses.total(), objective(s).mean())

    warm = registry.create(name, {"temperature": 0.5}, shape).losses(batch, backbone)
    assert_close(warm[term], objective(s, temperature=0.5))
    both = registry.create(name, {"direction": "sym"}, shape).losses(batch, backbone)
    assert_close(both[term], symmetric(objective, s))
    assert not torch.allclose(both[term], losses[term])


@pytest.mark.parametrize(("name", "term", "objective"), METHODS)
def test_a_learned_temperature_gets_a_gradient_and_has_a_floor(
    name: str,
    term: str,
    objective: Callable[..., Tensor],
    backbone: Backbone,
    shape: BackboneShape,
    make_batch: MakeBatch,
) -> None:
    assert not list(registry.create(name, {}, shape).parameters())
    method = registry.create(name, {"learnable_temperature": True, "temperature": 0.2}, shape)
    (tau,) = method.parameters()
    batch = make_batch()
    method.losses(batch, backbone).total().backward()
    assert tau.grad is not None
    assert tau.grad != 0
    with torch.no_grad():
        tau.fill_(-1.0)
    expected = objective(scores(batch, backbone), temperature=0.01)
    assert_close(method.losses(batch, backbone)[term], expected)


@pytest.mark.parametrize("name", ["infonce", "rcl", "intent"])
def test_diagnostics_are_batch_means_without_a_gradient(
    name: str, backbone: Backbone, shape: BackboneShape, make_batch: MakeBatch
) -> None:
    batch = make_batch()
    p = torch.softmax(scores(batch, backbone) / 0.07, dim=1)
    losses = registry.create(name, {}, shape).losses(batch, backbone)
    assert set(losses.diagnostics) == {"p_positive", "p_negative"}
    positive, negative = (torch.as_tensor(losses.diagnostics[key]) for key in ("p_positive", "p_negative"))
    assert not positive.requires_grad
    assert not negative.requires_grad
    assert_close(positive, p.diagonal().mean())
    assert_close(negative, (p - torch.diag(p.diagonal())).amax(dim=1).mean())


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("name", ["infonce", "rcl", "intent"])
def test_small_batches_are_finite(
    name: str, size: int, backbone: Backbone, shape: BackboneShape, make_batch: MakeBatch
) -> None:
    method, batch = registry.create(name, {}, shape), make_batch(size)
    losses = method.losses(batch, backbone)
    for _, values, _ in losses:
        assert values.shape == (size,)
        assert values.dtype == torch.float32
    losses.total().backward()
    for parameter in [*method.parameters(), *backbone.parameters()]:
        assert parameter.grad is None or parameter.grad.isfinite().all()
    trusted = method.cleanliness(batch, backbone)
    assert trusted.shape == (size,)
    assert ((trusted >= 0) & (trusted <= 1)).all()


def test_cleanliness_of_rcl_is_the_annotated_probability(
    backbone: Backbone, shape: BackboneShape, make_batch: MakeBatch
) -> None:
    batch = make_batch()
    p = torch.softmax(scores(batch, backbone) / 0.07, dim=1)
    assert_close(registry.create("rcl", {}, shape).cleanliness(batch, backbone), p.diagonal().detach())
