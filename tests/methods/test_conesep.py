"""ConeSep: each term against its objective, each switch, the two phases, the floor and its draws, the negatives."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from torch.testing import assert_close

from triptych.backbones.base import Backbone, BackboneShape
from triptych.methods.ablations import ablations, apply_ablations
from triptych.methods.base import Losses, TripletBatch
from triptych.methods.conesep import ConeSep, ConeSepConfig
from triptych.methods.negations import PHRASES, deny
from triptych.objectives import (
    empirical_boundary,
    fidelity,
    info_nce,
    low_fidelity,
    query_oriented,
    query_oriented_released,
    robust_contrastive,
    similarity,
    target_oriented,
    target_oriented_released,
    targeted_unlearning,
    targeted_unlearning_released,
)

MakeBatch = Callable[..., TripletBatch]
Make = Callable[..., ConeSep]
SIZE = 8


def started(method: ConeSep, backbone: Backbone, epoch: int) -> ConeSep:
    """Begin training, move P_neg as some steps would, and go to an epoch."""
    context = {"epochs": 20, "seed": 0, "resumed": False, "backbone": backbone}
    method.begin_epoch(SimpleNamespace(epoch=0, **context))
    if method.negative_tokens is not None:
        draws = torch.Generator().manual_seed(4)
        with torch.no_grad():
            method.negative_tokens += 2 * torch.randn(method.negative_tokens.shape, generator=draws)
    if epoch > 0:
        method.begin_epoch(SimpleNamespace(epoch=epoch, **context))
    return method


@pytest.fixture
def make(shape: BackboneShape, backbone: Backbone) -> Make:
    """Make a method in an epoch; 2 is the first of the second phase."""
    return lambda epoch=2, **switches: started(
        ConeSep(ConeSepConfig(**switches), shape, seed=3), backbone, epoch
    )


def named(losses: Losses) -> dict[str, float]:
    return {name: weight for name, _, weight in losses}


def vectors(method: ConeSep, batch: TripletBatch, backbone: Backbone) -> tuple[Tensor, Tensor, Tensor]:
    """c, n and t."""
    return (
        backbone.compose(batch.reference_tokens, batch.texts).vector,
        backbone.compose(batch.reference_tokens, deny(batch.texts), method.negative_tokens).vector,
        backbone.targets(batch.target_tokens),
    )


def graded(method: ConeSep, s: Tensor) -> tuple[Tensor, Tensor]:
    """The fidelity over the floor that the method drew, and who is noisy."""
    degree = fidelity(s.diagonal(), method.floor)
    return degree, degree < 0.5


def test_the_first_phase_by_its_objectives(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    method, batch = make(epoch=1), make_batch(SIZE)
    losses = method.losses(batch, backbone)
    assert named(losses) == {"robust": 1.0, "intra": 0.5, "inter": 0.5}
    c, n, t = vectors(method, batch, backbone)
    s = similarity(c, t)
    degree, noisy = graded(method, s)
    assert noisy.any()
    assert not noisy.all()
    assert_close(losses["robust"], robust_contrastive(s))
    assert_close(losses["intra"], query_oriented(c, n, ~noisy))
    assert_close(losses["inter"], target_oriented(similarity(n, t), ~noisy))
    assert_close(losses.cleanliness, degree)
    assert losses.diagnostics["noisy"] == noisy.float().mean()
    assert losses.diagnostics["boundary"] == method.floor
    assert losses.diagnostics["p_positive"] < 1
    total = sum(weight * losses[name].mean() for name, weight in named(losses).items())
    assert_close(losses.total(), total)


def test_the_second_phase_by_its_objectives(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    method, batch = make(zeta=0.3, kappa=0.4), make_batch(SIZE)
    losses = method.losses(batch, backbone)
    assert named(losses) == {"robust": 1.0, "intra": 0.3, "unlearn": 0.4}
    c, n, t = vectors(method, batch, backbone)
    s = similarity(c, t)
    _, noisy = graded(method, s)
    assert_close(losses["robust"], robust_contrastive(s))
    assert_close(losses["intra"], query_oriented(c, n, ~noisy))
    assert_close(losses["unlearn"], targeted_unlearning(s, c @ n.T, noisy))


def test_the_released_terms(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    """Text and floor apart, by the objectives on what the step has."""
    for epoch in (0, 1, 5):
        method, batch = make(epoch, compat="released"), make_batch(SIZE, seed=9)
        losses = method.losses(batch, backbone)
        c, _, t = vectors(method, batch, backbone)
        texts = deny(batch.texts, torch.Generator().manual_seed(9))
        n = backbone.compose(batch.reference_tokens, texts, method.negative_tokens).vector
        s = similarity(c, t)
        assert_close(losses["intra"], query_oriented_released(c, n))
        if epoch < 2:  # no partition, so no floor
            assert named(losses) == {"robust": 1.0, "intra": 0.8, "inter": 0.5}
            assert_close(losses["inter"], target_oriented_released(similarity(n, t)))
            assert losses.diagnostics["boundary"] == 0
            continue
        degree = fidelity(s.diagonal(), method.floor, form="released")
        noisy = low_fidelity(degree, rule="quantile")
        assert named(losses) == {"robust": 1.0, "intra": 0.8, "unlearn": 0.5}
        assert noisy.sum() == SIZE // 2
        assert_close(losses["unlearn"], targeted_unlearning_released(s, similarity(n, t), noisy))
        assert_close(losses.cleanliness, degree)


def test_the_printed_terms(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    method, batch = make(compat="paper"), make_batch(SIZE)
    losses = method.losses(batch, backbone)
    c, _, t = vectors(method, batch, backbone)
    n = backbone.compose(batch.reference_tokens, batch.texts, method.negative_tokens).vector
    s = similarity(c, t)
    degree = fidelity(s.diagonal(), method.floor, form="eq3")
    noisy = low_fidelity(degree, rule="quantile")
    assert_close(losses["intra"], query_oriented(c, n, ~noisy, bounds="eq7"))
    expected = targeted_unlearning(s, c @ n.T, noisy, negative_logits=similarity(n, t), plan_form="raw")
    assert_close(losses["unlearn"], expected)
    assert (degree <= 0).all()
    assert_close(losses.cleanliness, 1 + degree)  # the same order, in [0, 1]


FLOOR = {"trust"}, {"intra", "inter", "unlearn"}
"""A switch of the floor changes how far triplets are trusted, and by that perhaps who is noisy."""
NEGATIVE = {"intra", "inter", "unlearn"}, set[str]()
CHANGES: dict[str, tuple[dict[str, Any], set[str], set[str]]] = {
    "zeta": ({"zeta": 0.0}, {"intra"}, set()),
    "nu": ({"nu": 0.0}, {"inter"}, set()),
    "kappa": ({"kappa": 0.0}, {"unlearn"}, set()),
    "temperature": ({"temperature": 0.1}, {"robust", "inter", "unlearn"}, set()),
    "no robust": ({"robust": False}, {"robust"}, set()),
    "all negative boundary learning": ({"warmup_epochs": 3}, {"inter", "unlearn"}, set()),
    "released fidelity": (
        {"fidelity": "released", "partition": "quantile"},
        {"trust", "intra", "inter", "unlearn"},
        set(),
    ),
    "quantile": ({"partition": "quantile"}, {"intra", "inter", "unlearn"}, set()),
    "none": ({"partition": "none"}, {"trust", "intra", "inter", "unlearn"}, set()),
    "random": ({"partition": "random"}, {"trust", "intra", "inter", "unlearn"}, set()),
    "omega": ({"omega": 0.99}, {"intra", "inter", "unlearn"}, set()),
    "all count": ({"nbl_clean_only": False}, {"intra", "inter"}, {"trust"}),
    "uniform": ({"boundary": "uniform"}, *FLOOR),
    "laplace": ({"boundary": "laplace"}, *FLOOR),
    "empirical": ({"boundary": "empirical"}, *FLOOR),
    "zero": ({"boundary": "zero"}, *FLOOR),
    "more draws": ({"boundary_draws": 0}, *FLOOR),
    "real references": ({"boundary_reference": "real"}, *FLOOR),
    "real targets": ({"boundary_target": "real"}, *FLOOR),
    "no text": ({"boundary_text": "empty"}, *FLOOR),
    "own text": ({"boundary_text": "own"}, *FLOOR),
    "all pairs": ({"boundary_pairs": "all"}, *FLOOR),
    "shared prompt": ({"neg_prompt": "shared"}, *NEGATIVE),
    "plain": ({"neg_text": "plain"}, *NEGATIVE),
    "phrase of the step": ({"neg_phrase": "step"}, *NEGATIVE),
    "constants": ({"intra_bounds": "constants"}, {"intra"}, set()),
    "eq7": ({"intra_bounds": "eq7"}, {"intra"}, set()),
    "released intra": ({"intra_bounds": "released"}, {"intra"}, set()),
    "released inter": ({"inter": "released"}, {"inter"}, set()),
    "plus": ({"signs": "plus"}, {"inter"}, set()),
    "minus": ({"signs": "minus"}, {"inter"}, set()),
    "no signs": ({"signs": "zero"}, {"inter"}, set()),
    "released unlearning": ({"unlearning": "released"}, {"unlearn"}, set()),
    "gamma": ({"gamma": 0.0}, {"unlearn"}, set()),
    "without negatives": ({"btu_negatives": False}, {"unlearn"}, set()),
    "logits of targets": ({"btu_neg_logits": "negt"}, {"unlearn"}, set()),
    "marginals": ({"btu_marginals": "partition"}, {"unlearn"}, set()),
    "raw plan": ({"btu_plan": "raw"}, {"unlearn"}, set()),
    "both directions": ({"directions": "both"}, {"unlearn"}, set()),
    "eps": ({"eps": 0.3}, {"unlearn"}, set()),
    "iterations": ({"iterations": 1}, {"unlearn"}, set()),
}
IN_ONE_STEP_EQUAL = {
    "compat": "it sets other switches",
    "robust_from_epoch": "it changes earlier epochs; see below",
    "boundary_every": "it changes later steps; see below",
    "boundary_dropout": "the backbone here has none; see below",
}


def test_every_switch_is_tried() -> None:
    tried = {key for switches, _, _ in CHANGES.values() for key in switches}
    assert tried | set(IN_ONE_STEP_EQUAL) == set(ConeSepConfig.model_fields)
    assert not tried & set(IN_ONE_STEP_EQUAL)


@pytest.mark.parametrize("change", CHANGES)
def test_a_switch_changes_its_terms_and_no_other(
    change: str, backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    switches, must, may = CHANGES[change]
    changed = set()
    for epoch in (1, 2):
        plain = make(epoch).losses(make_batch(SIZE), backbone)
        method = make(epoch, **switches)
        losses = method.losses(make_batch(SIZE), backbone)
        before, after = (
            {**{name: values for name, values, _ in terms}, "trust": terms.cleanliness}
            for terms in (plain, losses)
        )
        changed |= set(before) ^ set(after)
        changed |= {name for name in set(before) & set(after) if not torch.equal(before[name], after[name])}
        losses.total().backward()
        for parameter in [*method.parameters(), *backbone.parameters()]:
            assert parameter.grad is None or parameter.grad.isfinite().all()
    assert must <= changed <= must | may


@pytest.mark.parametrize("row", [row for row, _ in ablations() if row.startswith("conesep.")])
@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_rows_of_the_tables(
    row: str, epoch: int, backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    """A row differs from the full method in the phases that its switches are of, and in no other."""
    settings = apply_ablations([row], {})
    settings.pop("name")
    full = make(epoch).losses(make_batch(SIZE), backbone)
    other = make(epoch, **settings).losses(make_batch(SIZE), backbone)
    number = row.split(".")[1]
    first, second = {"D6", "D7", "D8"}, {"D11", "D12", "D13"}
    floor = {"D1", "D2", "D3", "D4", "D5", "E1", "E2", "E3"}
    silent = (
        (epoch < 2 and number in second)
        or (epoch == 2 and number in first)
        or (epoch == 0 and number in floor)
    )
    if number in floor:
        assert torch.equal(full.cleanliness, other.cleanliness) == silent
    if number not in floor or silent or number == "D5":
        same = named(full) == named(other) and all(
            torch.equal(full[name], other[name]) for name in named(full)
        )
        assert same == silent
    assert ("robust" in named(other)) == (number != "D14")


def test_no_signs_is_the_constant_that_nu_0_leaves_out(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    batch = make_batch(SIZE)
    zero, without = make(1, signs="zero").losses(batch, backbone), make(1, nu=0.0).losses(batch, backbone)
    assert_close(zero["inter"].mean().item(), torch.log(torch.tensor(2.0)).item())
    assert_close(zero.total() - without.total(), 0.5 * zero["inter"].mean())
    grads = [
        torch.autograd.grad(terms.total(), backbone.vision_projection.weight)[0] for terms in (zero, without)
    ]
    assert_close(*grads)


def test_phases(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    first, second = {"robust", "intra", "inter"}, {"robust", "intra", "unlearn"}
    for epoch, expected in ((0, first), (1, first), (2, second), (19, second)):
        assert set(named(make(epoch).losses(make_batch(SIZE), backbone))) == expected
    assert set(named(make(0, warmup_epochs=0).losses(make_batch(SIZE), backbone))) == second
    everyone = make(0).losses(make_batch(SIZE), backbone)
    assert everyone.diagnostics["noisy"] == 0
    assert torch.equal(everyone.cleanliness, torch.ones(SIZE))


def test_delayed_terms(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    for epoch, expected in (
        (1, {"infonce", "intra", "inter"}),
        (2, {"intra", "unlearn"}),
        (3, {"robust", "intra", "unlearn"}),
    ):
        losses = make(epoch, robust_from_epoch=3).losses(make_batch(SIZE), backbone)
        assert set(named(losses)) == expected
    c, _, t = vectors(make(), make_batch(SIZE), backbone)
    losses = make(0, robust_from_epoch=3).losses(make_batch(SIZE), backbone)
    assert_close(losses["infonce"], info_nce(similarity(c, t)))
    assert "infonce" in make(2, robust_from_epoch=3, kappa=0.0).losses(make_batch(SIZE), backbone)
    assert "infonce" not in make(0, robust_from_epoch=3, robust=False).losses(make_batch(SIZE), backbone)


class Counted:
    """Counts the passes of a backbone."""

    def __init__(self, backbone: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, int]] = []
        for name in ("encode_images", "compose", "targets", "text", "refine", "prompt"):
            monkeypatch.setattr(backbone, name, self._counted(name, getattr(backbone, name)))
        self.modes: list[bool] = []
        monkeypatch.setattr(backbone, "positioned", self._noted(backbone, backbone.positioned))

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(first: Any, *others: Any, **named: Any) -> Any:
            self.calls.append((name, len(first)))
            return call(first, *others, **named)

        return counted

    def _noted(self, backbone: Backbone, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(words: Tensor) -> Tensor:
            self.modes.append(backbone.training)
            return call(words)

        return noted


PASSES: dict[str, tuple[int, dict[str, Any], list[tuple[str, int]]]] = {
    "first epoch": (0, {}, [("compose", 8)]),
    "second epoch": (1, {}, [("encode_images", 8), ("compose", 4), ("targets", 4), ("compose", 8)]),
    "unlearning": (2, {}, [("encode_images", 8), ("compose", 4), ("targets", 4), ("compose", 8)]),
    "empirical": (2, {"boundary": "empirical"}, [("compose", 8)]),
    "zero": (2, {"boundary": "zero"}, [("compose", 8)]),
    "all clean": (2, {"partition": "none"}, [("compose", 8)]),
    "random": (2, {"partition": "random"}, [("compose", 8)]),
    "all count": (1, {"nbl_clean_only": False}, [("compose", 8)]),
    "real targets": (2, {"boundary_target": "real"}, [("encode_images", 4), ("compose", 4), ("compose", 8)]),
    "real references": (
        2,
        {"boundary_reference": "real"},
        [("encode_images", 4), ("compose", 4), ("targets", 4), ("compose", 8)],
    ),
    "both real": (
        2,
        {"boundary_reference": "real", "boundary_target": "real"},
        [("compose", 4), ("compose", 8)],
    ),
    "released": (
        2,
        {"compat": "released"},
        [("encode_images", 16), ("compose", 8), ("targets", 8), ("compose", 8)],
    ),
    "no negatives": (2, {"zeta": 0.0, "btu_negatives": False, "partition": "none"}, []),
    "no negatives, but a cosine": (2, {"btu_negatives": False, "partition": "none"}, [("compose", 8)]),
    "negatives of the first phase only": (2, {"zeta": 0.0, "kappa": 0.0}, []),
}


@pytest.mark.parametrize("case", PASSES)
def test_no_more_passes_than_needed(
    case: str, backbone: Backbone, make: Make, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch, switches, expected = PASSES[case]
    method, batch = make(epoch, **switches), make_batch(SIZE)
    counted = Counted(backbone, monkeypatch)
    method.losses(batch, backbone)
    assert counted.calls == [("compose", 8), ("targets", 8), *expected]


def test_the_floor_is_drawn_in_eval_mode_and_the_mode_comes_back(
    backbone: Backbone, make: Make, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(backbone, monkeypatch)
    backbone.train()
    make().losses(make_batch(SIZE), backbone)
    assert counted.modes == [True, False, True]  # c, 𝔹, n
    assert backbone.training
    assert backbone.qformer.training
    counted.modes.clear()
    make(boundary_dropout=True).losses(make_batch(SIZE), backbone)
    assert counted.modes == [True, True, True]
    backbone.eval()
    make(boundary_dropout=True).cleanliness(make_batch(SIZE), backbone)
    assert not backbone.training


def test_the_floor_has_no_gradient_and_spares_the_step_generator(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    method, batch = make(), make_batch(SIZE)
    before = batch.generator.get_state()
    method.losses(batch, backbone).total().backward()
    assert torch.equal(batch.generator.get_state(), before)
    assert not method.floor.requires_grad
    first = method.floor.clone()
    torch.manual_seed(5)
    make(fidelity="smoothstep").losses(make_batch(SIZE), backbone)
    again, other = make(), make()
    again.losses(make_batch(SIZE), backbone)
    other.losses(make_batch(SIZE, seed=1), backbone)
    assert torch.equal(again.floor, first)
    assert not torch.equal(other.floor, first)


def test_how_often_the_floor_is_drawn(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    def floors(every: int) -> list[float]:
        method = make(boundary_every=every)
        steps = []
        for step in range(4):
            method.losses(replace(make_batch(SIZE, seed=step), step=step), backbone)
            steps.append(method.floor.item())
        return steps

    assert len(set(floors(1))) == 4
    seldom = floors(2)
    assert seldom[0] == seldom[1] == floors(1)[0]
    assert seldom[2] == seldom[3] == floors(1)[2]
    assert "floor" in make().state_dict()  # so a resumed run goes on with it


def test_the_floors_that_cost_nothing(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    method, batch = make(boundary="empirical"), make_batch(SIZE)
    method.losses(batch, backbone)
    c, _, t = vectors(method, batch, backbone)
    assert_close(method.floor, empirical_boundary(similarity(c, t)))
    method = make(boundary="zero")
    losses = method.losses(make_batch(SIZE), backbone)
    assert method.floor == 0
    assert_close(losses.cleanliness, fidelity(similarity(c, t).diagonal(), 0.0))


def test_negative_tokens_start_as_the_backbones_and_only_once(
    backbone: Backbone, shape: BackboneShape
) -> None:
    method = ConeSep(ConeSepConfig(), shape, seed=3)
    assert method.negative_tokens.shape == (shape.queries, shape.hidden)
    seeded = ConeSep(ConeSepConfig(), shape, seed=3).negative_tokens
    assert torch.equal(method.negative_tokens, seeded)
    parameter = method.negative_tokens

    def begin(epoch: int, *, resumed: bool) -> None:
        method.begin_epoch(SimpleNamespace(epoch=epoch, epochs=3, seed=0, resumed=resumed, backbone=backbone))

    begin(0, resumed=True)
    assert torch.equal(method.negative_tokens, seeded)
    begin(0, resumed=False)
    assert torch.equal(method.negative_tokens, backbone.query_tokens[0])
    assert method.negative_tokens is parameter  # the one that the optimiser knows
    with torch.no_grad():
        method.negative_tokens += 1
    begin(1, resumed=False)
    assert_close(method.negative_tokens, backbone.query_tokens[0] + 1)
    assert ConeSep(ConeSepConfig(neg_prompt="shared"), shape).negative_tokens is None


def test_gradients_reach_the_negative_tokens_in_both_phases(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    for epoch in (0, 1, 2):
        method = make(epoch)
        method.losses(make_batch(SIZE), backbone).total().backward()
        assert method.negative_tokens.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in backbone.tower.parameters())


def test_texts_that_are_read_beside(make: Make) -> None:
    texts = ["is red", "has stripes"]
    assert list(make().reads(2, texts)) == deny(texts)
    for switches in ({"neg_text": "plain"}, {"neg_phrase": "step"}, {"zeta": 0.0, "btu_negatives": False}):
        assert list(make(**switches).reads(2, texts)) == []
    assert list(make(zeta=0.0, btu_negatives=False).reads(0, texts)) == deny(texts)  # L_inter


def test_denials() -> None:
    assert len(set(PHRASES)) == 25
    assert deny(["is red"]) == deny(["is red"])
    many = [f"is {number}" for number in range(2500)]
    for denied in (deny(many), deny(many, torch.Generator().manual_seed(0))):
        assert all(text.endswith(f" {plain}") for text, plain in zip(denied, many, strict=True))
        counts = [sum(text.startswith(f"{phrase} is ") for text in denied) for phrase in PHRASES]
        assert sum(counts) == 2500
        assert min(counts) > 60
        assert max(counts) < 140
    draw = torch.Generator().manual_seed
    assert deny(many, draw(1)) == deny(many, draw(1)) != deny(many, draw(2))


def test_cleanliness_is_what_the_step_says(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    for switches in ({}, {"boundary": "empirical"}, {"compat": "released"}, {"compat": "paper"}):
        method = make(**switches)
        floor = method.floor.clone()
        trusted = method.cleanliness(make_batch(SIZE), backbone)
        assert torch.equal(method.floor, floor)
        assert not trusted.requires_grad
        assert trusted.min() >= 0
        assert trusted.max() <= 1
        assert_close(trusted, method.losses(make_batch(SIZE), backbone).cleanliness)
    for partition in ("none", "random"):
        assert torch.equal(
            make(partition=partition).cleanliness(make_batch(SIZE), backbone), torch.ones(SIZE)
        )


def test_cleanliness_is_higher_for_the_nearer_target(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    """The best target of each query among many, and then the worst one, for every second query."""
    batch, pool = make_batch(SIZE), make_batch(40)
    c = backbone.compose(batch.reference_tokens, batch.texts).vector
    order = similarity(c, backbone.targets(pool.target_tokens)).argsort(dim=1)
    chosen = torch.where(torch.arange(SIZE) % 2 == 0, order[:, -1], order[:, 0])
    trusted = make().cleanliness(replace(batch, target_tokens=pool.target_tokens[chosen]), backbone)
    assert trusted[::2].min() > trusted[1::2].max()


def test_queries_score_as_in_training(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    method, batch = make(), make_batch(SIZE)
    s = similarity(
        method.query(batch.reference_tokens, batch.texts, backbone),
        method.targets(batch.target_tokens, backbone),
    )
    assert_close(method.losses(batch, backbone)["robust"], robust_contrastive(s))


EXTREMES: dict[str, dict[str, Any]] = {
    "recommended": {},
    "released": {"compat": "released"},
    "paper": {"compat": "paper"},
    "all noisy": {"partition": "quantile", "omega": 1.0},
    "all clean": {"partition": "none"},
    "without negatives, all noisy": {"btu_negatives": False, "partition": "quantile", "omega": 1.0},
    "marginals, both": {"btu_marginals": "partition", "directions": "both"},
    "hard labels": {"gamma": 0.0},
}


@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("kind", ["drawn", "identical", "zero", "half"])
def test_extremes_are_finite(
    name: str, size: int, kind: str, backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    batch = make_batch(size)
    if kind in ("identical", "zero"):
        tokens = batch.reference_tokens[:1].expand(size, -1, -1) * (kind == "identical")
        batch = replace(batch, texts=("x",) * size, reference_tokens=tokens, target_tokens=tokens)
    for epoch in (0, 1, 2):
        method = make(epoch, **EXTREMES[name])
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind == "half"):
            losses = method.losses(batch, backbone)
        assert losses.cleanliness.shape == (size,)
        assert losses.cleanliness.isfinite().all()
        for _, values, _ in losses:
            assert values.shape == (size,)
            assert values.dtype == torch.float32
            assert values.isfinite().all()
        losses.total().backward()
        for parameter in [*method.parameters(), *backbone.parameters()]:
            assert parameter.grad is None or parameter.grad.isfinite().all()


@pytest.mark.parametrize(
    ("switches", "match"),
    [
        ({"robust": False, "kappa": 0.0}, "nothing would rank"),
        ({"fidelity": "eq3"}, r'eq3.*0 at most.*partition = "threshold"'),
        ({"fidelity": "released"}, "0.25 at most"),
        ({"fidelity": "x2_1mx_nomax", "omega": 0.2}, "0.148 at most"),
        ({"inter": "released", "signs": "plus"}, 'inter = "released".*signs = "plus"'),
        ({"unlearning": "released", "btu_negatives": False}, "released.*btu_negatives = False"),
        ({"unlearning": "released", "eps": 0.1}, "released.*eps = 0.1"),
        ({"compat": "released", "zeta": 0.5}, "compat.*zeta"),
        ({"boundary": "cauchy"}, "boundary"),
        ({"omega": 1.5}, "omega"),
    ],
)
def test_what_contradicts_is_refused(switches: dict[str, Any], match: str) -> None:
    with pytest.raises(ValidationError, match=match):
        ConeSepConfig(**switches)
    assert ConeSepConfig(fidelity="released", omega=0.1).partition == "threshold"


def test_the_negative_query_of_figures_has_one_negation_for_all(
    make: Make, make_batch: MakeBatch, backbone
) -> None:
    batch = make_batch(4)
    method = make()
    found = method.negative_query(batch.reference_tokens, batch.texts, backbone)
    denied = [f"{PHRASES[0]} {text}" for text in batch.texts]
    expected = backbone.compose(batch.reference_tokens, denied, method.negative_tokens).vector
    assert_close(found, expected)
    assert not found.requires_grad
    plain = make(neg_text="plain")
    expected = backbone.compose(batch.reference_tokens, batch.texts, plain.negative_tokens).vector
    assert_close(plain.negative_query(batch.reference_tokens, batch.texts, backbone), expected)
