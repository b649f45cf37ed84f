"""HABIT: each term against its objective, each switch, the first epoch, the history and who finds what in it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from torch.nn.functional import normalize
from torch.testing import assert_close

from triptych.backbones.base import Backbone, BackboneShape
from triptych.methods.ablations import apply_ablations
from triptych.methods.base import Losses, TripletBatch
from triptych.methods.habit import Habit, HabitConfig
from triptych.objectives import (
    consistency,
    estimate_cleanliness,
    info_nce,
    lowest_loss,
    robust_contrastive,
    similarity,
    soft_margin,
    transition_rates,
    trusted_mask,
)

MakeBatch = Callable[..., TripletBatch]
Make = Callable[..., Habit]

DENSE = {"eps": 0.002, "min_samples": 3}
"""With these the batch of 16 has some outliers, and a history as below makes a mixed mask."""


@pytest.fixture
def make(shape: BackboneShape) -> Make:
    def build(epoch: int = 0, **switches: Any) -> Habit:
        return at(Habit(HabitConfig(**switches), shape, seed=3), epoch)

    return build


def at(method: Habit, epoch: int) -> Habit:
    if method.memory is not None:
        method.memory.begin_epoch(epoch, resumed=False)
    method.begin_epoch(SimpleNamespace(epoch=epoch, epochs=20, seed=0))
    return method


def past_of(size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A past that differs from the present: e⁻ half dense and half scattered, m⁻, c and t."""
    draws = torch.Generator().manual_seed(5)
    e = torch.where(torch.arange(size) % 2 == 0, 0.9, torch.linspace(0.1, 0.8, size))
    trusted = torch.arange(size) % 3 > 0
    return (
        e,
        trusted,
        normalize(torch.randn(size, 16, generator=draws), dim=-1),
        normalize(torch.randn(size, 4, 16, generator=draws), dim=-1),
    )


def experienced(method: Habit, batch: TripletBatch, epoch: int = 1) -> Habit:
    """Give a method a past of a batch."""
    method.remember([f"t{i}" for i in range(100)])
    if method.history is not None:
        method.history.keep(batch, *past_of(len(batch)))
    return at(method, epoch)


def named(losses: Losses) -> dict[str, float]:
    return {name: weight for name, _, weight in losses}


def features(batch: TripletBatch, backbone: Backbone) -> tuple[Tensor, Tensor, Tensor]:
    """C, t and s."""
    composed, targets = (
        backbone.compose(batch.reference_tokens, batch.texts),
        backbone.targets(batch.target_tokens),
    )
    return composed.tokens, targets, similarity(composed.vector, targets)


class Given:
    """A backbone that gives features as they are."""

    def __init__(self, vector: Tensor, tokens: Tensor, targets: Tensor) -> None:
        self.composed = SimpleNamespace(vector=vector, tokens=tokens)
        self.given = targets

    def compose(self, tokens: Tensor, texts: tuple[str, ...]) -> Any:
        return self.composed

    def targets(self, tokens: Tensor) -> Tensor:
        return self.given


