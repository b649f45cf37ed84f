"""What the objectives cost at B = 128, Q = 32, D = 256, against plain re-implementations in the same run.

    python benchmarks/objectives.py [--threads 2] [--repeats 5]

Medians in milliseconds after one warm-up; forward and backward where there is a gradient.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn import functional

from triptych.objectives import (
    anchored_mutual_knowledge,
    blocked_paths,
    cka_distance,
    entropic_transport,
    info_nce,
    loyalty,
    mean,
    mix_amplitude,
    query_oriented,
    query_oriented_released,
    ratio_window,
    robust_contrastive,
    scaled_cost,
    similarity,
    soft_discriminative,
    targeted_unlearning,
)

BATCH, QUERIES, DIM, SIZE = 128, 32, 256, 224


def medians_ms(steps: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """Time the steps in turn, so that a busy machine slows all of them alike."""
    times: list[list[float]] = [[] for _ in steps]
    for round_ in range(repeats + 1):
        for step, taken in zip(steps, times, strict=True):
            start = time.perf_counter()
            step()
            if round_:  # the first is a warm-up
                taken.append(1000 * (time.perf_counter() - start))
    return [statistics.median(taken) for taken in times]


def with_gradient(loss: Callable[..., Tensor], *inputs: Tensor) -> Callable[[], object]:
    leaves = [value.clone().requires_grad_() for value in inputs]
    return lambda: torch.autograd.grad(mean(loss(*leaves)), leaves)


def centring_products(first: Tensor, second: Tensor) -> Tensor:
    """CKA as printed: J K J and J L J as batched products."""
    queries = first.shape[1]
    centring = (torch.eye(queries) - torch.full((queries, queries), 1 / queries)).expand(len(first), -1, -1)
    gram, other = (torch.bmm(torch.bmm(centring, torch.bmm(x, x.mT)), centring) for x in (first, second))
    norms = gram.flatten(1).norm(dim=1) * other.flatten(1).norm(dim=1)
    distance: Tensor = 1 - (gram * other).sum(dim=(1, 2)) / (norms + 1e-8)
    return distance


def mix_both_in_a_loop(
    first: Tensor, second: Tensor, share: Tensor, window: tuple[int, int]
) -> list[tuple[Tensor, Tensor]]:
    """The mix as released: full shifted spectra, one sample at a time, both pictures mixed."""
    mixed = []
    height, width = first.shape[2:]
    top, left = height // 2 - window[0] // 2, width // 2 - window[1] // 2
    inside = (..., slice(top, top + window[0]), slice(left, left + window[1]))
    for one, two, weight in zip(first, second, share, strict=True):
        spectra = [torch.fft.fft2(one), torch.fft.fft2(two)]
        amplitudes = [torch.fft.fftshift(spectrum.abs(), dim=(1, 2)) for spectrum in spectra]
        plain = [amplitude.clone() for amplitude in amplitudes]
        amplitudes[0][inside] = weight * plain[1][inside] + (1 - weight) * plain[0][inside]
        amplitudes[1][inside] = weight * plain[0][inside] + (1 - weight) * plain[1][inside]
        pictures = [
            torch.fft.ifft2(
                torch.fft.ifftshift(amplitude, dim=(1, 2)) * torch.exp(1j * spectrum.angle())
            ).real
            for amplitude, spectrum in zip(amplitudes, spectra, strict=True)
        ]
        mixed.append((pictures[0], pictures[1]))
    return mixed


def histograms_in_a_loop(composed: Tensor, targets: Tensor, anchor: int) -> Tensor:
    """Mutual knowledge as released: four NumPy histograms for each sample, the anchor's own every time."""

    def knowledge(first: Tensor, second: Tensor) -> float:
        counts, _, _ = np.histogram2d(first.flatten().numpy(), second.flatten().numpy(), bins=10)
        joint = counts / counts.sum()
        apart = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
        return float((joint * np.log((joint + 1e-10) / (apart + 1e-10))).sum())

    rows = []
    for query, target in zip(composed, targets, strict=True):
        knowledge(composed[anchor], targets[anchor])
        pairs = ((query, target), (composed[anchor], target), (query, targets[anchor]))
        rows.append([knowledge(*pair) for pair in pairs])
    return torch.tensor(rows)


def sinkhorn_on_modified_costs(cost: Tensor, blocked: Tensor, eps: float = 0.03) -> Tensor:
    """Entropic transport as commonly written: the modified cost matrix anew for each of its log-sum-exps."""
    rows, columns = (torch.full((size,), 1 / size).log() for size in cost.shape)
    u, v = torch.zeros_like(rows), torch.zeros_like(columns)

    def log_plan() -> Tensor:
        return torch.where(blocked, torch.tensor(-1e6), (-cost + u[:, None] + v[None]) / eps)

    def log_sums(logs: Tensor, dim: int) -> Tensor:
        top = logs.max(dim=dim, keepdim=True).values
        return (top + ((logs - top).exp().sum(dim=dim, keepdim=True) + 1e-10).log()).squeeze(dim)

    for _ in range(100):
        before = u
        u = eps * (rows - log_sums(log_plan(), 1)) + u
        v = eps * (columns - log_sums(log_plan(), 0)) + v
        if (u - before).abs().sum().item() < 1e-4:
            break
    return log_plan().exp()


