"""Corruption: one triplet with one wrong field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["mix", "hard", "reference", "text", "target"]
TripletField: TypeAlias = Literal["reference", "text", "target"]
Value: TypeAlias = str | tuple[str, ...]
"""An image id, or a tuple of captions."""


@dataclass(frozen=True, slots=True)
class Corruption:
    """One triplet with one wrong field: what was there, and what stands there now (never equal)."""

    triplet_id: str
    field: TripletField
    old: Value
    new: Value
