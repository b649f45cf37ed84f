"""Cosines with the negative query: bins and density by hand, and who has no negative query."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.errors import UsageError
from triptych.studies.figures.negative_cosine import (
    cosine_histogram,
    draw_negative_cosines,
    negative_cosines,
)
from triptych.studies.figures.query_batch import known_queries


def test_four_cosines_by_hand() -> None:
    """Bins of 0.016 from -0.2: 0.0 is in bin 12, 0.05 and 0.051 in bin 15, 0.5 in bin 43."""
    found = cosine_histogram([0.0, 0.05, 0.051, 0.5])
    assert len(found.share) == 50
    assert {int(at): found.share[at] for at in np.flatnonzero(found.share)} == {12: 25.0, 15: 50.0, 43: 25.0}
    assert found.claimed == 75.0
    assert found.median == pytest.approx(0.0505)
    assert found.queries == 4


def test_the_density_by_hand() -> None:
    """Two cosines at a distance of 0.1: deviation 0.1 / sqrt 2, bandwidth that times 2^(-1/5)."""
    found = cosine_histogram([0.1, 0.2])
    width = 0.1 / 2**0.5 * 2**-0.2
    kernels = [
        np.exp(-0.5 * ((found.at - at) / width) ** 2) / (width * (2 * np.pi) ** 0.5) for at in (0.1, 0.2)
    ]
    np.testing.assert_allclose(found.density, 100 * 0.016 * np.mean(kernels, axis=0))
    assert len(cosine_histogram([0.3, 0.3]).density) == 0


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=40))
def test_nothing_falls_out_of_the_bins(cosines: list[float]) -> None:
    found = cosine_histogram(cosines)
    assert found.share.sum() == pytest.approx(100)
    np.testing.assert_allclose(np.diff(found.edges), 0.016)
    again = cosine_histogram(cosines[::-1])
    np.testing.assert_allclose(again.share, found.share)


@pytest.mark.parametrize("cosines", [[], [np.nan], [[0.1]]])
def test_what_is_no_list_of_cosines_is_refused(cosines) -> None:
    with pytest.raises(ValueError, match="finite cosines"):
        cosine_histogram(cosines)


def test_only_conesep_has_negative_queries(opened, bench) -> None:
    with pytest.raises(UsageError, match=r"trained with infonce(?s:.)*--method conesep"):
        negative_cosines(opened, known_queries(bench, "val"))


def test_a_panel_says_its_numbers() -> None:
    figure = draw_negative_cosines({"one": cosine_histogram([0.0, 0.05]), "two": cosine_histogram([0.9])})
    first, second = figure.axes
    assert first.get_title(loc="left") == "one: median 0.025, 100 % in [0, 0.1], 2 queries"
    assert second.get_title(loc="left") == "two: median 0.900, 0 % in [0, 0.1], 1 queries"
