"""Amplitude spectrum mix: another picture's colours and textures on this picture's shapes (INTENT)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from triptych.objectives.precision import same_precision

NOTHING = 1e-30
"""An amplitude below this has no phase; it counts as 0."""


def ratio_window(height: int, width: int, ratio: float) -> tuple[int, int]:
    r"""Size of the window that covers ``ratio`` of the spectrum, :math:`\lfloor h\sqrt r\rfloor` high.

    Raises:
        ValueError: ``ratio`` is not in [0, 1].
    """
    if not 0 <= ratio <= 1:
        raise ValueError(f"window ratio must be in [0, 1], got {ratio}")
    return int(height * math.sqrt(ratio)), int(width * math.sqrt(ratio))


def radius_window(height: int, width: int) -> tuple[int, int]:
    """Size of a central window of radius ``size // 7``: 64 x 64 at 224 px, as the INTENT article advises."""
    return 2 * (height // 7), 2 * (width // 7)


def mix_amplitude(reference: Tensor, irrelevant: Tensor, share: Tensor, *, window: tuple[int, int]) -> Tensor:
    r"""Mix the low-frequency amplitudes of another picture into the reference; keep the reference's phases.

    .. math::
        \hat x = \mathrm{Re}\,\mathcal F^{-1}\bigl(\hat A \circ e^{i \angle \mathcal F(x_r)}\bigr), \qquad
        \hat A = \lambda A_d + (1 - \lambda) A_r \text{ inside the central window, } A_r \text{ outside}

    The spectrum is meant with its zero frequency in the middle: the window starts at
    ``size // 2 - window // 2``. A window of even size is not symmetric, and the real part then gives each of
    its unpaired frequencies half of the mix. Only what the window changes is computed, in the half spectrum
    of real pictures, and added to the reference.

    Args:
        reference: ``[B, C, H, W]`` pictures whose shapes stay; any range, computed in float32 at least.
        irrelevant: ``[B, C, H, W]`` pictures whose amplitudes come in.
        share: ``[B]`` λ in [0, 1], one for all channels of a picture.
        window: height and width of the central window, in frequencies.

    Returns:
        ``[B, C, H, W]``, not clamped; exactly ``reference`` where λ = 0.

    Raises:
        ValueError: the shapes do not fit.

    Source: INTENT eq. 1; specification, section 10. The reference implementation mixes both pictures and
    throws one away; this mixes the one that is needed.
    """
    if reference.ndim != 4 or reference.shape != irrelevant.shape or share.shape != reference.shape[:1]:
        shapes = f"{list(reference.shape)}, {list(irrelevant.shape)} and {list(share.shape)}"
        raise ValueError(f"expected [B, C, H, W] twice and [B], got {shapes}")
    height, width = reference.shape[2:]
    reference, irrelevant = same_precision(reference, irrelevant)
    weight = _half_window(height, width, window).to(reference) * share.to(reference)[:, None, None, None]
    columns = weight.shape[3]

    spectrum, other = (
        torch.fft.fft(torch.fft.rfft(x)[..., :columns], dim=2) for x in (reference, irrelevant)
    )
    amplitude = spectrum.abs()
    change = weight * (other.abs() - amplitude)
    turned = torch.where(amplitude > NOTHING, spectrum * (change / amplitude), change.to(spectrum.dtype))
    result: Tensor = reference + torch.fft.irfft(torch.fft.ifft(turned, dim=2), n=width)
    return result


def _half_window(height: int, width: int, window: tuple[int, int]) -> Tensor:
    """Weights in the layout of ``rfft2``, the window's columns only: 1 in it, 0 outside, ½ where unpaired."""
    inside = torch.zeros(height, width)
    top, left = height // 2 - window[0] // 2, width // 2 - window[1] // 2
    inside[top : top + window[0], left : left + window[1]] = 1.0
    inside = torch.fft.ifftshift(inside)
    mirrored = inside.flip(0, 1).roll(
        (1, 1), dims=(0, 1)
    )  # the same window seen from the conjugate frequencies
    both: Tensor = (inside + mirrored) / 2
    return both[:, : window[1] // 2 + 1]
