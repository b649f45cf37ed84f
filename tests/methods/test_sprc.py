"""SPRC: each term against its objective, where each gradient goes, and each switch."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from triptych.backbones.base import Backbone, BackboneShape
from triptych.methods import registry
from triptych.methods.base import Losses, TripletBatch
from triptych.methods.sprc import SPRC, SPRCConfig
from triptych.objectives import info_nce, similarity

MakeBatch = Callable[..., TripletBatch]
Make = Callable[..., SPRC]
Q = 4


@pytest.fixture
def make(shape: BackboneShape) -> Make:
    return lambda **switches: SPRC(SPRCConfig(**switches), shape, seed=3)


def named(losses: Losses) -> dict[str, float]:
    return {name: weight for name, _, weight in losses}


def scores(batch: TripletBatch, backbone: Backbone) -> Tensor:
    z = backbone.compose(batch.reference_tokens, batch.texts).hidden[:, :Q]
    return similarity(backbone.refine(z, batch.texts).vector, backbone.targets(batch.target_tokens))


def test_the_three_terms_by_their_objectives(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    method, batch = make(), make_batch()
    losses = method.losses(batch, backbone)
    assert named(losses) == {"infonce": 1.0, "prompt": 1.0, "align": 1.0}
    assert_close(losses["infonce"], info_nce(scores(batch, backbone), temperature=0.07))

    u = backbone.prompt(method.prompt[0], batch.texts)
    s = similarity(u, backbone.targets(batch.target_tokens))
    assert_close(losses["prompt"], info_nce(s, temperature=0.07))

    z = backbone.compose(batch.reference_tokens, batch.texts).hidden[:, :Q]
    assert_close(losses["align"], (z.mean(1) - method.prompt.mean(1)).square().mean(1))
    assert_close(losses.total(), sum(losses[name].mean() for name in named(losses)))


def test_the_prompt_starts_small_and_by_its_seed(make: Make, shape: BackboneShape) -> None:
    prompt = make().prompt
    assert prompt.shape == (1, Q, shape.hidden)
    assert prompt.std().item() == pytest.approx(0.02, rel=0.2)
    assert torch.equal(prompt, make().prompt)
    assert not torch.equal(prompt, SPRC(SPRCConfig(), shape, seed=4).prompt)


def test_the_prompt_learns_from_its_own_term_only(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    for switches, learns in (({"w_rtc": 0.0}, False), ({"w_al": 0.0}, True)):
        method = make(**switches)
        method.losses(make_batch(), backbone).total().backward()
        assert (method.prompt.grad is not None) == learns


CHANGES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "without the prompt's term": ({"w_rtc": 0.0}, {"prompt"}),
    "without alignment": ({"w_al": 0.0}, {"align"}),
    "temperature": ({"temperature": 0.2}, {"infonce", "prompt"}),
}
IN_ONE_STEP_EQUAL = {
    "compat": "it sets other switches",
    "robust_from_epoch": "it has no robust term",
    "learnable_temperature": "it changes what is trained; tested below",
    "temperature_floor": "it counts when τ has fallen; tested below",
}


def test_every_switch_is_tried() -> None:
    tried = {key for switches, _ in CHANGES.values() for key in switches}
    assert tried | set(IN_ONE_STEP_EQUAL) == set(SPRCConfig.model_fields)


@pytest.mark.parametrize("change", CHANGES)
def test_a_switch_changes_its_terms_and_no_other(
    change: str, backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    switches, terms = CHANGES[change]
    plain = make().losses(make_batch(), backbone)
    changed = make(**switches).losses(make_batch(), backbone)
    for term in named(plain):
        same = term in changed and torch.equal(plain[term], changed[term])
        assert same == (term not in terms), term


def test_weights(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    losses = make(w_rtc=0.4, w_al=0.3).losses(make_batch(), backbone)
    assert named(losses) == {"infonce": 1.0, "prompt": 0.4, "align": 0.3}


def test_the_temperature_is_learned_and_has_a_floor(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    assert len(list(make(learnable_temperature=False).parameters())) == 1
    s = scores(make_batch(), backbone)
    for switches, used in (({}, 0.01), ({"temperature_floor": 0.05}, 0.05), ({"compat": "released"}, 0.004)):
        method = make(**switches)
        assert method.temperature.learned is not None
        method.losses(make_batch(), backbone).total().backward()
        assert method.temperature.learned.grad != 0
        with torch.no_grad():
            method.temperature.learned.fill_(0.004)
        assert_close(
            method.losses(make_batch(), backbone)["infonce"],
            info_nce(s, temperature=used),
            rtol=1e-4,
            atol=1e-4,
        )


def test_queries_score_as_in_training(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    method, batch = make(), make_batch()
    queries = method.query(batch.reference_tokens, batch.texts, backbone)
    assert_close(queries.norm(dim=1), torch.ones(6))
    targets = method.targets(batch.target_tokens, backbone)
    assert_close(similarity(queries, targets), scores(batch, backbone))


def test_cleanliness_is_the_annotated_probability_at_its_temperature(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    batch = make_batch()
    method = make(temperature=0.3)
    expected = torch.softmax(scores(batch, backbone) / 0.3, dim=1).diagonal().detach()
    assert_close(method.cleanliness(batch, backbone), expected)
    losses = method.losses(batch, backbone)
    assert losses.cleanliness is not None
    assert_close(losses.cleanliness, expected)
    assert_close(torch.as_tensor(losses.diagnostics["p_positive"]), expected.mean())


def test_a_pair_that_fits_is_trusted_more(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    """Half of the queries get the target that they find best, the others the one that they find worst."""
    batch = make_batch(12)
    s = scores(batch, backbone).detach()
    clean = torch.arange(12) % 2 == 0
    rows = torch.where(clean, s.argmax(dim=1), s.argmin(dim=1))
    found = make().cleanliness(make_batch(12, target_tokens=batch.target_tokens[rows]), backbone)
    assert found[clean].min() > found[~clean].max()


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("autocast", [False, True])
def test_losses_and_gradients_are_finite(
    size: int, autocast: bool, backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    method, batch = make(), make_batch(size)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        losses = method.losses(batch, backbone)
    for _, values, _ in losses:
        assert values.shape == (size,)
        assert values.dtype == torch.float32
        assert values.isfinite().all()
    losses.total().backward()
    for parameter in [*method.parameters(), *backbone.parameters()]:
        assert parameter.grad is None or parameter.grad.isfinite().all()


def test_equal_pictures_are_finite(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    plain = make_batch()
    batch = make_batch(
        reference_tokens=torch.zeros_like(plain.reference_tokens),
        target_tokens=plain.target_tokens[:1].expand(6, -1, -1),
    )
    losses = make().losses(batch, backbone)
    losses.total().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in backbone.parameters())


def test_it_is_registered() -> None:
    assert registry.get("sprc") is SPRC
