"""The amplitude mix: against the printed formula, its limits, and its window."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from triptych.objectives import mix_amplitude, radius_window, ratio_window

sizes = st.integers(1, 17)


def pictures(seed: int, height: int, width: int, batch: int = 2) -> Tensor:
    return torch.rand(
        batch, 3, height, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def plain_mix(reference: Tensor, irrelevant: Tensor, share: Tensor, window: tuple[int, int]) -> Tensor:
    """The formula as it stands: full spectra, shifted, one picture at a time."""
    mixed = []
    for own, other, weight in zip(reference, irrelevant, share, strict=True):
        spectrum = torch.fft.fft2(own)
        amplitude = torch.fft.fftshift(spectrum.abs(), dim=(1, 2))
        theirs = torch.fft.fftshift(torch.fft.fft2(other).abs(), dim=(1, 2))
        height, width = own.shape[1:]
        rows = slice(height // 2 - window[0] // 2, height // 2 - window[0] // 2 + window[0])
        columns = slice(width // 2 - window[1] // 2, width // 2 - window[1] // 2 + window[1])
        amplitude[:, rows, columns] = (
            weight * theirs[:, rows, columns] + (1 - weight) * amplitude[:, rows, columns]
        )
        amplitude = torch.fft.ifftshift(amplitude, dim=(1, 2))
        mixed.append(torch.fft.ifft2(amplitude * torch.exp(1j * spectrum.angle())).real)
    return torch.stack(mixed)


@given(
    st.integers(0, 10_000), sizes, sizes, st.floats(0, 1), st.lists(st.floats(0, 1), min_size=2, max_size=2)
)
def test_equals_the_formula_at_any_size(
    seed: int, height: int, width: int, ratio: float, shares: list[float]
) -> None:
    own, other = pictures(seed, height, width), pictures(seed + 1, height, width)
    share, window = torch.tensor(shares, dtype=torch.float64), ratio_window(height, width, ratio)
    assert_close(mix_amplitude(own, other, share, window=window), plain_mix(own, other, share, window))


def test_constant_pictures_mix_their_brightness() -> None:
    """Only the zero frequency is there: 0.25 of 0.8 and 0.75 of 0.4 is 0.5."""
    own, other = torch.full((1, 3, 8, 8), 0.4), torch.full((1, 3, 8, 8), 0.8)
    assert_close(
        mix_amplitude(own, other, torch.tensor([0.25]), window=(2, 2)), torch.full((1, 3, 8, 8), 0.5)
    )


def test_limits_of_share_and_window() -> None:
    own, other = pictures(0, 16, 12), pictures(1, 16, 12)
    nothing, everything = torch.zeros(2), torch.ones(2)
    assert torch.equal(mix_amplitude(own, other, nothing, window=(16, 12)), own)
    assert_close(mix_amplitude(own, other, everything, window=(0, 0)), own)
    swapped = mix_amplitude(own, other, everything, window=(16, 12))
    assert_close(torch.fft.fft2(swapped).abs(), torch.fft.fft2(other).abs())
    assert_close(torch.fft.fft2(swapped).angle().cos(), torch.fft.fft2(own).angle().cos())


def test_each_picture_has_its_own_share() -> None:
    own, other = pictures(0, 9, 9), pictures(1, 9, 9)
    mixed = mix_amplitude(own, other, torch.tensor([0.0, 0.7]), window=(4, 4))
    assert_close(mixed[0], own[0])
    assert (mixed[1] - own[1]).abs().max() > 0.01


def test_black_and_half_precision_pictures_stay_finite() -> None:
    black = torch.zeros(2, 3, 10, 10)
    assert mix_amplitude(black, pictures(0, 10, 10).float(), torch.ones(2), window=(10, 10)).isfinite().all()
    half = pictures(0, 10, 10).half()
    mixed = mix_amplitude(half, half, torch.ones(2), window=(10, 10))
    assert mixed.dtype == torch.float32
    assert_close(mixed, half.float())


def test_windows_by_hand() -> None:
    assert ratio_window(32, 32, 0.5) == (22, 22)
    assert ratio_window(31, 45, 0.3) == (16, 24)
    assert ratio_window(224, 224, 1.0) == (224, 224)
    assert radius_window(224, 224) == (64, 64)
    assert radius_window(160, 224) == (44, 64)


def test_wrong_calls_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must be in \[0, 1\], got 1.5"):
        ratio_window(8, 8, 1.5)
    own = pictures(0, 8, 8)
    with pytest.raises(ValueError, match=r"expected \[B, C, H, W\]"):
        mix_amplitude(own, own[:, :, :4], torch.ones(2), window=(2, 2))
    with pytest.raises(ValueError, match=r"expected \[B, C, H, W\]"):
        mix_amplitude(own, own, torch.ones(3), window=(2, 2))
