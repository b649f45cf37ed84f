"""A noise curriculum: nested shares of one manifest."""

import pytest

from triptych.errors import UsageError
from triptych.noise import Corruption, NoiseManifest, lighter, rate_of_epoch


def manifest(wrong: int, of: int, asked: float) -> NoiseManifest:
    corruptions = tuple(Corruption(f"t{i}", "target", f"a{i}", f"b{i}") for i in range(wrong))
    return NoiseManifest("mix", 42, asked, of, "", corruptions)


def test_a_lower_rate_is_a_part_of_a_higher_one() -> None:
    full = manifest(50, 100, 0.5)
    two, four = lighter(full, 0.2), lighter(full, 0.4)
    assert (two.ratio_real, four.ratio_real) == (0.2, 0.4)
    assert two.noisy_ids < four.noisy_ids < full.noisy_ids
    assert lighter(full, 0.2) == two
    assert lighter(full, 0.0).corruptions == ()


def test_fixed_points_are_no_fault_of_the_user() -> None:
    assert lighter(manifest(49, 100, 0.5), 0.5).corruptions == manifest(49, 100, 0.5).corruptions
    with pytest.raises(UsageError, match="needs a manifest of that rate"):
        lighter(manifest(49, 100, 0.5), 0.8)


def test_each_rate_has_its_part_of_the_epochs() -> None:
    assert [rate_of_epoch((0.2, 0.5), epoch, 5) for epoch in range(5)] == [0.2, 0.2, 0.2, 0.5, 0.5]
    assert rate_of_epoch((0.2, 0.5), 7, 5) == 0.5
