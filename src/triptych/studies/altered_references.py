"""INTENT's claim, tested: does a model find the target though the reference's look was changed at test time?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from triptych.backbones.base import Backbone
from triptych.backbones.token_cache import TokenCache
from triptych.evaluation import REFERENCE_REMOVED
from triptych.objectives.interventions import gaussian_blur, jitter_colours
from triptych.objectives.spectrum import mix_amplitude, ratio_window
from triptych.randomness import derive_seed, generator
from triptych.training.evaluate import References, SplitEvaluator
from triptych.training.model import Model
from triptych.triplets import Benchmark
from triptych.triplets.rendered_again import other_backgrounds

Alter = Callable[[Tensor, Tensor, torch.Generator], Tensor]
"""Changes pictures ``[B, 3, H, W]`` in [0, 1], given others of the gallery and a generator."""
WINDOW = 0.5
"""Share of the spectrum that is mixed, as INTENT trains with."""
_BATCH = 32


@dataclass(frozen=True)
class Altered:
    """What a model finds with references altered one way.

    Attributes:
        alteration: what was done; ``none`` for the pictures as they are.
        strength: how strongly, in words; empty where there is no degree.
        recalls: R@K by name, the reference removed, percent.
    """

    alteration: str
    strength: str
    recalls: dict[str, float]


def alterations() -> Iterator[tuple[str, str, Alter]]:
    """Yield each alteration of pixels with its strength, weakest first."""
    for share in (0.25, 0.5, 0.75, 1.0):
        yield "spectrum mix", f"{share:g} of another picture's amplitudes", _mix(share)
    for sigma in (2.0, 5.0, 10.0):
        yield "blur", f"{sigma:g} px at 224", _blur(sigma)
    for strength in (0.2, 0.5, 0.8):
        yield "jitter", f"brightness and contrast ± {strength:g}", _jitter(strength)


def score_altered(
    model: Model,
    benchmark: Benchmark,
    *,
    split: str = "val",
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[Altered]:
    """Score a model with its references as they are, and altered in every way; galleries stay as they are.

    On a rendered benchmark the references are also drawn again over other backgrounds, the things the same.

    Args:
        model: in eval mode.
        benchmark: the data.
        split: which of its splits.
        seed: of the alterations.
        progress: called with (alterations done, alterations).
    """
    evaluator = SplitEvaluator(benchmark, split, model, TokenCache(model.backbone))
    ways = list(alterations())
    redraw = other_backgrounds(benchmark.path, seed=seed) if split == "val" else None
    total = 1 + len(ways) + (redraw is not None)
    found: list[Altered] = []

    def score(alteration: str, strength: str, references: References | None) -> None:
        row = evaluator.evaluate(model, protocol=REFERENCE_REMOVED, references=references).row()
        found.append(Altered(alteration, strength, dict(row.mean)))
        if progress is not None:
            progress(len(found), total)

    score("none", "", None)
    pool = sorted({name for part in evaluator.query_sets for name in part.gallery})
    for alteration, strength, alter in ways:
        score(
            alteration,
            strength,
            _references(benchmark, model.backbone, pool, alter, f"{alteration} {strength}", seed),
        )
    if redraw is not None:
        backbone = model.backbone

        def redrawn(names: Sequence[str]) -> Tensor:
            return _encoded([backbone.preprocess(redraw(name)) for name in names], backbone)

        score("other background", "the same things", redrawn)
    return found


def _references(
    benchmark: Benchmark, backbone: Backbone, pool: Sequence[str], alter: Alter, name: str, seed: int
) -> References:
    """Make what loads, alters and encodes references; a picture is altered the same way wherever it stands."""

    def tokens(names: Sequence[str]) -> Tensor:
        altered = []
        for image in names:
            others = [other for other in _drawn(pool, image, name, seed) if other != image]
            pixels, other = (
                torch.from_numpy(backbone.preprocess(benchmark.images.load(each)))[None]
                for each in (image, others[0])
            )
            draws = torch.Generator().manual_seed(derive_seed(seed, name, image))
            altered.append(alter(pixels, other, draws)[0].numpy())
        return _encoded(altered, backbone)

    return tokens


def _drawn(pool: Sequence[str], image: str, name: str, seed: int) -> list[str]:
    """Draw two pictures of the gallery, of which at most one is the picture itself."""
    chosen = generator(seed, "altered", name, image).choice(len(pool), size=min(2, len(pool)), replace=False)
    return [pool[at] for at in chosen] if len(pool) > 1 else [image, image]


@torch.inference_mode()
def _encoded(pictures: Sequence[np.ndarray], backbone: Backbone) -> Tensor:
    parts = [
        backbone.encode_images(torch.from_numpy(np.stack(pictures[at : at + _BATCH])).to(backbone.device))
        for at in range(0, len(pictures), _BATCH)
    ]
    return torch.cat(parts).float()


def _mix(share: float) -> Alter:
    def alter(pixels: Tensor, other: Tensor, draws: torch.Generator) -> Tensor:
        height, width = pixels.shape[2:]
        window = ratio_window(height, width, WINDOW)
        shares = torch.full((len(pixels),), share)
        return mix_amplitude(pixels, other, shares, window=window).clamp(0, 1)

    return alter


def _blur(sigma: float) -> Alter:
    def alter(pixels: Tensor, other: Tensor, draws: torch.Generator) -> Tensor:
        return gaussian_blur(pixels, kernel=4 * int(sigma) + 3, sigma=sigma)

    return alter


def _jitter(strength: float) -> Alter:
    def alter(pixels: Tensor, other: Tensor, draws: torch.Generator) -> Tensor:
        return jitter_colours(pixels, draws, strength=strength)

    return alter
