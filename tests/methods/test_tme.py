"""TME: each term against its objective, the four phases, the division of the triplets, and each switch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.testing import assert_close

from triptych.backbones.base import Backbone, BackboneShape
from triptych.methods.base import Losses, Phase, TripletBatch
from triptych.methods.tme import TME, TMEConfig
from triptych.objectives import fit_mixture, info_nce, partitioned_contrastive, robust_contrastive, similarity

MakeBatch = Callable[..., TripletBatch]
Make = Callable[..., TME]
EVERYONE = torch.ones(6, dtype=torch.bool)


@dataclass
class Context:
    epoch: int
    backbone: Backbone
    batches: list[TripletBatch] = field(default_factory=list)
    epochs: int = 30
    seed: int = 0
    resumed: bool = False
    visits: int = 0

    def scoring(self) -> Iterator[TripletBatch]:
        self.visits += 1
        yield from self.batches


@pytest.fixture
def make(shape: BackboneShape, backbone: Backbone) -> Make:
    def build(epoch: int = 5, **switches: Any) -> TME:
        """Make it at an epoch without a division: the first with all losses, by default."""
        method = TME(TMEConfig(**switches), shape, seed=3)
        method.epoch = epoch
        return method

    return build


@pytest.fixture
def make_divided(make: Make) -> Make:
    def build(noisy: tuple[int, ...] = (1, 4), size: int = 6, **switches: Any) -> TME:
        """Make it at an epoch of the last phase, with a division as it were made."""
        method = make(6, **switches)
        method.remember([f"t{i}" for i in range(size)])
        marked = torch.zeros(size, dtype=torch.bool)
        marked[list(noisy)] = True
        assert method.memory is not None
        method.memory.write(method.memory.triplet_ids, noisy=marked, clean=1 - 0.9 * marked.float())
        return method

    return build


def named(losses: Losses) -> dict[str, float]:
    return {name: weight for name, _, weight in losses}


def scores(batch: TripletBatch, backbone: Backbone) -> Tensor:
    looks = backbone.image_pass(batch.reference_tokens)
    return similarity(backbone.refine(looks, batch.texts).vector, backbone.targets(batch.target_tokens))


def changes(method: TME, batch: TripletBatch, backbone: Backbone) -> Tensor:
    delta = backbone.vision(batch.target_tokens) - backbone.vision(batch.reference_tokens)
    return backbone.look(method.difference(delta))


def test_the_four_terms_by_their_objectives(
    backbone: Backbone, make_divided: Make, make_batch: MakeBatch
) -> None:
    """Two of six triplets are noisy: the difference's term has all, the others have the clean ones."""
    method, batch = make_divided(), make_batch()
    losses = method.losses(batch, backbone)
    assert named(losses) == {"robust": 1.0, "prompt": 1.0, "align": 1.0, "difference": 0.1}
    clean = torch.tensor([True, False, True, True, False, True])
    targets = backbone.targets(batch.target_tokens)

    rows = robust_contrastive(scores(batch, backbone), temperature=0.07)
    assert_close(losses["robust"], torch.where(clean, rows * 6 / 4, 0.0))
    assert_close(losses["robust"].mean(), rows[clean].mean())

    prompted = similarity(backbone.prompt(method.prompt[0], batch.texts), targets)
    assert_close(losses["prompt"], partitioned_contrastive(prompted, clean, temperature=0.07))

    seen = changes(method, batch, backbone)
    words = backbone.word_embeddings(batch.texts)[0].mean(dim=1)
    each = (seen.mean(dim=1) - words).square().mean(dim=1)
    assert_close(losses["align"], torch.where(clean, each * 6 / 4, 0.0))

    d = backbone.refine(backbone.image_pass(batch.reference_tokens), seen).vector
    assert_close(losses["difference"], robust_contrastive(similarity(d, targets), temperature=0.07))


