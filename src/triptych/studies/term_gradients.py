"""Does each loss term move anything? Norms of their gradients, as a run's metrics hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

INERT = 0.01
"""A term below this share of the largest one's gradient hardly moves anything."""


@dataclass(frozen=True)
class TermGradient:
    """The gradient of one weighted loss term in one epoch.

    Attributes:
        term: its name.
        epoch: counted from 1.
        norm: the median over the steps that were measured.
        share: of the largest term's norm in that epoch, in [0, 1].
    """

    term: str
    epoch: int
    norm: float
    share: float

    @property
    def is_inert(self) -> bool:
        """Whether it hardly moves anything."""
        return self.share < INERT


def term_gradients(metrics: Sequence[Mapping[str, Any]]) -> list[TermGradient]:
    """Return every term's gradient in the first and the last epoch that it was measured in.

    Args:
        metrics: lines of ``metrics.jsonl``; those with ``term_gradients`` count (``training.term_gradients_every``).
    """
    norms: dict[int, dict[str, list[float]]] = {}
    for entry in metrics:
        for term, norm in entry.get("term_gradients", {}).items():
            norms.setdefault(entry["epoch"], {}).setdefault(term, []).append(norm)
    medians = {
        epoch: {term: float(np.median(own)) for term, own in terms.items()} for epoch, terms in norms.items()
    }
    found = []
    for term in dict.fromkeys(term for terms in medians.values() for term in terms):
        epochs = sorted(epoch for epoch, terms in medians.items() if term in terms)
        for epoch in dict.fromkeys((epochs[0], epochs[-1])):
            norm, largest = medians[epoch][term], max(medians[epoch].values())
            found.append(TermGradient(term, epoch + 1, norm, norm / largest if largest else 0.0))
    return found
