"""How pure the set of trusted triplets is, and how much of what is right it holds (ConeSep, figure 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from triptych.errors import UsageError
from triptych.methods.registry import configure
from triptych.noise import lighter, rate_of_epoch
from triptych.studies.figures.canvas import BLUE, GREY, ORANGE, caption, new_figure, style, wrapped
from triptych.studies.figures.opened_run import noise_of
from triptych.training.cleanliness import read_cleanliness
from triptych.training.config import RunConfig
from triptych.training.loader import epoch_order
from triptych.training.run import Run
from triptych.triplets import read_benchmark


@dataclass(frozen=True)
class TrustedSet:
    """The triplets that a run calls clean, epoch by epoch; percent, NaN where a share is of nothing.

    Attributes:
        rule: what makes a triplet trusted, in words.
        epochs: counted from 1.
        purity: share of the trusted triplets that are truly clean.
        recall: share of the truly clean triplets that are trusted.
        trusted: share of all scored triplets that are trusted.
        clean: share of all scored triplets that are truly clean: the purity of trusting all.
        scored: how many triplets the epoch scored.
    """

    rule: str
    epochs: tuple[int, ...]
    purity: tuple[float, ...]
    recall: tuple[float, ...]
    trusted: tuple[float, ...]
    clean: tuple[float, ...]
    scored: tuple[int, ...]


def purity_and_recall(trusted: npt.ArrayLike, wrong: npt.ArrayLike) -> tuple[float, float, float, float]:
    """Return purity, recall, share trusted and share clean, in percent.

    Args:
        trusted: ``[N]`` bool.
        wrong: ``[N]`` bool, the truth.

    Example:
        >>> purity_and_recall([True, True, True, False], [False, False, True, False])
        (66.66666666666667, 66.66666666666667, 75.0, 75.0)
    """
    chosen, bad = np.asarray(trusted, dtype=bool), np.asarray(wrong, dtype=bool)
    if chosen.shape != bad.shape or chosen.ndim != 1 or not len(chosen):
        raise ValueError(f"expected [N] twice, got {chosen.shape} and {bad.shape}")
    both = float((chosen & ~bad).sum())
    purity = 100 * both / chosen.sum() if chosen.any() else float("nan")
    recall = 100 * both / (~bad).sum() if not bad.all() else float("nan")
    return float(purity), float(recall), 100 * float(chosen.mean()), 100 * float((~bad).mean())


def lowest_share(values: npt.ArrayLike, share: float, batches: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Mark what a quantile rule trusts: all but the lowest ``floor(share * B)`` values of each batch.

    Args:
        values: ``[N]``.
        share: ω in [0, 1].
        batches: ``[N]`` which batch each is in.
    """
    scores, groups = np.asarray(values), np.asarray(batches)
    trusted = np.ones(len(scores), dtype=bool)
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        lowest = np.argsort(scores[rows], kind="stable")[: int(share * len(rows))]
        trusted[rows[lowest]] = False
    return trusted


def trusted_set(folder: Path, threshold: float | None = None) -> TrustedSet:
    """Compare what a run trusted with its noise manifest.

    Args:
        folder: of the run.
        threshold: trust what has at least this cleanliness; by default ConeSep's own rule (``omega``, a fidelity or,
            under ``partition = "quantile"``, a share of each batch), and 0.5 for every other method.

    Raises:
        UsageError: the run has no noise manifest, or left its wrong triplets out.
        DataError: the run recorded no cleanliness.
    """
    manifest = noise_of(folder)
    run, config = Run.open(folder)
    if config.drop_noisy:
        raise UsageError(f"{folder} left the wrong triplets out of training: all that it saw were clean")
    settings = dict(config.method)
    switches = configure(str(settings.pop("name")), settings).model_dump()
    omega = switches.get("omega", 0.5)
    if threshold is None and switches.get("partition") == "quantile":
        rule = f"all but the lowest {100 * omega:g} % of each batch"
    else:
        threshold = omega if threshold is None else threshold
        rule = f"cleanliness of {threshold:g} or more"
    rates = config.training.noise_curriculum
    rows = []
    for epoch, ids, values in _epochs(run.cleanliness):
        there = (
            lighter(manifest, rate_of_epoch(rates, epoch - 1, config.training.epochs)) if rates else manifest
        )
        wrong = np.array([name in there.noisy_ids for name in ids])
        if threshold is not None:
            trusted = values >= threshold
        elif values.min() == 1:  # an epoch that divides nothing
            trusted = np.ones(len(ids), dtype=bool)
        else:
            trusted = lowest_share(values, omega, _batches(ids, config, epoch))
        rows.append((epoch, *purity_and_recall(trusted, wrong), len(ids)))
    epochs, purity, recall, share, clean, scored = zip(*rows, strict=True)
    return TrustedSet(rule, epochs, purity, recall, share, clean, scored)


def draw_trusted_sets(sets: Mapping[str, TrustedSet], *, note: str = "") -> Any:
    """Draw a panel a run: purity, recall, the share that is trusted, and the purity of trusting all."""
    with style():
        from matplotlib.ticker import MaxNLocator

        columns = len(sets) if len(sets) <= 3 else 2 if len(sets) == 4 else 3
        rows = -(-len(sets) // columns)
        figure = new_figure(1.2 + 3.6 * columns, 1.3 + 3 * rows)
        panels = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for axes in panels.flat[len(sets) :]:
            axes.set_visible(False)
        for axes, (name, each) in zip(panels.flat, sets.items(), strict=False):
            lines = (
                ("purity of the trusted set", each.purity, BLUE, "o", "-"),
                ("recall of the clean triplets", each.recall, ORANGE, "s", "-"),
                ("share that is trusted", each.trusted, GREY, "^", "--"),
                ("purity of trusting all", each.clean, "black", None, ":"),
            )
            for label, values, colour, marker, dash in lines:
                axes.plot(each.epochs, values, dash, color=colour, marker=marker, linewidth=1.8, label=label)
            axes.set_title(f"{wrapped(name, 34)}\ntrusts {each.rule}", loc="left", fontsize=10)
            axes.set_xlabel("epoch")
            axes.set_ylim(-3, 103)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.grid(axis="y", alpha=0.2)
        for axes in panels[:, 0]:
            axes.set_ylabel("percent")
        handles, labels = panels.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=min(4, 2 * columns), fontsize=9)
        if note:
            caption(figure, note, characters=int(16 * (1.2 + 3.6 * columns)))
        return figure


def _epochs(path: Path) -> list[tuple[int, list[str], npt.NDArray[np.float64]]]:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    read_cleanliness(path)  # says what is missing
    found = pc.unique(pq.read_table(path, columns=["epoch"])["epoch"]).to_pylist()
    return [(epoch, *read_cleanliness(path, epoch)) for epoch in sorted(found)]


def _batches(ids: Sequence[str], config: RunConfig, epoch: int) -> npt.NDArray[np.int64]:
    """Return which batch of its epoch (counted from 1) each triplet was in, ``[N]``."""
    benchmark = read_benchmark(config.data, images=config.images)
    order = epoch_order(config.training.seed, epoch - 1, len(benchmark.train))
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return places[[benchmark.train.row_of(name) for name in ids]] // config.training.batch_size
