"""Interventions on a picture other than the spectrum mix: INTENT's ablation A2, its table 5, light noise."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from triptych.objectives.precision import full_precision, same_precision

LUMINANCE = (0.299, 0.587, 0.114)
REFERENCE_SIZE = 224
"""Side in pixels at which the specification states its sizes; other pictures get the same shares."""


def grayscale(pixels: Tensor) -> Tensor:
    """Replace the three channels of ``[B, 3, H, W]`` by their luminance (INTENT table 3, A2)."""
    pixels = full_precision(pixels)
    weights = torch.tensor(LUMINANCE, dtype=pixels.dtype, device=pixels.device)[:, None, None]
    return (pixels * weights).sum(dim=1, keepdim=True).expand_as(pixels).contiguous()


def random_mask(
    pixels: Tensor, generator: torch.Generator, *, fill: Tensor, probability: float = 0.3, cells: int = 14
) -> Tensor:
    """Blank random cells of a grid (INTENT table 5, C1): 14 x 14 cells, 16 px each at 224 px.

    Args:
        pixels: ``[B, C, H, W]``.
        generator: CPU generator.
        fill: ``[C]`` what a blank cell holds: the tower's mean, which is 0 after its normalisation.
        probability: chance of each cell to be blank.
        cells: cells along each side.
    """
    pixels = full_precision(pixels)
    batch, _, height, width = pixels.shape
    blank = torch.rand(batch, cells, cells, generator=generator) < probability
    rows, columns = torch.arange(height) * cells // height, torch.arange(width) * cells // width
    blank = blank[:, rows][:, :, columns].to(pixels.device)
    return torch.where(blank[:, None], fill.to(pixels)[:, None, None], pixels)


def shuffle_patches(pixels: Tensor, generator: torch.Generator, *, grid: int = 4) -> Tensor:
    """Permute the patches of each picture (INTENT table 5, C2): 4 x 4 patches, 56 px each at 224 px.

    Pixels beyond the last whole patch stay where they are.

    Raises:
        ValueError: a side has fewer than ``grid`` pixels.
    """
    batch, channels, height, width = pixels.shape
    high, wide = height // grid, width // grid
    if not high or not wide:
        raise ValueError(f"a picture of {height} x {width} pixels has no {grid} x {grid} patches")
    order = torch.rand(batch, grid * grid, generator=generator).argsort(dim=1).to(pixels.device)
    whole = pixels[:, :, : high * grid, : wide * grid]
    patches = whole.reshape(batch, channels, grid, high, grid, wide).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    shuffled = patches[torch.arange(batch, device=pixels.device)[:, None], order]
    shuffled = shuffled.reshape(batch, grid, grid, channels, high, wide).permute(0, 3, 1, 4, 2, 5)
    result = pixels.clone()
    result[:, :, : high * grid, : wide * grid] = shuffled.reshape(whole.shape)
    return result


def gaussian_blur(pixels: Tensor, *, kernel: int = 23, sigma: float = 5.0) -> Tensor:
    """Blur each picture (INTENT table 5, C3).

    Args:
        pixels: ``[B, C, H, W]``; edges are reflected.
        kernel: width of the kernel at 224 px, scaled with the shorter side and made odd.
        sigma: standard deviation in pixels at 224 px, scaled likewise.
    """
    pixels = full_precision(pixels)
    scale = min(pixels.shape[2:]) / REFERENCE_SIZE
    radius = round((kernel // 2) * scale)
    offsets = torch.arange(-radius, radius + 1, dtype=pixels.dtype, device=pixels.device)
    weights = torch.softmax(-0.5 * (offsets / (sigma * scale)).square(), dim=0)
    flat = pixels.flatten(0, 1)[:, None]
    flat = functional.conv2d(functional.pad(flat, (radius,) * 4, mode="reflect"), weights.view(1, 1, -1, 1))
    return functional.conv2d(flat, weights.view(1, 1, 1, -1)).view_as(pixels)


def transfer_style(pixels: Tensor, style: Tensor, *, eps: float = 1e-6) -> Tensor:
    """Give each picture the channel means and deviations of another (INTENT table 5, C4: AdaIN on pixels).

    Args:
        pixels: ``[B, C, H, W]`` in [0, 1].
        style: ``[B, C, H, W]`` in [0, 1].
        eps: least deviation, for a flat picture.
    """
    pixels, style = same_precision(pixels, style)
    deviation, mean = torch.std_mean(pixels, dim=(2, 3), correction=0, keepdim=True)
    wanted, centre = torch.std_mean(style, dim=(2, 3), correction=0, keepdim=True)
    styled: Tensor = (pixels - mean) / deviation.clamp(min=eps) * wanted + centre
    return styled.clamp(0, 1)


def jitter_colours(pixels: Tensor, generator: torch.Generator, *, strength: float) -> Tensor:
    """Scale brightness and contrast of each picture by factors within ``1 ± strength``, clamped to [0, 1]."""
    pixels = full_precision(pixels)
    factors = 1 + strength * (2 * torch.rand(2, len(pixels), 1, 1, 1, generator=generator) - 1)
    brightness, contrast = factors.to(pixels)
    mean = pixels.mean(dim=(1, 2, 3), keepdim=True)
    jittered: Tensor = brightness * (mean + contrast * (pixels - mean))
    return jittered.clamp(0, 1)


def add_noise(pixels: Tensor, generator: torch.Generator, *, deviation: float) -> Tensor:
    """Add Gaussian noise to each pixel, clamped to [0, 1]."""
    pixels = full_precision(pixels)
    noise = torch.randn(pixels.shape, generator=generator).to(pixels)
    return (pixels + deviation * noise).clamp(0, 1)