def test_the_first_epoch_trusts_everyone(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    method, batch = make(), make_batch(16)
    method.remember(batch.triplet_ids)
    losses = method.losses(batch, backbone)
    assert named(losses) == {"robust": 1.0, "soft": 0.5}
    tokens, targets, s = features(batch, backbone)
    e = estimate_cleanliness(transition_rates(tokens, targets, lowest_loss(s)))
    assert_close(losses["robust"], robust_contrastive(s, temperature=0.07))
    assert_close(losses["soft"], soft_margin(s, e, margin=0.2, shape="exponential"))
    assert_close(losses.total(), losses["robust"].mean() + 0.5 * losses["soft"].mean())
    assert losses.cleanliness is not None
    assert_close(losses.cleanliness, e)
    assert losses.diagnostics["trusted"] == 1


def test_later_epochs_by_their_objectives(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    batch = make_batch(16)
    method = experienced(make(**DENSE), batch)
    losses = method.losses(batch, backbone)
    assert named(losses) == {"robust": 1.0, "soft": 0.5, "kl": 10.0}
    tokens, targets, s = features(batch, backbone)
    e = estimate_cleanliness(transition_rates(tokens, targets, lowest_loss(s)))
    before, _, query, past_targets = past_of(16)
    m = trusted_mask(e, before, **DENSE)
    assert m.any()
    assert not m.all()
    assert_close(losses["robust"], robust_contrastive(s, mask=m))
    assert_close(losses["soft"], soft_margin(s, e, mask=m))
    past = similarity(query.half(), past_targets.half())
    assert_close(losses["kl"], consistency(s, past, e, before, mask=m))
    assert losses["kl"].sum() > 0
    total = losses["robust"].mean() + 0.5 * losses["soft"].mean() + 10 * losses["kl"].mean()
    assert_close(losses.total(), total)
    assert losses.cleanliness is not None
    assert_close(losses.cleanliness, e)  # before the mask
    assert_close(torch.as_tensor(losses.diagnostics["trusted"]), m.float().mean())
    assert not any(value.requires_grad for value in losses.diagnostics.values() if isinstance(value, Tensor))


ALL = {"robust", "soft", "kl"}
CHANGES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "D1 random sample": ({"anchor": "random"}, {"soft", "kl"}),  # the mask happens to be the same
    "D2 differences": ({"relative_rates": False}, ALL),
    "D3 without estimation": ({"mutual_knowledge": False}, ALL),
    "D4 present alone": ({"past_outliers": False}, ALL),
    "D5 without kl": ({"w_kl": 0.0}, {"kl"}),
    "D6 without history": ({"past_outliers": False, "w_kl": 0.0}, ALL),
    "D7 without mask": ({"mask": False}, ALL),
    "D8": ({"mask_robust": False}, {"robust"}),
    "D9": ({"mask_soft": False}, {"soft"}),
    "D10": ({"mask_kl": False}, {"kl"}),
    "D11": ({"robust": False}, {"robust"}),
    "D12": ({"w_soft": 0.0}, {"soft"}),
    "D13": ({"w_soft": 0.0, "w_kl": 0.0}, {"soft", "kl"}),
    "temperature": ({"temperature": 0.1}, {"robust"}),
    "floor": ({"floor": 5.0}, ALL),
    "bins": ({"bins": 5}, ALL),
    "low side": ({"dbscan": "low_side"}, ALL),
    "eps": ({"eps": 0.02}, ALL),
    "min_samples": ({"min_samples": 2}, ALL),
    "margin": ({"margin": 0.5}, {"soft"}),
    "margin shape": ({"margin_shape": "linear"}, {"soft"}),
    "hinge": ({"mask_hinge": False}, {"soft"}),
    "mask as weights": ({"kl_weights": "mask"}, {"kl"}),
    "crossed": ({"kl_pairing": "crossed"}, {"kl"}),
    "rows": ({"kl_reduction": "row"}, {"kl"}),
    "released history": ({"history": "released"}, set()),  # the same place: the same triplet
    "fixed batches": ({"history": "fixed_batches"}, set()),
}
ELSEWHERE = {
    "compat": "it sets other switches; see test_presets and below",
    "robust_from_epoch": "it changes earlier epochs; see below",
}


def test_every_switch_is_tried() -> None:
    tried = {key for switches, _ in CHANGES.values() for key in switches}
    assert tried | set(ELSEWHERE) == set(HabitConfig.model_fields)


@pytest.mark.parametrize("change", CHANGES)
def test_a_switch_changes_its_terms_and_no_other(
    change: str, backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    switches, terms = CHANGES[change]
    batch = make_batch(16)
    plain = experienced(make(**DENSE), batch).losses(batch, backbone)
    changed = experienced(make(**(DENSE | switches)), batch).losses(batch, backbone)
    gone = set(named(plain)) - set(named(changed))
    assert gone <= terms
    differs = {name for name in named(changed) if not torch.equal(plain[name], changed[name])}
    assert differs | gone == terms
    assert all(values.isfinite().all() for _, values, _ in changed)
    changed.total().backward()
    assert_finite_gradients(backbone)


ROWS = sorted(Habit.ablations, key=lambda row: int(row[1:]))


@pytest.mark.parametrize("row", ROWS)
def test_rows_of_table_3_in_the_first_epoch_and_later(
    row: str, backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    switches = apply_ablations([f"habit.{row}"], {})
    del switches["name"]
    batch = make_batch(16)

    def total(epoch: int, **changes: Any) -> Tensor:
        method = experienced(make(**(DENSE | changes)), batch, epoch)
        return method.losses(batch, backbone).total().detach()

    history_only = row in ("D4", "D5", "D6", "D7", "D8", "D9", "D10")
    assert torch.equal(total(0, **switches), total(0)) == history_only
    for epoch in (1, 2, 7):
        assert not torch.equal(total(epoch, **switches), total(epoch))


def test_without_estimation_all_are_clean_and_trusted(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    """D3, also where the batch is smaller than what DBSCAN asks for."""
    batch = make_batch(6)
    losses = experienced(make(mutual_knowledge=False), batch).losses(batch, backbone)
    _, _, s = features(batch, backbone)
    assert losses.cleanliness is not None
    assert (losses.cleanliness == 1).all()
    assert_close(losses["robust"], robust_contrastive(s))
    assert_close(losses["soft"], soft_margin(s, torch.ones(6), shape="none"))


def test_a_random_sample_is_drawn_by_the_step_and_is_the_same_for_all(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    method, standard = make(anchor="random"), set()
    for seed in range(12):
        batch = make_batch(seed=seed)
        torch.manual_seed(seed % 3)
        trusted = method.losses(batch, backbone).cleanliness
        assert trusted is not None
        torch.manual_seed(7)
        assert torch.equal(method.cleanliness(batch, backbone), trusted)
        assert trusted.max() == 1
        standard.add(int(trusted.argmax()))
    assert len(standard) > 3


@pytest.mark.parametrize("history", ["sample_bank", "fixed_batches", "released"])
def test_who_remembers_what_after_a_shuffle(history: str, make: Make, make_batch: MakeBatch) -> None:
    """The weights stay, so similarities of the same triplets do; by place they are those of others."""
    first, (e, trusted, query, targets) = make_batch(8), past_of(8)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(2))
    later = replace(first, triplet_ids=tuple(first.triplet_ids[i] for i in order))
    method = make(history=history, mask=False)
    method.remember(sorted(first.triplet_ids, reverse=True))
    given: list[Any] = [Given(query[rows], targets[rows], targets[rows]) for rows in (torch.arange(8), order)]
    at(method, 0).losses(first, given[0])
    losses = at(method, 1).losses(later, given[1])
    assert (losses["kl"].max() < 1e-5) == (history != "released")

    assert method.history is not None
    method.history.keep(first, e, trusted, query, targets)
    past = method.history.recall(later, torch.device("cpu"))
    expected = torch.arange(8) if history == "released" else order
    assert past.known.all()
    assert torch.equal(past.cleanliness, e[expected])
    assert torch.equal(past.trusted, trusted[expected])
    assert past.similarity is not None
    assert_close(past.similarity, similarity(query.half(), targets.half())[expected][:, expected])


def test_released_rows_are_places_of_the_epoch(make: Make, make_batch: MakeBatch) -> None:
    method = make(history="released")
    method.remember([f"x{i}" for i in range(40)])  # the batch's own names are not looked at
    assert method.history is not None
    for step in (0, 3):
        method.history.keep(make_batch(8, step=step), *past_of(8))
    names = [f"x{i}" for i in range(40)]
    known = method.history.memory.known(names)
    assert known.nonzero().flatten().tolist() == [*range(8), *range(24, 32)]


def test_fixed_batches_are_asked_for(make: Make) -> None:
    assert make(history="fixed_batches").fixed_batches
    assert not make().fixed_batches
    assert not make(history="released").fixed_batches


def test_those_without_history_are_trusted_and_left_out_of_the_consistency(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    batch = make_batch(16)
    method = make(**DENSE)
    method.remember(batch.triplet_ids)
    assert method.history is not None
    known = torch.arange(16) < 11
    kept = tuple(value[:11] for value in past_of(16))
    method.history.keep(replace(batch, triplet_ids=batch.triplet_ids[:11]), *kept)
    losses = at(method, 1).losses(batch, backbone)

    tokens, targets, s = features(batch, backbone)
    e = estimate_cleanliness(transition_rates(tokens, targets, lowest_loss(s)))
    before = torch.zeros(16)
    before[:11] = kept[0]
    m = trusted_mask(e, before, remembered=known, **DENSE)
    assert m[11:].all()
    assert not m.all()
    assert_close(losses["robust"], robust_contrastive(s, mask=m))
    past = torch.zeros(16, 16)
    past[:11, :11] = similarity(kept[2].half(), kept[3].half())
    assert_close(losses["kl"], consistency(s, past, e, before, mask=m, remembered=known))
    assert (losses["kl"][11:] == 0).all()
    assert losses["kl"].sum() > 0


def test_a_step_reads_before_it_writes_and_cleanliness_does_not_write(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    batch = make_batch(16)
    method = experienced(make(**DENSE), batch)
    assert method.memory is not None
    before = {name: value.clone() for name, value in method.memory.state().items()}
    trusted = method.cleanliness(batch, backbone)
    assert all(torch.equal(value, before[name]) for name, value in method.memory.state().items())

    losses = method.losses(batch, backbone)
    assert losses.cleanliness is not None
    assert torch.equal(trusted, losses.cleanliness)
    composed = backbone.compose(batch.reference_tokens, batch.texts)
    ids = batch.triplet_ids
    assert_close(method.memory.read("cleanliness", ids), losses.cleanliness)  # before the mask
    assert_close(method.memory.read("query", ids), composed.vector.detach().half())
    assert_close(method.memory.read("targets", ids), backbone.targets(batch.target_tokens).detach().half())
    robust = losses["robust"].detach()
    assert torch.equal(method.memory.read("trusted", ids), robust > 0)


def test_what_is_kept_follows_the_switches(make: Make, make_batch: MakeBatch) -> None:
    ids = make_batch(6).triplet_ids

    def kept(**switches: Any) -> set[str]:
        method = make(**switches)
        method.remember(ids)
        return set(method.memory.fields) if method.memory is not None else set()

    assert kept() == {"cleanliness", "trusted", "query", "targets", "known"}
    assert kept(past_outliers=False) == kept(mask=False) == kept(mutual_knowledge=False) == kept()
    assert kept(w_kl=0.0) == {"cleanliness", "trusted", "known"}
    assert kept(past_outliers=False, w_kl=0.0) == kept(mask=False, w_kl=0.0) == set()
    method = make()
    method.remember(ids)
    assert method.memory is not None
    assert method.memory.bytes_per_triplet == 4 + 2 + 2 * 16 * (4 + 1)
    full = Habit(HabitConfig(), BackboneShape(32, 256, 768, 257, 1408, 224))
    full.remember(ids)
    assert full.memory is not None
    assert full.memory.bytes_per_triplet == 16902


def test_files_and_ram_say_the_same_and_a_saved_history_goes_on(
    tmp_path: Path, backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    batch = make_batch(16)

    def two_epochs(folder: Path | None) -> Habit:
        method = make(**DENSE)
        method.remember(batch.triplet_ids, folder)
        at(method, 0).losses(batch, backbone)
        return at(method, 1)

    in_ram, on_disk, resumed = two_epochs(None), two_epochs(tmp_path / "memory"), make(1, **DENSE)
    assert in_ram.memory is not None
    resumed.remember(batch.triplet_ids)
    assert resumed.memory is not None
    resumed.memory.load_state({name: value.clone() for name, value in in_ram.memory.state().items()})
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.mul_(1.5)
    expected = resumed.losses(batch, backbone)
    assert expected["kl"].sum() > 0
    for method in (in_ram, on_disk):
        losses = method.losses(batch, backbone)
        assert all(torch.equal(losses[name], expected[name]) for name in named(expected))
    again = on_disk.losses(batch, backbone)  # a step that is repeated reads what it read the first time
    assert torch.equal(again["kl"], expected["kl"])


def test_without_a_memory_nothing_is_consistent_and_nobody_was_an_outlier(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    batch = make_batch(6)
    losses = make(1).losses(batch, backbone)
    assert set(named(losses)) == {"robust", "soft"}
    assert losses.diagnostics["trusted"] == 1


def test_a_delayed_robust_term(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    batch = make_batch()
    assert set(named(make(1, robust_from_epoch=2).losses(batch, backbone))) == {"soft"}
    assert set(named(make(2, robust_from_epoch=2).losses(batch, backbone))) == {"robust", "soft"}
    alone = make(1, robust_from_epoch=2, w_soft=0.0).losses(batch, backbone)
    assert set(named(alone)) == {"infonce"}
    assert_close(alone["infonce"], info_nce(features(batch, backbone)[2]))
    assert set(named(make(2, robust_from_epoch=2, w_soft=0.0).losses(batch, backbone))) == {"robust"}


def test_something_must_rank(shape: BackboneShape) -> None:
    with pytest.raises(ValidationError, match=r"w_soft = 0 without L_rank"):
        HabitConfig(robust=False, w_soft=0.0)


def test_released_as_a_whole(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    batch = make_batch(16)
    losses = experienced(make(compat="released"), batch).losses(batch, backbone)
    assert named(losses) == {"robust": 1.0, "soft": 0.1, "kl": 10.0}
    tokens, targets, s = features(batch, backbone)
    e = estimate_cleanliness(transition_rates(tokens, targets, lowest_loss(s)))
    before, _, query, past_targets = past_of(16)
    m = trusted_mask(
        e, before
    )  # the first half of the past is dense, and 8 are fewer than 10: all are outliers
    assert_close(losses["robust"], robust_contrastive(s, mask=m))
    assert_close(losses["soft"], soft_margin(s, e, mask=m, margin=0.5, mask_hinge=False))
    past = similarity(query.half(), past_targets.half())
    assert_close(losses["kl"], consistency(s, past, e, before, mask=m, pairing="crossed"))


def test_paper_as_a_whole(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    batch = make_batch(16)
    losses = experienced(make(compat="paper", **DENSE), batch).losses(batch, backbone)
    assert named(losses) == {"robust": 1.0, "soft": 0.5, "kl": 10.0}
    tokens, targets, s = features(batch, backbone)
    e = estimate_cleanliness(transition_rates(tokens, targets, lowest_loss(s, temperature=0.1)))
    before, trusted, query, past_targets = past_of(16)
    m = trusted_mask(e, before, **DENSE)
    assert not m.all()
    assert_close(losses["robust"], robust_contrastive(s, temperature=0.1, mask=m))
    assert_close(losses["soft"], soft_margin(s, e, mask=m, margin=0.2))
    past = similarity(query.half(), past_targets.half())
    ones = torch.ones(16)
    assert_close(losses["kl"], consistency(s, past, ones, trusted.float(), mask=m, reduction="row"))
    unmasked = experienced(make(compat="paper", mask_kl=False, **DENSE), batch).losses(batch, backbone)
    assert_close(unmasked["kl"], consistency(s, past, ones, ones, reduction="row"))


def test_cleanliness_is_higher_for_pairs_that_belong_together(make: Make, make_batch: MakeBatch) -> None:
    """Targets that are their queries with a little noise, but for three that belong to nobody."""
    draws = torch.Generator().manual_seed(0)
    tokens = torch.randn(12, 4, 64, generator=draws)
    targets = tokens + 0.3 * torch.randn(12, 4, 64, generator=draws)
    targets[9:] = torch.randn(3, 4, 64, generator=draws)
    tokens, targets = normalize(tokens, dim=-1), normalize(targets, dim=-1)
    given: Any = Given(tokens[:, 0], tokens, targets)
    trusted = make().cleanliness(make_batch(12), given)
    assert ((trusted > 0) & (trusted <= 1)).all()
    assert trusted.max() == 1
    assert trusted[:9].min() > trusted[9:].max() + 0.1


def test_one_pass_each_and_the_score_that_is_ranked_by(
    backbone: Backbone, make: Make, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = make_batch(16)
    method = experienced(make(), batch)
    queries = method.query(batch.reference_tokens, batch.texts, backbone)
    s = similarity(queries, method.targets(batch.target_tokens, backbone))
    calls = []
    for name in ("compose", "targets"):
        whole = getattr(backbone, name)
        monkeypatch.setattr(backbone, name, lambda *given, n=name, f=whole: (calls.append(n), f(*given))[1])
    unmasked = method.losses(batch, backbone)
    assert sorted(calls) == ["compose", "targets"]
    mask = unmasked["robust"] > 0
    assert_close(unmasked["robust"], robust_contrastive(s, mask=mask))


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize("compat", ["recommended", "released", "paper"])
def test_small_batches_are_finite(
    compat: str, epoch: int, size: int, backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    """In the second epoch all are outliers: fewer than min_samples."""
    batch = make_batch(size)
    method = experienced(make(compat=compat), batch, epoch)
    losses = method.losses(batch, backbone)
    for _, values, _ in losses:
        assert values.shape == (size,)
        assert values.dtype == torch.float32
        assert values.isfinite().all()
    assert losses.diagnostics["trusted"] == (epoch == 0)
    losses.total().backward()
    assert_finite_gradients(backbone)
    trusted = method.cleanliness(batch, backbone)
    assert ((trusted >= 0) & (trusted <= 1)).all()


@pytest.mark.parametrize("min_samples", [1, 17])
def test_all_trusted_and_nobody_trusted(
    min_samples: int, backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    batch = make_batch(16)
    losses = experienced(make(min_samples=min_samples), batch).losses(batch, backbone)
    assert losses.diagnostics["trusted"] == (min_samples == 1)
    if min_samples == 17:
        assert all((values == 0).all() for _, values, _ in losses)
    losses.total().backward()
    assert_finite_gradients(backbone)


def test_identical_triplets_and_empty_pictures_stay_finite(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    batch = make_batch(16)
    for tokens in (batch.reference_tokens[:1].expand(16, -1, -1), torch.zeros_like(batch.reference_tokens)):
        same = replace(batch, texts=("x",) * 16, reference_tokens=tokens, target_tokens=tokens)
        for compat in ("recommended", "released", "paper"):
            losses = experienced(make(compat=compat), same).losses(same, backbone)
            assert all(values.isfinite().all() for _, values, _ in losses)
            losses.total().backward()
            assert_finite_gradients(backbone)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_features_give_float32_losses(
    dtype: torch.dtype, make: Make, make_batch: MakeBatch
) -> None:
    batch = make_batch(16)
    _, _, query, targets = past_of(16)
    vector = query.to(dtype).requires_grad_()
    given: Any = Given(vector, targets.roll(1, 0).to(dtype), targets.to(dtype))
    losses = experienced(make(**DENSE), batch).losses(batch, given)
    for _, values, _ in losses:
        assert values.dtype == torch.float32
        assert values.isfinite().all()
    losses.total().backward()
    assert vector.grad is not None
    assert vector.grad.isfinite().all()
    assert vector.grad.abs().sum() > 0


def test_autocast(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    batch = make_batch(16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = experienced(make(**DENSE), batch).losses(batch, backbone)
    assert all(values.dtype == torch.float32 and values.isfinite().all() for _, values, _ in losses)
    losses.total().backward()
    assert_finite_gradients(backbone)


def test_features_that_are_not_finite_show_in_the_loss(make: Make, make_batch: MakeBatch) -> None:
    """So that the training loop can name the step, instead of the histogram refusing them."""
    _, _, query, targets = past_of(16)
    given: Any = Given(query * torch.nan, targets, targets)
    batch = make_batch(16)
    losses = experienced(make(), batch).losses(batch, given)
    assert losses.total().isnan()


def assert_finite_gradients(backbone: Backbone) -> None:
    for parameter in backbone.parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all()
