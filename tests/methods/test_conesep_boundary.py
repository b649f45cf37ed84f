"""The floor of random inputs: what is drawn, from which law, and which pairs are scored."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from triptych.backbones.base import Backbone
from triptych.methods.base import TripletBatch
from triptych.methods.conesep_boundary import RandomInputs, random_boundary, random_pixels
from triptych.objectives import similarity

MakeBatch = Callable[..., TripletBatch]


def draw(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("law", "fourth", "highest"),
    [("gaussian", 3.0, (3.5, 7.0)), ("uniform", 1.8, (1.7, 1.7321)), ("laplace", 6.0, (5.5, 20.0))],
)
def test_pixels_follow_their_law(
    law: str, fourth: float, highest: tuple[float, float], backbone: Backbone
) -> None:
    """Mean 0, variance 1, and the kurtosis of each law, in the tower's normalised space."""
    pixels = random_pixels(200, backbone, law, draw())
    assert pixels.shape == (200, 3, 16, 16)
    mean, deviation = backbone.pixel_mean[:, None, None], backbone.pixel_std[:, None, None]
    z = (pixels - mean) / deviation
    assert z.mean().item() == pytest.approx(0, abs=0.01)
    assert z.square().mean().item() == pytest.approx(1, abs=0.02)
    assert z.pow(4).mean().item() == pytest.approx(fourth, rel=0.06)
    assert highest[0] < z.abs().max() <= highest[1]
    assert pixels.min() < 0  # not clamped
    assert (pixels.max() > 1) == (law != "uniform")
    assert torch.equal(random_pixels(200, backbone, law, draw()), pixels)


def test_the_floor_by_hand(backbone: Backbone, make_batch: MakeBatch) -> None:
    batch = make_batch(6)
    targets = backbone.targets(batch.target_tokens)
    rows = torch.randint(6, (3,), generator=(draws := draw(7)))
    tokens = backbone.encode_images(random_pixels(6, backbone, "gaussian", draws))
    queries = backbone.compose(tokens[:3], [batch.texts[row] for row in rows]).vector
    scores = similarity(queries, backbone.targets(tokens[3:])).detach()
    floor = random_boundary(batch, targets, backbone, RandomInputs(draws=3), draw(7))
    assert_close(floor, scores.diagonal().mean())
    assert not floor.requires_grad
    every = random_boundary(batch, targets, backbone, RandomInputs(draws=3, all_pairs=True), draw(7))
    assert_close(every, scores.mean())


def test_real_sides_by_hand(backbone: Backbone, make_batch: MakeBatch) -> None:
    """With nothing random, own captions and targets rolled by one."""
    batch = make_batch(3)
    targets = backbone.targets(batch.target_tokens)
    s = similarity(backbone.compose(batch.reference_tokens, batch.texts).vector, targets).detach()
    inputs = RandomInputs(draws=0, reference="real", target="real", text="own")
    floor = random_boundary(batch, targets, backbone, inputs, draw())
    assert_close(floor, (s[0, 1] + s[1, 2] + s[2, 0]) / 3)
    more = RandomInputs(draws=6, reference="real", target="real", text="own")  # each twice
    assert_close(random_boundary(batch, targets, backbone, more, draw()), floor)


def test_random_sides_do_not_look_at_the_real_ones(backbone: Backbone, make_batch: MakeBatch) -> None:
    batch, other = make_batch(6), make_batch(7)
    elsewhere = replace(
        batch, reference_tokens=other.reference_tokens[:6], target_tokens=other.target_tokens[:6]
    )

    def floor(batch: TripletBatch, **inputs: object) -> float:
        targets = backbone.targets(batch.target_tokens)
        return random_boundary(batch, targets, backbone, RandomInputs(**inputs), draw()).item()

    assert floor(batch) == floor(elsewhere)
    assert floor(batch, reference="real") != floor(elsewhere, reference="real")
    assert floor(batch, target="real") != floor(elsewhere, target="real")
    silent = replace(batch, texts=("other",) * 6)
    assert floor(batch) != floor(silent)
    assert floor(batch, text="empty") == floor(silent, text="empty")


def test_own_captions_give_the_same_floor_up_to_sampling_error(
    backbone: Backbone, make_batch: MakeBatch
) -> None:
    batch = make_batch(6)
    targets = backbone.targets(batch.target_tokens)

    def floors(text: str) -> torch.Tensor:
        inputs = RandomInputs(draws=6, text=text)
        return torch.stack(
            [random_boundary(batch, targets, backbone, inputs, draw(seed)) for seed in range(25)]
        )

    own, drawn, without = floors("own"), floors("random"), floors("empty")
    error = ((own.var() + drawn.var()) / 25).sqrt()
    assert (own.mean() - drawn.mean()).abs() < 4 * error
    pairs = without - drawn  # of the same pictures
    assert pairs.mean().abs() > 4 * (pairs.var() / 25).sqrt()  # no caption is another thing


def test_a_short_batch(backbone: Backbone, make_batch: MakeBatch) -> None:
    for size in (1, 2):
        batch = make_batch(size)
        targets = backbone.targets(batch.target_tokens)
        for inputs in (RandomInputs(), RandomInputs(draws=0, target="real"), RandomInputs(reference="real")):
            assert random_boundary(batch, targets, backbone, inputs, draw()).isfinite()
