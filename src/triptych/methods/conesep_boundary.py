"""ConeSep's boundary: how similar a query and a target are of which neither says anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from triptych.backbones.base import Backbone
from triptych.methods.base import TripletBatch
from triptych.objectives import similarity

PixelLaw = Literal["gaussian", "uniform", "laplace"]
Pictures = Literal["random", "real"]
Captions = Literal["random", "empty", "own"]


@dataclass(frozen=True)
class RandomInputs:
    """What is drawn in place of a triplet.

    Attributes:
        law: of the pixels, of mean 0 and variance 1 in the tower's normalised space.
        draws: K; 0 = as many as the batch has triplets.
        reference: random pictures, or (ConeSep's ablation D2) those of the batch.
        target: random pictures, or (D1) those of the batch, rolled by one against the captions.
        text: random captions of the batch, no words (D3), or the triplets' own in order.
        all_pairs: take every reference with every target, K² pairs.
        dropout: leave the backbone in train mode where it is.
    """

    law: PixelLaw = "gaussian"
    draws: int = 4
    reference: Pictures = "random"
    target: Pictures = "random"
    text: Captions = "random"
    all_pairs: bool = False
    dropout: bool = False


@torch.no_grad()
def random_boundary(
    batch: TripletBatch,
    targets: Tensor,
    backbone: Backbone,
    inputs: RandomInputs,
    generator: torch.Generator,
) -> Tensor:
    r"""Estimate the floor 𝔹, the mean of :math:`s` over K random queries and targets.

    All random pictures are encoded at once, references first; real targets cost no pass.

    Args:
        batch: gives captions, and real references.
        targets: ``[B, Q, D]`` of the batch, unit rows.
        backbone: encodes and composes; in eval mode meanwhile, unless ``inputs.dropout``.
        inputs: what is drawn.
        generator: CPU generator.

    Returns:
        A scalar without gradient.

    Source: ConeSep eq. 2; specification, section 11 (b) and section 12.
    """
    size, draws = len(batch), inputs.draws or len(batch)
    own = torch.arange(draws) % size
    rows = own if inputs.text == "own" else torch.randint(size, (draws,), generator=generator)
    texts = [""] * draws if inputs.text == "empty" else [batch.texts[row] for row in rows.tolist()]
    with _mode(backbone, dropout=inputs.dropout):
        tokens: Iterator[Tensor] = iter(())
        if count := draws * (inputs.reference, inputs.target).count("random"):
            pixels = random_pixels(count, backbone, inputs.law, generator)
            tokens = iter(torch.split(backbone.encode_images(pixels), draws))
        references = next(tokens) if inputs.reference == "random" else batch.reference_tokens[own]
        queries = backbone.compose(references, texts).vector
        real = inputs.target == "real"
        others = targets[(rows + 1) % size] if real else backbone.targets(next(tokens))
        scores = similarity(queries, others)
    return scores.mean() if inputs.all_pairs else scores.diagonal().mean()


def random_pixels(count: int, backbone: Backbone, law: PixelLaw, generator: torch.Generator) -> Tensor:
    """Draw pictures whose *normalised* pixels follow a law of mean 0 and variance 1.

    Returns:
        ``[count, 3, H, W]`` float32 as :meth:`~triptych.backbones.base.Backbone.encode_images` takes them, on its
        device; far from all are in [0, 1], for nothing is clamped.
    """
    side = backbone.shape.image_size
    shape = (count, 3, side, side)
    if law == "gaussian":
        noise = torch.randn(shape, generator=generator)
    elif law == "uniform":
        noise = (2 * torch.rand(shape, generator=generator) - 1) * 3**0.5
    else:
        signs = 2 * torch.randint(2, shape, generator=generator) - 1
        noise = signs * torch.empty(shape).exponential_(generator=generator) / 2**0.5
    mean, deviation = (value[:, None, None] for value in (backbone.pixel_mean, backbone.pixel_std))
    return noise.to(mean) * deviation + mean


@contextmanager
def _mode(backbone: Backbone, *, dropout: bool) -> Iterator[None]:
    training = backbone.training
    if dropout or not training:
        yield
        return
    backbone.eval()
    try:
        yield
    finally:
        backbone.train(training)