def all_products(queries: Tensor, negatives: Tensor) -> Tensor:
    """The released query-oriented loss with its B x B x D broadcast."""
    products = queries[:, None, None] * negatives
    outside = (products + 0.002).relu() + (-0.007 - products).relu()
    return outside.mean(dim=(1, 2, 3)) / 0.07


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    draws = torch.Generator().manual_seed(0)

    def unit(*shape: int) -> Tensor:
        return functional.normalize(torch.randn(*shape, generator=draws), dim=-1)

    queries, targets = unit(BATCH, DIM), unit(BATCH, QUERIES, DIM)
    tokens, altered = unit(BATCH, QUERIES, DIM), unit(BATCH, QUERIES, DIM)
    first, second = torch.rand(2, BATCH, 3, SIZE, SIZE, generator=draws)
    share, window = torch.rand(BATCH, generator=draws), ratio_window(SIZE, SIZE, 0.5)
    s = similarity(queries, targets)

    ours = mix_amplitude(first[:2], second[:2], share[:2], window=window)
    theirs = mix_both_in_a_loop(first[:2], second[:2], share[:2], window)
    torch.testing.assert_close(ours, torch.stack([one for one, _ in theirs]), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        cka_distance(tokens, altered), centring_products(tokens, altered), rtol=1e-4, atol=1e-5
    )

    torch.testing.assert_close(
        anchored_mutual_knowledge(tokens, targets, 3),
        histograms_in_a_loop(tokens, targets, 3),
        rtol=1e-3,
        atol=1e-5,
    )

    negatives, noisy = unit(BATCH, DIM), torch.arange(BATCH) % 2 == 0
    cost, blocked = scaled_cost(torch.cat([s, queries @ negatives.T], dim=1)), blocked_paths(noisy)
    torch.testing.assert_close(
        entropic_transport(cost, blocked=blocked),
        sinkhorn_on_modified_costs(cost, blocked),
        rtol=1e-3,
        atol=1e-7,
    )
    torch.testing.assert_close(
        query_oriented_released(queries, negatives), all_products(queries, negatives), rtol=1e-4, atol=1e-6
    )

    mixes: list[Callable[[], object]] = [
        lambda: mix_amplitude(first, second, share, window=window),
        lambda: mix_both_in_a_loop(first, second, share, window),
    ]
    compared = {
        ("CKA", "batched centring products"): [
            with_gradient(loss, tokens, altered) for loss in (cka_distance, centring_products)
        ],
        (f"spectrum mix, {SIZE} px", "both pictures, sample by sample"): mixes,
        ("mutual knowledge", "NumPy histograms, sample by sample"): [
            lambda: anchored_mutual_knowledge(tokens, targets, 3),
            lambda: histograms_in_a_loop(tokens, targets, 3),
        ],
        (f"entropic transport, {BATCH} x {2 * BATCH}", "modified costs anew each pass"): [
            lambda: entropic_transport(cost, blocked=blocked),
            lambda: sinkhorn_on_modified_costs(cost, blocked),
        ],
        ("query-oriented, released form", "B x B x D products"): [
            with_gradient(loss, queries, negatives) for loss in (query_oriented_released, all_products)
        ],
        ("query-oriented", ""): [with_gradient(query_oriented, queries, negatives)],
        ("targeted unlearning, given s", ""): [
            with_gradient(lambda *x: targeted_unlearning(*x, noisy), s, queries @ negatives.T)
        ],
        ("similarity", ""): [with_gradient(similarity, queries, targets)],
        ("robust contrastive, given s", ""): [with_gradient(robust_contrastive, s)],
        ("InfoNCE, given s", ""): [with_gradient(info_nce, s)],
        ("soft discriminative, given s", ""): [with_gradient(lambda x: soft_discriminative(loyalty(x)), s)],
    }
    title = f"B = {BATCH}, Q = {QUERIES}, D = {DIM}, {options.threads} threads, median of {options.repeats}"
    table = Table(title=title)
    for heading in ("objective", "ms", "against", "its ms", "times faster"):
        table.add_column(heading, justify="left" if heading in ("objective", "against") else "right")
    for (name, against), steps in compared.items():
        own, *others = medians_ms(steps, options.repeats)
        ratios = [f"{others[0]:.1f}", f"{others[0] / own:.2f}"] if others else ["", ""]
        table.add_row(name, f"{own:.1f}", against, *ratios)
    Console().print(table)


if __name__ == "__main__":
    main()
