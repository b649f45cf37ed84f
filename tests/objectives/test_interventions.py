"""Mask, shuffle, blur, style, grey and light noise at several sizes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from triptych.objectives import (
    add_noise,
    gaussian_blur,
    grayscale,
    jitter_colours,
    random_mask,
    shuffle_patches,
    transfer_style,
)


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pictures(height: int = 32, width: int = 32, batch: int = 2, seed: int = 9) -> Tensor:
    return torch.rand(batch, 3, height, width, generator=draws(seed))


FILL = torch.tensor([0.1, 0.2, 0.3])
ALL = {
    "mask": lambda x, g: random_mask(x, g, fill=FILL),
    "shuffle": lambda x, g: shuffle_patches(x, g),
    "blur": lambda x, g: gaussian_blur(x),
    "style": lambda x, g: transfer_style(x, x.flip(0)),
    "grey": lambda x, g: grayscale(x),
    "jitter": lambda x, g: jitter_colours(x, g, strength=0.2),
    "noise": lambda x, g: add_noise(x, g, deviation=0.05),
}


@given(st.integers(4, 40), st.integers(4, 40), st.integers(1, 3))
@pytest.mark.parametrize("name", ALL)
def test_shape_and_range_hold_and_the_generator_decides(
    name: str, height: int, width: int, batch: int
) -> None:
    x = pictures(height, width, batch)
    before = x.clone()
    first, again = ALL[name](x, draws(1)), ALL[name](x, draws(1))
    assert first.shape == x.shape
    assert first.min() >= 0
    assert first.max() <= 1 + 1e-6
    assert torch.equal(first, again)
    assert torch.equal(x, before)


@pytest.mark.parametrize("name", ["mask", "shuffle", "jitter", "noise"])
def test_another_seed_gives_another_picture(name: str) -> None:
    assert not torch.equal(ALL[name](pictures(), draws(1)), ALL[name](pictures(), draws(2)))


def test_grayscale_by_hand() -> None:
    x = torch.tensor([1.0, 0.5, 0.25]).view(1, 3, 1, 1)
    assert_close(grayscale(x), torch.full((1, 3, 1, 1), 0.299 + 0.587 * 0.5 + 0.114 * 0.25))


def test_mask_blanks_whole_cells_of_16_pixels_at_224() -> None:
    x = torch.ones(8, 3, 224, 224)
    masked = random_mask(x, draws(), fill=FILL)
    blank = masked[:, 0] == FILL[0]
    cells = blank.unflatten(1, (14, 16)).unflatten(3, (14, 16)).float().mean(dim=(2, 4))
    assert ((cells == 0) | (cells == 1)).all()
    assert cells.mean().item() == pytest.approx(0.3, abs=0.03)
    assert_close(masked[:, :, blank[0]][0], FILL[:, None].expand(3, int(blank[0].sum())))
    assert not torch.equal(blank[0], blank[1])
    assert torch.equal(random_mask(x, draws(), fill=FILL, probability=0.0), x)


def test_shuffle_permutes_whole_patches_and_leaves_the_rest() -> None:
    x = torch.arange(16.0).view(1, 1, 4, 4).repeat_interleave(2, 2).repeat_interleave(2, 3)
    x = torch.nn.functional.pad(x, (0, 1, 0, 1), value=-1.0)
    shuffled = shuffle_patches(x, draws())
    inner = shuffled[0, 0, :8, :8].unflatten(0, (4, 2)).unflatten(2, (4, 2))
    assert torch.equal(inner.amin(dim=(1, 3)), inner.amax(dim=(1, 3)))  # patches stay whole
    assert sorted(inner.amin(dim=(1, 3)).flatten().tolist()) == list(range(16))
    assert not torch.equal(shuffled, x)
    assert (shuffled[0, 0, 8, :] == -1).all()
    assert (shuffled[0, 0, :, 8] == -1).all()
    with pytest.raises(ValueError, match="3 x 8 pixels"):
        shuffle_patches(torch.zeros(1, 3, 3, 8), draws())


def test_blur_of_a_point_by_hand() -> None:
    """At 224 px the kernel has 23 weights, proportional to exp(-x²/50), in each direction."""
    x = torch.zeros(1, 1, 224, 224)
    x[0, 0, 100, 100] = 1.0
    blurred = gaussian_blur(x)[0, 0]
    weights = torch.exp(-(torch.arange(-11.0, 12.0) ** 2) / 50)
    weights /= weights.sum()
    assert_close(blurred[89:112, 89:112], weights[:, None] * weights)
    assert blurred.sum().item() == pytest.approx(1.0, abs=1e-5)
    assert blurred[88].abs().max() == 0


def test_blur_scales_with_the_picture_and_keeps_flat_ones() -> None:
    point = torch.zeros(1, 1, 112, 112)
    point[0, 0, 50, 50] = 1.0
    assert (gaussian_blur(point)[0, 0, 50] > 0).sum() == 13
    assert_close(gaussian_blur(torch.full((1, 3, 40, 40), 0.3)), torch.full((1, 3, 40, 40), 0.3))


def test_style_takes_means_and_deviations() -> None:
    x, style = 0.4 + 0.1 * pictures(seed=1), 0.5 + 0.05 * pictures(seed=2)
    styled = transfer_style(x, style)
    for mine, theirs in zip(
        torch.std_mean(styled, dim=(2, 3), correction=0),
        torch.std_mean(style, dim=(2, 3), correction=0),
        strict=True,
    ):
        assert_close(mine, theirs)
    flat = torch.full((1, 3, 8, 8), 0.2)
    assert_close(
        transfer_style(flat, style[:1, :, :8, :8]).mean(dim=(2, 3)), style[:1, :, :8, :8].mean(dim=(2, 3))
    )


def test_light_noise_is_as_strong_as_asked() -> None:
    x = torch.full((4, 3, 64, 64), 0.5)
    assert add_noise(x, draws(), deviation=0.05).std().item() == pytest.approx(0.05, rel=0.05)
    assert torch.equal(add_noise(x, draws(), deviation=0.0), x)
    jittered = jitter_colours(x, draws(), strength=0.2)[:, 0, 0, 0]
    assert ((jittered >= 0.4) & (jittered <= 0.6)).all()
    assert jittered.unique().numel() == 4
