"""RDE: two branches and their losses, the consensus, each switch, and a ranking by the mean of both."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from triptych.backbones.base import Backbone, BackboneShape
from triptych.methods.base import Losses, TripletBatch
from triptych.methods.rde import RDE, RDEConfig
from triptych.objectives import (
    LONG_FIT,
    SHORT_FIT,
    consensus,
    fit_mixture,
    info_nce,
    likely_clean,
    similarity,
    toss,
    triplet_alignment,
)
from triptych.randomness import torch_generator

MakeBatch = Callable[..., TripletBatch]
Make = Callable[..., RDE]
Q = 4
CLEAN = torch.tensor([True, False, True, True, False, True])


@dataclass
class Context:
    epoch: int
    backbone: Backbone
    batches: list[TripletBatch] = field(default_factory=list)
    epochs: int = 30
    seed: int = 5
    resumed: bool = False
    visits: int = 0

    def scoring(self) -> Iterator[TripletBatch]:
        self.visits += 1
        yield from self.batches


@pytest.fixture
def make(shape: BackboneShape) -> Make:
    def build(epoch: int = 0, **switches: Any) -> RDE:
        method = RDE(RDEConfig(**switches), shape, seed=3)
        method.epoch = epoch
        return method.eval()

    return build


@pytest.fixture
def make_divided(make: Make) -> Make:
    def build(clean: Tensor = CLEAN, epoch: int = 1, **switches: Any) -> RDE:
        """Make it at an epoch with a division as it were made."""
        method = make(epoch, **switches)
        method.remember([f"t{i}" for i in range(len(clean))])
        assert method.memory is not None
        method.memory.write(method.memory.triplet_ids, noisy=~clean, clean=0.1 + 0.8 * clean.float())
        return method

    return build


def named(losses: Losses) -> dict[str, float]:
    return {name: weight for name, _, weight in losses}


def branches(method: RDE, batch: TripletBatch, backbone: Backbone) -> tuple[Tensor, Tensor]:
    """Compute both by the specification, from passes that know nothing of attention where there is no need."""
    composed = backbone.compose(batch.reference_tokens, batch.texts, attention=True)
    looks, attention = backbone.look_attentively(backbone.vision(batch.target_tokens))
    assert composed.attention is not None
    v = method.select_words(composed.hidden[:, Q:], composed.attention[:, Q, Q:], composed.text_mask)
    w = method.select_looks(looks, attention.sum(dim=1) / Q)
    c = backbone.compose(batch.reference_tokens, batch.texts).vector
    return similarity(c, backbone.targets(batch.target_tokens)), v @ w.T


def test_the_two_terms_by_their_objectives(
    backbone: Backbone, make_divided: Make, make_batch: MakeBatch
) -> None:
    method, batch = make_divided(), make_batch()
    losses = method.losses(batch, backbone)
    assert named(losses) == {"robust_global": 1.0, "robust_selected": 1.0}
    for name, branch in zip(named(losses), branches(method, batch, backbone), strict=True):
        expected = triplet_alignment(branch, temperature=0.015, margin=0.1)
        assert_close(losses[name], torch.where(CLEAN, expected, 0.0))
        assert_close(losses[name].mean(), expected[CLEAN].sum() / 6)


def test_the_branches_have_layers_of_their_own(make: Make) -> None:
    method = make()
    assert not torch.equal(method.select_words.linear.weight, method.select_looks.linear.weight)
    assert torch.equal(method.select_words.first.weight, make().select_words.first.weight)


def test_the_share_of_selected_tokens_is_of_the_real_words(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    """Padding of longer companions in the batch does not change a query."""
    method, batch = make(), make_batch()
    together = method.query(batch.reference_tokens, batch.texts, backbone)
    alone = method.query(batch.reference_tokens[:1], batch.texts[:1], backbone)
    assert_close(together[:1], alone)


CHANGES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "temperature": ({"temperature": 0.05}, {"robust_global", "robust_selected"}),
    "margin": ({"margin": 0.3}, {"robust_global", "robust_selected"}),
    "ratio": ({"ratio": 1.0}, {"robust_selected"}),
    "warm-up": ({"warmup_epochs": 2}, {"robust_global", "robust_selected"}),
    "delay": ({"robust_from_epoch": 2}, {"robust_global", "robust_selected"}),
}
IN_ONE_STEP_EQUAL = {
    "compat": "it sets other switches",
    "reduction": "it changes the weight; tested below",
    "expected_noise": "see the division",
}


def test_every_switch_is_tried() -> None:
    tried = {key for switches, _ in CHANGES.values() for key in switches}
    assert tried | set(IN_ONE_STEP_EQUAL) == set(RDEConfig.model_fields)


@pytest.mark.parametrize("change", CHANGES)
def test_a_switch_changes_its_terms_and_no_other(
    change: str, backbone: Backbone, make_divided: Make, make_batch: MakeBatch
) -> None:
    switches, terms = CHANGES[change]
    plain = make_divided().losses(make_batch(), backbone)
    changed = make_divided(**switches).losses(make_batch(), backbone)
    for term in named(plain):
        same = term in changed and torch.equal(plain[term], changed[term])
        assert same == (term not in terms), term


def test_reduction(backbone: Backbone, make_divided: Make, make_batch: MakeBatch) -> None:
    mean = make_divided().losses(make_batch(), backbone)
    added = make_divided(reduction="sum").losses(make_batch(), backbone)
    assert named(added) == {"robust_global": 6.0, "robust_selected": 6.0}
    assert_close(added.total(), mean["robust_global"].sum() + mean["robust_selected"].sum())
    released = make_divided(compat="released", epoch=0)
    assert_close(released.losses(make_batch(), backbone).total(), added.total())


def test_a_delayed_start_is_plain_on_the_ranking_score(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    method = make(1, robust_from_epoch=2)
    losses = method.losses(make_batch(), backbone)
    assert named(losses) == {"infonce": 1.0}
    first, second = branches(method, make_batch(), backbone)
    assert_close(losses["infonce"], info_nce((first + second) / 2))
    assert [method.divides(epoch) for epoch in range(4)] == [False, False, True, True]


def split(batch: TripletBatch, size: int) -> list[TripletBatch]:
    return [
        replace(
            batch,
            triplet_ids=batch.triplet_ids[start : start + size],
            texts=batch.texts[start : start + size],
            reference_tokens=batch.reference_tokens[start : start + size],
            target_tokens=batch.target_tokens[start : start + size],
        )
        for start in range(0, len(batch), size)
    ]


def divide(method: RDE, backbone: Backbone, batches: list[TripletBatch], **changes: Any) -> Context:
    method.remember([name for batch in batches for name in batch.triplet_ids])
    context = Context(4, backbone, batches, **changes)
    with torch.no_grad():
        method.begin_epoch(context)
    return context


def division(method: RDE, ids: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    assert method.memory is not None
    return method.memory.read("noisy", ids), method.memory.read("clean", ids)


@pytest.mark.parametrize(("noise", "options"), [(0.2, SHORT_FIT), (0.8, LONG_FIT)])
def test_the_division_is_a_consensus_with_coins(
    noise: float, options: Any, backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    batch, method = make_batch(30), make(expected_noise=noise)
    divide(method, backbone, split(batch, 10))
    parts = [branches(method, part, backbone) for part in split(batch, 10)]
    chances = [
        fit_mixture(
            torch.cat([triplet_alignment(part[side]) for part in parts]).detach(), seed=4, options=options
        ).clean
        for side in (0, 1)
    ]
    votes = [likely_clean(each, never_all=True) for each in chances]
    coins = toss(30, torch_generator(5, "rde", "coins", 4))
    noisy, found = division(method, batch.triplet_ids)
    assert torch.equal(~noisy, consensus(votes[0], votes[1], coins))
    assert_close(found, (chances[0] + chances[1]) / 2, rtol=1e-3, atol=1e-3)
    assert (votes[0] != votes[1]).any()


def test_coins_are_drawn_by_seed_and_epoch(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    batch = make_batch(40)
    ways = []
    for seed in (5, 5, 6):
        method = make()
        divide(method, backbone, [batch], seed=seed)
        ways.append(division(method, batch.triplet_ids)[0])
    assert torch.equal(ways[0], ways[1])
    assert not torch.equal(ways[0], ways[2])


def test_never_are_all_held_clean(
    backbone: Backbone, make: Make, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losses that are all equal: every posterior is 1, and one of a hundred is noisy all the same."""
    monkeypatch.setattr(RDE, "_score", lambda method, batch, backbone: torch.ones(len(batch), 2))
    method, batch = make(), make_batch(6)
    divide(method, backbone, [batch])
    noisy, chances = division(method, batch.triplet_ids)
    assert noisy.tolist() == [True] + [False] * 5
    assert chances.tolist() == [1] * 6


