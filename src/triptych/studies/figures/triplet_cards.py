"""Training triplets with the trust that a run put in them: clean ones beside wrong ones (ConeSep 10, HABIT 7)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from triptych.studies.figures.board import Board, Loader
from triptych.studies.figures.canvas import BLUE, GREY, ORANGE, style
from triptych.studies.figures.opened_run import noise_of
from triptych.training.cleanliness import read_cleanliness
from triptych.training.run import Run
from triptych.triplets import Benchmark
from triptych.triplets.text import join_captions


@dataclass(frozen=True)
class TripletCard:
    """A training triplet as the run saw it.

    Attributes:
        triplet_id: its id.
        reference: id of the reference picture.
        text: the modification text.
        target: id of the target picture.
        wrong: the field that was corrupted; None where the triplet is clean.
        trust: the method's own value in [0, 1].
        above: percent of all triplets that are trusted less.
    """

    triplet_id: str
    reference: str
    text: str
    target: str
    wrong: str | None
    trust: float
    above: float


@dataclass(frozen=True)
class TrustedTriplets:
    """Clean and wrong triplets of one epoch, each from most to least trusted; ``measure`` names the value."""

    measure: str
    epoch: str
    clean: tuple[TripletCard, ...]
    wrong: tuple[TripletCard, ...]


def spread_over_ranks(
    ids: Sequence[str], trust: npt.ArrayLike, noisy: Collection[str], count: int
) -> tuple[list[str], list[str]]:
    """Choose clean and wrong triplets at even steps of trust: the most, ..., the middle, ..., the least trusted.

    Nothing is picked by hand: the last of the clean ones and the first of the wrong ones are the worst mistakes.

    Args:
        ids: N triplets.
        trust: ``[N]``.
        noisy: ids of the wrong ones.
        count: how many of each; all where there are fewer.

    Example:
        >>> spread_over_ranks(["a", "b", "c", "d", "e"], [0.1, 0.9, 0.5, 0.3, 0.7], {"d", "e"}, 2)
        (['b', 'a'], ['e', 'd'])
    """
    values = np.asarray(trust, dtype=np.float64)
    if values.shape != (len(ids),):
        raise ValueError(f"expected {len(ids)} values, got {values.shape}")
    order = np.argsort(-values, kind="stable")
    chosen = []
    for wrong in (False, True):
        own = [ids[at] for at in order if (ids[at] in noisy) == wrong]
        steps = np.round(np.linspace(0, len(own) - 1, min(count, len(own)))).astype(int)
        chosen.append([own[at] for at in steps])
    return chosen[0], chosen[1]


def trusted_triplets(
    folder: Path, benchmark: Benchmark, *, count: int = 4, epoch: int | None = None
) -> TrustedTriplets:
    """Read triplets with their trust from a run.

    Raises:
        UsageError: the run has no noise manifest.
        DataError: it recorded no cleanliness, or not of that epoch; or its data has changed.
    """
    manifest = noise_of(folder, benchmark)
    run, config = Run.open(folder)
    ids, trust = read_cleanliness(run.cleanliness, epoch)
    table = manifest.apply(benchmark.train)
    values = dict(zip(ids, map(float, trust), strict=True))
    columns = {name: table.column(name) for name in ("reference", "captions", "target")}
    ordered = np.sort(trust)

    def card(triplet_id: str) -> TripletCard:
        row = table.row_of(triplet_id)
        return TripletCard(
            triplet_id,
            columns["reference"][row],
            join_captions(columns["captions"][row], "fixed"),
            columns["target"][row] or "",
            manifest.field_of(triplet_id),
            values[triplet_id],
            100 * float(np.searchsorted(ordered, values[triplet_id])) / len(ordered),
        )

    clean, wrong = spread_over_ranks(ids, trust, manifest.noisy_ids, count)
    measure = MEASURES.get(str(config.method["name"]), "trust")
    said = "the last epoch" if epoch is None else f"epoch {epoch}"
    return TrustedTriplets(measure, said, tuple(map(card, clean)), tuple(map(card, wrong)))


MEASURES = {"conesep": "fidelity", "habit": "cleanliness", "intent": "loyalty"}
"""What a method calls its trust in a triplet."""


def draw_trusted_triplets(shown: TrustedTriplets, load: Loader, *, title: str, note: str = "") -> Any:
    """Draw two columns of cards: reference, text, target and the value, and which field is wrong."""
    side, card_width, card_height, head = 1.0, 5.2, 1.42, 0.72
    rows = max(len(shown.clean), len(shown.wrong))
    width, height = 0.2 + 2 * card_width + 0.25, head + rows * card_height + 0.6
    with style():
        board = Board(width, height)
        board.text(title, 0.2, 0.12, width, size=11, fontweight="bold")
        columns = (("clean triplets", shown.clean, BLUE), ("wrong triplets", shown.wrong, ORANGE))
        for number, (heading, cards, colour) in enumerate(columns):
            x = 0.2 + number * (card_width + 0.15)
            said = f"{heading}, most to least trusted"
            board.text(said, x, 0.42, card_width, color=colour, fontweight="bold")
            for row, each in enumerate(cards):
                _card(board, each, load, x, head + row * card_height, side, colour, shown.measure)
        said = (
            f"At even steps of {shown.measure} ({shown.epoch}), none picked by hand. Dashed: the field that was"
            " corrupted. Bars go from 0 to 1. Above: percent of all training triplets that are trusted less."
        )
        board.note(f"{said} {note}".strip(), height - 0.48)
        return board.figure


def _card(
    board: Board,
    card: TripletCard,
    load: Loader,
    x: float,
    y: float,
    side: float,
    colour: str,
    measure: str,
) -> None:
    from matplotlib.patches import Rectangle

    board.line(x, y, x + 5.0, y)
    y += 0.14
    for field, image_id, left in (("reference", card.reference, x), ("target", card.target, x + 3.1)):
        bad = card.wrong == field
        board.picture(load(image_id), left, y, side, frame=ORANGE if bad else None, dashed=bad)
        if bad:
            board.text(f"wrong {field}", left, y + side + 0.03, 1.4, size=8, color=ORANGE)
    bad = card.wrong == "text"
    board.text(card.text, x + 1.1, y, 1.9, lines=6, size=8.5, **({"color": ORANGE} if bad else {}))
    if bad:
        board.text("wrong text", x + 1.1, y + side + 0.03, 1.9, size=8, color=ORANGE)
    left = x + 4.22
    board.text(f"{card.trust:.3f}", left, y + 0.06, 1.0, size=13, fontweight="bold", color=colour)
    board.axes.add_patch(Rectangle((left, y + 0.36), 0.8, 0.09, facecolor="#e5e7eb", linewidth=0))
    board.axes.add_patch(
        Rectangle((left, y + 0.36), 0.8 * min(max(card.trust, 0), 1), 0.09, facecolor=colour, linewidth=0)
    )
    board.text(measure, left, y + 0.5, 1.0, size=8, color=GREY)
    board.text(f"above {card.above:.0f} %", left, y + 0.66, 0.85, size=8, color=GREY)
