"""From evidence to chances: a small classifier that learns from probes what a wrong triplet looks like.

The audited triplets are a mixture of right and wrong ones, and nobody says which. Probes are wrong for certain, and of
a known kind. So the classifier tells kinds of probes from audited triplets, the latter counted by their chance to be
right, which is then estimated anew, a few times. Nothing here needs a model; arrays in, arrays out.

Source: after learning from positive and unlabelled examples (Elkan and Noto 2008), the best-bin estimate of a mixture's
share (Garg et al. 2021) and adjusting a classifier to new shares (Saerens et al. 2002).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from triptych.audit.probes import CLASSES, CORNERS, REACHES
from triptych.randomness import generator

Array = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

STEPS, PARTS, STRENGTH = 6, 5, 0.03
TOLD = 0.65
"""A kind is looked for where its probes are told from the triplets so well, as AUROC. One that is as good as right
would otherwise take a share of the right ones."""
TAILS = np.linspace(0.2, 0.8, 13)
"""Masses of the probes beyond which a tail begins."""
MOST = 0.95
_SMALLEST = 1e-6


@dataclass(frozen=True)
class Chances:
    """What each of N triplets is by the evidence.

    Attributes:
        wrong: ``[N]`` chance to be wrong.
        corners: ``[N, 3]`` chance that the reference, the text or the target is; they sum to ``wrong``.
        shares: estimated share of the triplets of each kind in ``CLASSES``.
    """

    wrong: Array
    corners: Array
    shares: dict[str, float]

    @property
    def rate(self) -> float:
        """The estimated share of wrong triplets."""
        return float(sum(self.shares.values()))


def classify(
    figures: Array, probe_figures: Array, probe_kind: IntArray, probe_base: IntArray, *, seed: int
) -> Chances:
    """Estimate for each triplet the chance that it is wrong, and in which corner.

    Each triplet is judged by classifiers that were fitted on other triplets.

    Args:
        figures: ``[N, F]`` evidence of the triplets; NaN where not measured.
        probe_figures: ``[M, F]`` the same of the probes.
        probe_kind: ``[M]`` what is wrong with each probe, as an index of ``CLASSES``.
        probe_base: ``[M]`` the triplet that each probe was made from; a probe of a wrong one counts less.
        seed: of the division into parts.

    Raises:
        ValueError: there are no probes, or shapes differ.
    """
    if not len(probe_figures) or figures.shape[1] != probe_figures.shape[1]:
        raise ValueError(f"expected probes with {figures.shape[1]} figures, got {probe_figures.shape}")
    scaled = _Scaling(figures)
    data, probes = scaled(figures), scaled(probe_figures)
    part = generator(seed, "audit parts").permutation(len(data)) % PARTS
    every = np.ones(len(data))
    ratios, probe_ratios = _ratios(data, probes, probe_kind, every, every[probe_base], part, part[probe_base])
    told = _told(ratios, probe_ratios, probe_kind)
    kept = np.isin(probe_kind, told)
    probes, kind, base = probes[kept], np.searchsorted(told, probe_kind[kept]), probe_base[kept]
    # nothing is known of shares yet, so a triplet is believed by its place
    place = np.argsort(np.argsort(ratios[:, told].mean(axis=1), kind="stable"), kind="stable")
    right, shares = np.clip(2 - 2 * place / len(data), 0, 1), np.full(len(told), 0.5 / len(told))
    for _ in range(STEPS):
        trust = right[base] + _SMALLEST
        ratios, probe_ratios = _ratios(data, probes, kind, right, trust, part, part[base])
        shares = _shares(ratios, shares) + _SMALLEST
        right = _posterior(ratios, shares)[:, 0]
    mixture = shares / shares.sum()
    rate = min(_tail(ratios, probe_ratios, kind, right[base] + _SMALLEST, mixture), MOST)
    posterior = _at_rate(_posterior(ratios, mixture * rate), rate)
    chances = np.zeros((len(data), len(CLASSES)))
    chances[:, told] = posterior[:, 1:]
    corners = chances.reshape(len(data), len(CORNERS), len(REACHES)).sum(axis=2)
    found = dict.fromkeys(CLASSES, 0.0) | dict(
        zip((CLASSES[number] for number in told), (mixture * rate).tolist(), strict=True)
    )
    return Chances(1 - posterior[:, 0], corners, found)


class _Scaling:
    """Puts figures on one scale: NaN to the median, then centred, scaled by the spread and cut off far out."""

    def __init__(self, figures: Array) -> None:
        with np.errstate(all="ignore"):
            usable = np.isfinite(figures).any(axis=0)
            safe = np.where(usable, figures, 0.0)
            self.middle = np.nanmedian(safe, axis=0)
            spread = np.nanpercentile(safe, 90, axis=0) - np.nanpercentile(safe, 10, axis=0)
        self.spread = np.where(spread > 0, spread, 1.0)

    def __call__(self, figures: Array) -> Array:
        filled = np.where(np.isfinite(figures), figures, self.middle)
        scaled: Array = np.clip((filled - self.middle) / self.spread, -4, 4)
        return scaled


def _ratios(
    data: Array,
    probes: Array,
    kind: IntArray,
    right: Array,
    trust: Array,
    part: IntArray,
    probe_part: IntArray,
) -> tuple[Array, Array]:
    """Estimate, for each kind, how much more likely its probes show a triplet's evidence than right triplets do.

    Returns:
        ``[N, K]`` for the triplets and ``[M, K]`` for the probes, each by a classifier that was fitted without it.
    """
    from sklearn.linear_model import LogisticRegression

    kinds = int(kind.max()) + 1
    labels = np.concatenate([np.zeros(len(data), dtype=np.int64), kind + 1])
    every, weights = np.concatenate([data, probes]), np.concatenate([right, trust]) + _SMALLEST
    every = np.concatenate([every, every**2], axis=1)
    parts = np.concatenate([part, probe_part])
    logs = np.zeros((len(every), kinds))
    for number in range(PARTS):
        fitted, judged = parts != number, parts == number
        if not judged.any():
            continue
        mass = np.bincount(labels[fitted], weights[fitted], minlength=kinds + 1)
        model = LogisticRegression(C=STRENGTH, max_iter=200)
        model.fit(every[fitted], labels[fitted], sample_weight=weights[fitted])
        chances = np.full((int(judged.sum()), kinds + 1), _SMALLEST)
        chances[:, model.classes_] = model.predict_proba(every[judged])
        shares = (mass + 1e-3) / (mass + 1e-3).sum()
        logs[judged] = np.log(chances[:, 1:] / shares[1:]) - np.log(chances[:, :1] / shares[:1])
    ratios = np.exp(np.clip(logs, -12, 12))
    return ratios[: len(data)], ratios[len(data) :]


def _tail(ratios: Array, probe_ratios: Array, kind: IntArray, trust: Array, mixture: Array) -> float:
    """Estimate the share of wrong triplets from the tail, where hardly any right one is.

    There the triplets beyond a cut are the share of wrong ones, times the probes' mass beyond it. The smallest such
    estimate over many cuts, each with its error, is an upper bound that is close where the tail is pure.

    Args:
        ratios: ``[N, K]`` of the triplets.
        probe_ratios: ``[M, K]`` of the probes.
        kind: ``[M]`` of the probes.
        trust: ``[M]`` how far each probe counts.
        mixture: ``[K]`` how the wrong ones divide into kinds, sums to 1.
    """
    score, known = ratios @ mixture, probe_ratios @ mixture
    mass = np.maximum(np.bincount(kind, trust, minlength=len(mixture)), _SMALLEST)
    weight = trust / mass[kind] * mixture[kind]
    if weight.sum() <= 0:
        return 0.0
    weight /= weight.sum()
    size = 1 / float((weight**2).sum())
    order = np.argsort(-known, kind="stable")
    reached = np.cumsum(weight[order])
    cuts = known[order][np.minimum(np.searchsorted(reached, TAILS), len(order) - 1)]
    there = np.array([(score >= cut).mean() for cut in cuts])
    beyond = np.array([weight[known >= cut].sum() for cut in cuts])
    error = np.sqrt(there * (1 - there) / len(score)) / beyond + there / beyond * np.sqrt(
        (1 - beyond) / (beyond * size)
    )
    return float((there / beyond + error).min())


def _told(ratios: Array, probe_ratios: Array, kind: IntArray) -> IntArray:
    """Name the kinds whose probes the classifier tells from the triplets, or the one that it tells best."""
    from sklearn.metrics import roc_auc_score

    areas = np.zeros(ratios.shape[1])
    for number in np.unique(kind):
        known = probe_ratios[kind == number, number]
        labels = np.concatenate([np.zeros(len(ratios)), np.ones(len(known))])
        areas[number] = roc_auc_score(labels, np.concatenate([ratios[:, number], known]))
    told: IntArray = np.flatnonzero(areas >= min(TOLD, areas.max()))
    return told


def _at_rate(posterior: Array, rate: float, steps: int = 60) -> Array:
    """Change the odds of being wrong by one factor, so that the mean chance to be wrong is the rate."""
    low, high = -20.0, 20.0
    shifted = posterior
    for _ in range(steps):
        middle = (low + high) / 2
        shifted = posterior * np.array([1.0, *np.full(posterior.shape[1] - 1, np.exp(middle))])
        shifted = shifted / shifted.sum(axis=1, keepdims=True)
        low, high = (middle, high) if 1 - shifted[:, 0].mean() < rate else (low, middle)
    return shifted


def _shares(ratios: Array, shares: Array, steps: int = 100) -> Array:
    """Find the shares of the kinds that make the evidence most likely, by expectation and maximisation."""
    for _ in range(steps):
        shares = _posterior(ratios, shares)[:, 1:].mean(axis=0)
    return shares


def _posterior(ratios: Array, shares: Array) -> Array:
    """Give the chances of being right and of each kind, ``[N, 1 + K]``."""
    joint = np.concatenate(
        [np.full((len(ratios), 1), max(1 - float(shares.sum()), _SMALLEST)), ratios * shares], axis=1
    )
    return np.asarray(joint / joint.sum(axis=1, keepdims=True))