def test_warm_up_and_resuming(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    method = make()
    method.remember([f"t{i}" for i in range(6)])
    early = Context(0, backbone, [make_batch()])
    method.begin_epoch(early)
    assert early.visits == 0
    assert divide(make(), backbone, [make_batch()]).visits == 1
    assert divide(make(), backbone, [make_batch()], resumed=True).visits == 0
    assert make(compat="released").divides(0)
    with pytest.raises(ValueError, match="remember"):
        make().begin_epoch(Context(1, backbone, [make_batch()]))


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_step_reads_the_division_of_its_epoch(
    on_disk: bool, tmp_path: Path, backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    method, batch = make(), make_batch(12)
    method.remember(batch.triplet_ids, tmp_path if on_disk else None)
    assert method.memory is not None
    method.memory.begin_epoch(1, resumed=False)
    with torch.no_grad():
        method.begin_epoch(Context(1, backbone, [batch]))
    noisy = method.memory.read("noisy", batch.triplet_ids, latest=True)
    assert noisy.any()
    losses = method.losses(batch, backbone)
    assert (losses["robust_global"][noisy] == 0).all()
    assert losses["robust_global"][~noisy].sum() > 0
    assert losses.cleanliness is not None
    assert_close(losses.cleanliness, method.memory.read("clean", batch.triplet_ids, latest=True))


def test_ranking_is_by_the_mean_of_both_branches(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    """Also where the best query token differs from target to target: the maximum is over the first branch only."""
    method, batch = make(), make_batch(9)
    queries = method.query(batch.reference_tokens, batch.texts, backbone)
    targets = method.targets(batch.target_tokens, backbone)
    assert_close(queries.norm(dim=1), torch.ones(9))
    assert_close(targets.norm(dim=2), torch.ones(9, Q))
    first, second = branches(method, batch, backbone)
    assert_close(similarity(queries, targets), (first + second) / 2)


def test_text_alone_is_ranked_by_the_global_branch(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    method, batch = make(), make_batch()
    found = similarity(
        method.text_query(["red", "x"], backbone), method.targets(batch.target_tokens, backbone)
    )
    expected = similarity(backbone.text(["red", "x"]), backbone.targets(batch.target_tokens))
    assert_close(found, expected / 2**0.5)


def test_cleanliness(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    """Before the first division the annotated probability, then the mean posterior of the losses."""
    batch, method = make_batch(24), make()
    first, second = branches(method, batch, backbone)
    p = torch.softmax((first + second) / 2 / 0.07, dim=1).diagonal().detach()
    assert_close(method.cleanliness(batch, backbone), p)
    losses = method.losses(batch, backbone)
    assert losses.cleanliness is not None
    assert_close(losses.cleanliness, p)
    divide(method, backbone, [batch])
    found = method.cleanliness(batch, backbone)
    assert_close(found, division(method, batch.triplet_ids)[1], rtol=1e-3, atol=1e-3)
    assert not found.requires_grad
    assert ((found >= 0) & (found <= 1)).all()


def test_a_pair_that_fits_is_trusted_more(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    """Half of the queries get the target that they find best, the others the one that they find worst."""
    batch, method = make_batch(24), make()
    s = sum(branches(method, batch, backbone))
    clean = torch.arange(24) % 2 == 0
    rows = torch.where(clean, s.argmax(dim=1), s.argmin(dim=1))
    batch = make_batch(24, target_tokens=batch.target_tokens[rows])
    divide(method, backbone, [batch])
    found = method.cleanliness(batch, backbone)
    assert found[clean].mean() > found[~clean].mean() + 0.2


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("clean", ["all", "none", "some"])
@pytest.mark.parametrize("autocast", [False, True])
def test_losses_and_gradients_are_finite(
    size: int, clean: str, autocast: bool, backbone: Backbone, make_divided: Make, make_batch: MakeBatch
) -> None:
    rows = torch.arange(size)
    method = make_divided({"all": rows >= 0, "none": rows < 0, "some": rows % 2 == 0}[clean]).train()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        losses = method.losses(make_batch(size), backbone)
    for _, values, _ in losses:
        assert values.shape == (size,)
        assert values.dtype == torch.float32
        assert values.isfinite().all()
    losses.total().backward()
    for parameter in [*method.parameters(), *backbone.parameters()]:
        assert parameter.grad is None or parameter.grad.isfinite().all()


def test_one_short_text_alone_is_finite(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    """One word is selected, so there are no statistics of a batch."""
    method = make().train()
    for text in ("", "x"):
        losses = method.losses(make_batch(1, texts=(text,)), backbone)
        losses.total().backward()
        assert losses.total().isfinite()


def test_gradients_reach_both_branches(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    method = make().train()
    method.losses(make_batch(), backbone).total().backward()
    assert all(
        value.grad is not None and value.grad.abs().sum() > 0
        for value in method.parameters()
        if value.ndim > 1
    )
