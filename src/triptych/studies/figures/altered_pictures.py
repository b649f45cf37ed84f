"""Pictures under interventions: the five of INTENT (figure 5), and a run's own counterfactuals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from triptych.backbones.base import Backbone
from triptych.backbones.preprocessing import CLIP_MEAN, to_pixels, to_square
from triptych.errors import UsageError
from triptych.methods.base import Method
from triptych.objectives import (
    gaussian_blur,
    mix_amplitude,
    random_mask,
    ratio_window,
    shuffle_patches,
    transfer_style,
)
from triptych.randomness import generator, torch_generator
from triptych.studies.figures.board import Board
from triptych.studies.figures.canvas import style
from triptych.training.bank import Intervention
from triptych.triplets import ImageStore

SIZE = 224
"""Side in pixels at which the paper's sizes are stated."""
SHARE, WINDOW = 0.5, 0.5


@dataclass(frozen=True)
class AlteredPicture:
    """A picture and what was made of it.

    Attributes:
        image_id: the reference.
        irrelevant_id: the picture whose look comes in.
        names: of the panels.
        panels: ``[n, 3, H, W]`` in [0, 1].
        change: mean absolute change of a pixel from the first panel that is the reference, percent of the range.
    """

    image_id: str
    irrelevant_id: str
    names: tuple[str, ...]
    panels: npt.NDArray[np.float32]
    change: tuple[float, ...]

    def numbers(self) -> dict[str, Any]:
        """Return what a file of numbers holds: all but the pixels."""
        return {name: value for name, value in vars(self).items() if name != "panels"}


def five_interventions(reference: Tensor, irrelevant: Tensor, draws: torch.Generator) -> dict[str, Tensor]:
    """Alter a picture in INTENT's five ways.

    Args:
        reference: ``[1, 3, H, W]`` in [0, 1].
        irrelevant: ``[1, 3, H, W]`` in [0, 1].
        draws: CPU generator of masks and orders of patches.

    Returns:
        Name to ``[1, 3, H, W]`` in [0, 1]: the amplitude mix (λ and the window both 0.5), random mask, patch shuffle,
        Gaussian blur, style transfer; the original first.
    """
    window = ratio_window(reference.shape[2], reference.shape[3], WINDOW)
    return {
        "original": reference,
        "FFT mix (INTENT)": mix_amplitude(
            reference, irrelevant, torch.full((1,), SHARE), window=window
        ).clamp(0, 1),
        "random mask": random_mask(reference, draws, fill=torch.tensor(CLIP_MEAN)),
        "patch shuffle": shuffle_patches(reference, draws),
        "Gaussian blur": gaussian_blur(reference),
        "style transfer": transfer_style(reference, irrelevant),
    }


def intervened(images: ImageStore, pairs: Sequence[tuple[str, str]], seed: int) -> list[AlteredPicture]:
    """Alter pictures in the five ways, each with the look of another picture.

    Raises:
        ImageError: a picture cannot be decoded.
    """
    found = []
    for reference, other in pairs:
        x, d = (
            torch.from_numpy(to_pixels(to_square(images.load(name), SIZE)))[None]
            for name in (reference, other)
        )
        panels = five_interventions(x, d, torch_generator(seed, "figure", "interventions", reference))
        found.append(_altered(reference, other, {**panels, "look taken from": d}, x))
    return found


def counterfactuals_of(
    method: Method | None,
    backbone: Backbone,
    images: ImageStore,
    pairs: Sequence[tuple[str, str]],
    *,
    variants: int,
    seed: int,
) -> list[AlteredPicture]:
    """Draw what a method's own intervention makes of pictures.

    Raises:
        UsageError: the method alters no pictures.
        ImageError: a picture cannot be decoded.
    """
    off = getattr(getattr(method, "config", None), "intervention", None) == "none"
    if method is None or not isinstance(method, Intervention) or off:
        name = method.name if method is not None else "a model that was only aligned"
        raise UsageError(
            f"{name} alters no pictures, so there are no counterfactuals to see\n"
            "  Give a run of intent, or look at `triptych figure interventions DATA`."
        )
    found = []
    for reference, other in pairs:
        x, d = (
            torch.from_numpy(backbone.preprocess(images.load(name)))[None].to(backbone.device)
            for name in (reference, other)
        )
        draws = torch_generator(seed, "figure", "counterfactuals", reference)
        made = {
            f"counterfactual {at + 1}": method.counterfactual(x, d, backbone, draws) for at in range(variants)
        }
        found.append(_altered(reference, other, {"original": x, **made, "look taken from": d}, x))
    return found


def picture_pairs(
    image_ids: Sequence[str], chosen: Sequence[str], count: int, seed: int
) -> list[tuple[str, str]]:
    """Pair pictures with others whose look they take.

    Args:
        image_ids: to draw from.
        chosen: pictures to alter; ``count`` of them are drawn where there is none.
        count: how many to draw.
        seed: of the draw.

    Raises:
        UsageError: a chosen picture is not there, or there are fewer than two.
    """
    names = sorted(set(image_ids))
    unknown = [name for name in chosen if name not in names]
    if unknown or len(names) < 2:
        raise UsageError(
            f'there is no picture "{unknown[0]}" among the references'
            if unknown
            else "two pictures at least are needed: one to alter, one whose look it takes"
        )
    order = [names[at] for at in generator(seed, "figure", "pictures").permutation(len(names))]
    picked = list(chosen) or order[:count]
    pairs = []
    for at, name in enumerate(picked):
        others = [other for other in order if other != name]
        pairs.append((name, others[(at + len(picked)) % len(others)]))
    return pairs


def draw_altered(altered: Sequence[AlteredPicture], *, note: str = "") -> Any:
    """Draw a row a picture, a column a panel, and how much each changed below it."""
    side, gap, head = 1.5, 0.14, 0.52
    names = altered[0].names
    width = 0.4 + len(names) * (side + gap) - gap
    height = head + len(altered) * (side + 0.36) + 0.5
    with style():
        board = Board(width, height)
        for column, name in enumerate(names):
            board.text(name, 0.2 + column * (side + gap), 0.2, side, fontweight="bold")
        for row, each in enumerate(altered):
            y = head + row * (side + 0.36)
            for column, name in enumerate(names):
                x = 0.2 + column * (side + gap)
                board.pixels(each.panels[column], x, y, side)
                if name == names[0]:
                    said = each.image_id
                elif column == len(names) - 1:
                    said = each.irrelevant_id
                else:
                    said = f"change {each.change[column]:.0f} %"
                board.text(said, x, y + side + 0.05, side, size=8, lines=1, color="#374151")
        said = "Change: mean difference of a pixel from the original, percent of the whole range."
        board.note(f"{said} {note}".strip(), height - 0.38)
        return board.figure


def _altered(reference: str, other: str, panels: dict[str, Tensor], original: Tensor) -> AlteredPicture:
    stacked = torch.cat([panel.float().cpu() for panel in panels.values()])
    change = (stacked - original.float().cpu()).abs().mean(dim=(1, 2, 3))
    return AlteredPicture(
        reference, other, tuple(panels), stacked.numpy(), tuple(100 * float(each) for each in change)
    )
