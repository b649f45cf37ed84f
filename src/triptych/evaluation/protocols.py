"""Protocols: which places count, and whether the reference image stays in the gallery.

**The conflict.** On FashionIQ two protocols are in use, and tables mix them. The reference image is itself
in the gallery and looks like a right answer, so it takes one of the first places. SPRC, TME and CLIP4Cir
keep it; the INTENT, HABIT and ConeSep releases take it out (its score is set to -1e11), which can only
raise recall. The tables of those three papers therefore compare figures of both kinds. Triptych computes
both from one ranking and shows them side by side; a protocol says only which of the two is the headline.
CIRR and CIRCO take it out.

Source: specification, sections 2.2 to 2.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from triptych.errors import UsageError

Reference = Literal["kept", "removed"]
"""Whether the reference image is ranked with the gallery or taken out of it first."""


class Protocol(BaseModel):
    """How a benchmark is scored.

    Attributes:
        name: how reports call it.
        headline: the convention that is quoted, and that selects an epoch; both are always computed.
        ks: the K of R@K.
        map_ks: the K of mAP@K, computed where several right answers are known.
        subset_ks: the K of R_sub@K, the recall among the few images of a query's own subset (CIRR).
        averages: name to the metrics whose mean it is.
        shown: the metrics of a table of many runs; empty = all that there are.
        selection: the metrics whose mean selects an epoch (specification, section 2.6).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    headline: Reference
    ks: tuple[int, ...] = (1, 5, 10, 50)
    map_ks: tuple[int, ...] = (5, 10, 25, 50)
    subset_ks: tuple[int, ...] = ()
    averages: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    shown: tuple[str, ...] = ()
    selection: tuple[str, ...] = ("R@10", "R@50")

    @field_validator("ks", "map_ks", "subset_ks")
    @classmethod
    def _positive(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(k < 1 for k in value) or list(value) != sorted(set(value)):
            raise ValueError("must be positive, each once, in rising order")
        return value

    @property
    def conventions(self) -> tuple[Reference, Reference]:
        """Both conventions, the headline first."""
        return ("kept", "removed") if self.headline == "kept" else ("removed", "kept")


_FASHIONIQ_AVERAGE = {"Avg": ("R@10", "R@50")}

FASHIONIQ = Protocol(
    name="fashioniq", headline="kept", averages=_FASHIONIQ_AVERAGE, shown=("R@10", "R@50", "Avg")
)
"""FashionIQ as the community scores it: reference kept; mean over the categories' own galleries."""

REFERENCE_REMOVED = Protocol(
    name="reference-removed", headline="removed", averages=_FASHIONIQ_AVERAGE, shown=("R@10", "R@50", "Avg")
)
"""The same with the reference taken out, as the INTENT, HABIT and ConeSep releases do."""

_CIRR_RECALLS = ("R@1", "R@5", "R@10", "R@50")
_CIRR_SUBSET = ("R_sub@1", "R_sub@2", "R_sub@3")

CIRR = Protocol(
    name="cirr",
    headline="removed",
    subset_ks=(1, 2, 3),
    averages={"Avg": ("R@5", "R_sub@1"), "R@K": _CIRR_RECALLS, "R_sub@K": _CIRR_SUBSET},
    shown=(*_CIRR_RECALLS, *_CIRR_SUBSET, "Avg"),
    selection=(*_CIRR_RECALLS, *_CIRR_SUBSET),
)
"""CIRR: reference removed; recall in the gallery and in the query's subset, and the mean of R@5 and R_sub@1."""

CIRCO = Protocol(
    name="circo",
    headline="removed",
    ks=(5, 10, 25, 50),
    shown=("mAP@5", "mAP@10", "mAP@25", "mAP@50"),
    selection=("mAP@5",),
)
"""CIRCO: reference removed; mAP over all right answers, recall of the one annotated target."""

PROTOCOLS = {protocol.name: protocol for protocol in (FASHIONIQ, REFERENCE_REMOVED, CIRR, CIRCO)}
"""The named protocols."""


def find_protocol(name: str) -> Protocol:
    """Return a protocol by name; ``UsageError`` lists the names where it is unknown."""
    if name not in PROTOCOLS:
        raise UsageError(f'unknown protocol "{name}"; choose one of: {", ".join(PROTOCOLS)}')
    return PROTOCOLS[name]