def test_phases(make: Make) -> None:
    method = make()
    stages = [method.stage(epoch) for epoch in range(8)]
    assert stages == ["qformer"] * 3 + ["proj"] * 2 + ["last"] + ["divided"] * 2
    proj = Phase(only=("method.prompt", "method.difference"), constant_rate=True)
    assert [method.phase(epoch) for epoch in range(8)] == [Phase()] * 3 + [proj] * 2 + [Phase()] * 3
    assert [method.divides(epoch) for epoch in range(8)] == [False] * 6 + [True] * 2
    at_once = make(qformer_epochs=0, proj_epochs=1, last_epochs=0)
    assert [at_once.stage(epoch) for epoch in range(3)] == ["proj", "divided", "divided"]


def test_terms_of_each_phase(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    expected = {
        0: {"robust"},
        3: {"prompt", "align", "difference"},
        5: {"robust", "prompt", "align", "difference"},
    }
    for epoch, terms in expected.items():
        losses = make(epoch).losses(make_batch(), backbone)
        assert set(named(losses)) == terms
    everything = make(5).losses(make_batch(), backbone)
    assert_close(everything["robust"], make(0).losses(make_batch(), backbone)["robust"])
    assert_close(everything["prompt"], make(3).losses(make_batch(), backbone)["prompt"])


def test_the_second_phase_teaches_the_projection_and_the_prompt(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    method = make(3)
    learner = nn.ModuleDict({"method": method, "backbone": backbone})
    for name, parameter in learner.named_parameters():
        parameter.requires_grad_(name.startswith(method.phase(3).only))
    method.losses(make_batch(), backbone).total().backward()
    learned = {name for name, parameter in learner.named_parameters() if parameter.grad is not None}
    assert learned == {"method.prompt", "method.difference.weight", "method.difference.bias"}
    assert all(
        parameter.grad.abs().sum() > 0 for parameter in learner.parameters() if parameter.grad is not None
    )


CHANGES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "gamma": ({"gamma": 0.0}, {"prompt"}),
    "alpha": ({"alpha": 0.0}, {"align"}),
    "beta": ({"beta": 0.0}, {"difference"}),
    "temperature": ({"temperature": 0.1}, {"robust", "prompt", "difference"}),
    "infonce": ({"positive_loss": "infonce"}, {"robust", "prompt", "difference"}),
    "noisy part": ({"negative_loss": "infonce", "positive_weight": 0.5}, {"robust", "prompt", "difference"}),
    "smooth": ({"align": "smoothl1"}, {"align"}),
    "masked mean": ({"masked_mean": True}, {"align"}),
    "no division": ({"partitioner": "all_positive"}, {"robust", "prompt", "align"}),
}
IN_ONE_STEP_EQUAL = {
    "compat": "it sets other switches",
    "robust_from_epoch": "it changes later epochs; see the delay",
    "learnable_temperature": "it changes what is trained; tested below",
    "qformer_epochs": "see the phases",
    "proj_epochs": "see the phases",
    "last_epochs": "see the phases",
    "first_loss": "it counts before the division; tested below",
    "noisy_share": "see the division",
    "threshold": "see the division",
    "score": "see the division",
    "score_rest": "see the division",
}


def test_every_switch_is_tried() -> None:
    tried = {key for switches, _ in CHANGES.values() for key in switches}
    assert tried | set(IN_ONE_STEP_EQUAL) == set(TMEConfig.model_fields)


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


def test_before_the_division_there_is_one_loss_for_all(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    s = scores(make_batch(), backbone)
    late = {"negative_loss": "infonce", "positive_weight": 0.5, "positive_loss": "none"}
    assert_close(make(0, **late).losses(make_batch(), backbone)["robust"], robust_contrastive(s))
    assert_close(make(0, first_loss="infonce").losses(make_batch(), backbone)["robust"], info_nce(s))


def test_a_delayed_start_contrasts_plainly(
    backbone: Backbone, make_divided: Make, make_batch: MakeBatch
) -> None:
    losses = make_divided(robust_from_epoch=7).losses(make_batch(), backbone)
    assert set(named(losses)) == {"infonce", "prompt", "align", "difference"}
    clean = torch.tensor([True, False, True, True, False, True])
    expected = partitioned_contrastive(scores(make_batch(), backbone), clean, positive="infonce")
    assert_close(losses["infonce"], expected)
    assert "robust" in make_divided(robust_from_epoch=6).losses(make_batch(), backbone)


def test_masked_mean_leaves_the_padding_out(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    """With one text of its own length there is no padding, so nothing changes."""
    same = {"texts": ("long red x",) * 6}
    plain, masked = (
        make(masked_mean=value).losses(make_batch(**same), backbone)["align"] for value in (False, True)
    )
    assert_close(plain, masked)
    found = make(masked_mean=True)._mean_word(("x", "longer x"), backbone)[0]
    assert_close(found, backbone.word_embeddings(("x",))[0][0].mean(dim=0).detach())


def split(batch: TripletBatch, size: int) -> list[TripletBatch]:
    from dataclasses import replace

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


def divide(method: TME, backbone: Backbone, batches: list[TripletBatch], **changes: Any) -> Context:
    method.remember([name for batch in batches for name in batch.triplet_ids])
    context = Context(6, backbone, batches, **changes)
    with torch.no_grad():
        method.begin_epoch(context)
    return context


def division(method: TME, ids: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    assert method.memory is not None
    return method.memory.read("noisy", ids), method.memory.read("clean", ids)


@pytest.mark.parametrize("score", ["batch", "cosine"])
def test_the_division_is_by_a_mixture_on_the_losses(
    score: str, backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    batch = make_batch(24)
    method = make(score=score)
    divide(method, backbone, split(batch, 8))
    losses = []
    for part in split(batch, 8):
        s = scores(part, backbone).detach()
        losses.append(info_nce(s, temperature=0.07) if score == "batch" else -s.diagonal())
    mixture = fit_mixture(torch.cat(losses), seed=6)
    noisy, chances = division(method, batch.triplet_ids)
    assert_close(chances, mixture.clean, rtol=1e-4, atol=1e-4)
    assert torch.equal(noisy, mixture.clean <= 0.5)
    assert 0 < noisy.sum() < 24


def test_other_partitioners(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    batch = make_batch(20)
    losses = info_nce(scores(batch, backbone).detach())
    place = (losses - losses.min()) / (losses.max() - losses.min())

    method = make(partitioner="percent", noisy_share=0.3)
    divide(method, backbone, [batch])
    noisy, chances = division(method, batch.triplet_ids)
    assert noisy.sum() == 6
    assert losses[noisy].min() >= losses[~noisy].max()
    assert_close(chances, 1 - place)

    method = make(partitioner="direct", threshold=0.4)
    divide(method, backbone, [batch])
    assert torch.equal(division(method, batch.triplet_ids)[0], place >= 0.4)

    method = make(partitioner="all_positive")
    assert divide(method, backbone, [batch]).visits == 0
    assert not method.posterior.ready


def test_the_rest_of_an_epoch_is_scored_or_as_released_always_clean(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    batch = make_batch(18)
    ours, released = make(), make(compat="released")
    for method in (ours, released):
        divide(method, backbone, split(batch, 8))
    rest = batch.triplet_ids[16:]
    assert (division(released, rest)[1] > 0.5).all()
    assert not torch.equal(division(ours, rest)[1], division(released, rest)[1])


def test_no_division_before_its_phase_and_none_on_resuming(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    method = make()
    method.remember([f"t{i}" for i in range(6)])
    early = Context(5, backbone, [make_batch()])
    method.begin_epoch(early)
    assert early.visits == 0
    assert divide(make(), backbone, [make_batch()]).visits == 1
    assert divide(make(), backbone, [make_batch()], resumed=True).visits == 0
    with pytest.raises(ValueError, match="remember"):
        make().begin_epoch(Context(6, backbone, [make_batch()]))


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_step_reads_the_division_of_its_epoch(
    on_disk: bool, tmp_path: Path, backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    method = make(partitioner="percent", noisy_share=0.5)
    batch = make_batch()
    method.remember(batch.triplet_ids, tmp_path if on_disk else None)
    assert method.memory is not None
    method.memory.begin_epoch(6, resumed=False)
    with torch.no_grad():
        method.begin_epoch(Context(6, backbone, [batch]))
    losses = method.losses(batch, backbone)
    assert (losses["robust"] == 0).sum() == 3
    assert losses.cleanliness is not None
    assert_close(losses.cleanliness, method.memory.read("clean", batch.triplet_ids, latest=True))


def test_cleanliness(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    """Before the first division the annotated probability, then the posterior of the loss."""
    batch = make_batch(24)
    method = make()
    p = torch.softmax(scores(batch, backbone) / 0.07, dim=1).diagonal().detach()
    assert_close(method.cleanliness(batch, backbone), p)
    last = method.losses(batch, backbone)
    assert last.cleanliness is not None
    assert_close(last.cleanliness, p)
    divide(method, backbone, [batch])
    found = method.cleanliness(batch, backbone)
    assert_close(found, division(method, batch.triplet_ids)[1], rtol=1e-4, atol=1e-4)
    assert not found.requires_grad
    assert ((found >= 0) & (found <= 1)).all()


def test_a_pair_that_fits_is_trusted_more(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    """Half of the queries get the target that they find best, the others the one that they find worst."""
    batch = make_batch(24)
    s = scores(batch, backbone).detach()
    clean = torch.arange(24) % 2 == 0
    rows = torch.where(clean, s.argmax(dim=1), s.argmin(dim=1))
    batch = make_batch(24, target_tokens=batch.target_tokens[rows])
    method = make(score="cosine", temperature=0.02)
    divide(method, backbone, [batch])
    found = method.cleanliness(batch, backbone)
    assert found[clean].mean() > found[~clean].mean() + 0.5


def test_trust_in_the_second_phase_is_the_prompts(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    batch, method = make_batch(), make(3)
    losses = method.losses(batch, backbone)
    s = similarity(backbone.prompt(method.prompt[0], batch.texts), backbone.targets(batch.target_tokens))
    assert losses.cleanliness is not None
    assert_close(losses.cleanliness, torch.softmax(s / 0.07, dim=1).diagonal().detach())
    assert make(3, gamma=0.0).losses(batch, backbone).cleanliness is None


def test_queries_score_as_in_training(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    method, batch = make(0), make_batch()
    queries = method.query(batch.reference_tokens, batch.texts, backbone)
    found = similarity(queries, method.targets(batch.target_tokens, backbone))
    assert_close(method.losses(batch, backbone)["robust"], robust_contrastive(found))


def test_the_temperature_is_learned_from_a_hundredth_up(
    backbone: Backbone, make: Make, make_batch: MakeBatch
) -> None:
    assert make(learnable_temperature=False).temperature.learned is None
    method = make(0)
    learned = method.temperature.learned
    assert learned is not None
    method.losses(make_batch(), backbone).total().backward()
    assert learned.grad != 0
    with torch.no_grad():
        learned.fill_(-3.0)
    expected = robust_contrastive(scores(make_batch(), backbone), temperature=0.01)
    assert_close(method.losses(make_batch(), backbone)["robust"], expected)


@pytest.mark.parametrize(("size", "noisy"), [(1, ()), (1, (0,)), (2, (1,)), (7, ()), (7, tuple(range(7)))])
@pytest.mark.parametrize("autocast", [False, True])
def test_losses_and_gradients_are_finite(
    size: int,
    noisy: tuple[int, ...],
    autocast: bool,
    backbone: Backbone,
    make_divided: Make,
    make_batch: MakeBatch,
) -> None:
    method = make_divided(noisy, size, negative_loss="infonce", positive_weight=0.7)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        losses = method.losses(make_batch(size), backbone)
    for _, values, _ in losses:
        assert values.shape == (size,)
        assert values.dtype == torch.float32
        assert values.isfinite().all()
    losses.total().backward()
    for parameter in [*method.parameters(), *backbone.parameters()]:
        assert parameter.grad is None or parameter.grad.isfinite().all()


def test_an_unchanged_picture_is_finite(backbone: Backbone, make: Make, make_batch: MakeBatch) -> None:
    tokens = make_batch().target_tokens
    losses = make().losses(make_batch(reference_tokens=tokens, target_tokens=tokens), backbone)
    losses.total().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in backbone.parameters())


@pytest.mark.parametrize(
    "switches",
    [
        {"positive_loss": "none"},
        {"positive_loss": "none", "negative_loss": "infonce"},
        {"gamma": 0.0, "alpha": 0.0, "beta": 0.0},
    ],
)
def test_switches_that_would_teach_nothing_are_refused(switches: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="nothing"):
        TMEConfig(**switches)
