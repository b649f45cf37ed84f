"""The classifier on evidence that was made up, so that the truth is known."""

from typing import Any

import numpy as np
import pytest

from triptych.audit.classify import classify
from triptych.audit.probes import CLASSES, CORNERS, REACHES

SHIFTS = {"reference": (0, 1), "text": (2, 3), "target": (4, 5)}


def evidence(corner: str | None, count: int, random: np.random.Generator, near: bool = False) -> np.ndarray:
    """Six figures of noise; a wrong corner lowers the two that are its own, less where it is near."""
    figures = random.normal(size=(count, 6))
    if corner is not None:
        figures[:, SHIFTS[corner]] -= 1.5 if near else 3.0
    return figures


def made_up(rates: dict[str, float], count: int = 2000, seed: int = 0) -> tuple[Any, ...]:
    random = np.random.default_rng(seed)
    parts, truth = [], []
    for corner, rate in rates.items():
        parts.append(evidence(corner, round(rate * count), random))
        truth += [corner] * len(parts[-1])
    parts.append(evidence(None, count - len(truth), random))
    truth += [""] * len(parts[-1])
    order = random.permutation(count)
    data, named = np.concatenate(parts)[order], np.array(truth)[order]
    kind = np.arange(900) % len(CLASSES)
    base = random.integers(count, size=900)
    probes = np.concatenate(
        [
            evidence(CORNERS[k // len(REACHES)], 1, random, near=bool(k % len(REACHES))) + 0.0 * b
            for k, b in zip(kind, base, strict=True)
        ]
    )
    return data, probes, kind, base, named


@pytest.mark.parametrize("rate", [0.02, 0.05, 0.1])
def test_wrong_triplets_their_corner_and_their_share_are_found(rate: float) -> None:
    data, probes, kind, base, truth = made_up(dict.fromkeys(CORNERS, rate))
    found = classify(data, probes, kind, base, seed=0)
    wrong = truth != ""
    order = np.argsort(-found.wrong)
    assert wrong[order[: int(wrong.sum() / 2)]].mean() > 0.97
    hits = wrong & (found.wrong > 0.5)
    assert hits.sum() / wrong.sum() > 0.6
    assert wrong[found.wrong > 0.5].mean() > 0.9
    named = np.array(CORNERS)[found.corners[hits].argmax(axis=1)]
    assert (named == truth[hits]).mean() > 0.9
    assert found.wrong.mean() == pytest.approx(3 * rate, abs=0.05)
    np.testing.assert_allclose(found.corners.sum(axis=1), found.wrong, atol=1e-9)


def test_one_kind_of_noise_is_named_as_such() -> None:
    data, probes, kind, base, _ = made_up({"text": 0.3})
    found = classify(data, probes, kind, base, seed=0)
    by_corner = found.corners.mean(axis=0)
    assert by_corner[CORNERS.index("text")] > 5 * by_corner[CORNERS.index("reference")]
    assert by_corner[CORNERS.index("text")] > 5 * by_corner[CORNERS.index("target")]


def test_clean_data_is_left_alone() -> None:
    data, probes, kind, base, _ = made_up({})
    found = classify(data, probes, kind, base, seed=0)
    assert (found.wrong > 0.5).mean() < 0.02
    assert found.wrong.mean() < 0.12


def test_the_order_of_triplets_and_scale_of_figures_do_not_matter_much() -> None:
    data, probes, kind, base, _ = made_up(dict.fromkeys(CORNERS, 0.1), count=1200)
    plain = classify(data, probes, kind, base, seed=0).wrong
    scaled = classify(7 * data + 3, 7 * probes + 3, kind, base, seed=0).wrong
    np.testing.assert_allclose(plain, scaled, atol=1e-6)


def test_missing_and_constant_figures_are_borne() -> None:
    data, probes, kind, base, truth = made_up(dict.fromkeys(CORNERS, 0.1), count=600)
    data[::7, 0], probes[::5, 3] = np.nan, np.nan
    data, probes = (
        np.concatenate([x, np.full((len(x), 1), np.nan), np.ones((len(x), 1))], axis=1)
        for x in (data, probes)
    )
    found = classify(data, probes, kind, base, seed=0)
    assert np.isfinite(found.wrong).all()
    assert found.wrong[truth != ""].mean() > 2 * found.wrong[truth == ""].mean()


def test_identical_triplets_get_one_opinion() -> None:
    found = classify(
        np.zeros((50, 4)), np.zeros((60, 4)), np.arange(60) % len(CLASSES), np.arange(60) % 50, seed=0
    )
    assert np.isfinite(found.wrong).all()
    assert ((found.wrong >= 0) & (found.wrong <= 1)).all()


def test_without_probes_there_is_no_classifier() -> None:
    with pytest.raises(ValueError, match="expected probes"):
        classify(np.zeros((5, 2)), np.zeros((0, 2)), np.zeros(0, int), np.zeros(0, int), seed=0)
