"""Rules that need no model: what is wrong or odd in a triplet by its text and ids alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from triptych.noise.corruption import TripletField
from triptych.triplets.table import Triplet, TripletTable
from triptych.triplets.text import clean, join_captions

Weight: TypeAlias = Literal["wrong", "suspect", "note"]

RULES: dict[str, tuple[Weight, TripletField, str]] = {
    "no_text": ("wrong", "text", "the text has no word"),
    "no_target": ("wrong", "target", "there is no target"),
    "same_picture": ("wrong", "target", "reference and target are the same picture"),
    "unreadable_reference": ("wrong", "reference", "the reference picture is missing or cannot be read"),
    "unreadable_target": ("wrong", "target", "the target picture is missing or cannot be read"),
    "identical_pictures": ("suspect", "target", "reference and target look the same"),
    "contradictory_text": ("suspect", "text", "the same text leads from A to B and from B to A"),
    "contradictory_target": ("suspect", "target", "the same reference and text have other targets elsewhere"),
    "copied_text": ("suspect", "text", "the same text stands at very many triplets"),
    "duplicate": ("note", "text", "the same triplet occurs again"),
    "one_word": ("note", "text", "the whole text is one word"),
    "blank_caption": ("note", "text", "one of the captions is blank"),
    "repeated_caption": ("note", "text", "the captions of the triplet are equal"),
}
"""Every rule: how much it weighs (``wrong`` cannot be right, ``suspect`` deserves a look, ``note`` is information), the
corner that it accuses, and what it says."""

COPIES = 20
"""A text that stands at this many different pairs of pictures, and at 1 % of its category, is copied."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule says of one triplet.

    Attributes:
        triplet_id: of the triplet.
        rule: a key of :data:`RULES`.
        detail: what it was, with names and counts; may be empty.
    """

    triplet_id: str
    rule: str
    detail: str = ""

    @property
    def weight(self) -> Weight:
        """How much the rule weighs."""
        return RULES[self.rule][0]

    @property
    def corner(self) -> TripletField:
        """The corner that the rule accuses."""
        return RULES[self.rule][1]

    @property
    def sentence(self) -> str:
        """The rule in words."""
        return RULES[self.rule][2] + (f": {self.detail}" if self.detail else "")


def find_by_rules(table: TripletTable) -> list[Finding]:
    """Apply every rule that needs no picture, in the order of the triplets.

    Args:
        table: the triplets; ``target`` may be null.

    Example:
        >>> row = Triplet("t", "a", ("red",), "a")
        >>> [finding.rule for finding in find_by_rules(TripletTable.from_triplets([row]))]
        ['same_picture', 'one_word']
    """
    triplets = list(table)
    texts = [join_captions(triplet.captions) for triplet in triplets]
    found = [
        finding for triplet, text in zip(triplets, texts, strict=True) for finding in _alone(triplet, text)
    ]
    found += _duplicates(triplets, texts)
    found += _contradictions(triplets, texts)
    found += _copies(triplets, texts)
    place = {triplet.triplet_id: row for row, triplet in enumerate(triplets)}
    return sorted(found, key=lambda finding: place[finding.triplet_id])


def _alone(triplet: Triplet, text: str) -> Iterator[Finding]:
    """What a triplet says by itself."""
    captions = [clean(caption) for caption in triplet.captions]
    words = text.split()
    if not words:
        yield Finding(triplet.triplet_id, "no_text")
    if triplet.target is None:
        yield Finding(triplet.triplet_id, "no_target")
    elif triplet.target == triplet.reference:
        yield Finding(triplet.triplet_id, "same_picture", triplet.reference)
    if len(words) == 1:
        yield Finding(triplet.triplet_id, "one_word", words[0])
    if words and not all(captions):
        yield Finding(triplet.triplet_id, "blank_caption")
    if len(captions) > 1 and words and len(set(captions)) == 1:
        yield Finding(triplet.triplet_id, "repeated_caption", captions[0])


def _duplicates(triplets: Sequence[Triplet], texts: Sequence[str]) -> Iterator[Finding]:
    first: dict[tuple[str, str, str | None], str] = {}
    for triplet, text in zip(triplets, texts, strict=True):
        before = first.setdefault((triplet.reference, text, triplet.target), triplet.triplet_id)
        if before != triplet.triplet_id:
            yield Finding(triplet.triplet_id, "duplicate", f"first as {before}")


def _contradictions(triplets: Sequence[Triplet], texts: Sequence[str]) -> Iterator[Finding]:
    targets: dict[tuple[str, str], set[str]] = defaultdict(set)
    for triplet, text in zip(triplets, texts, strict=True):
        if triplet.target is not None and text:
            targets[triplet.reference, text].add(triplet.target)
    for triplet, text in zip(triplets, texts, strict=True):
        if triplet.target is None or not text:
            continue
        others = sorted(targets[triplet.reference, text] - {triplet.target})
        if others:
            yield Finding(triplet.triplet_id, "contradictory_target", _some(others))
        back = targets.get((triplet.target, text), ())
        if triplet.reference in back and triplet.target != triplet.reference:
            yield Finding(triplet.triplet_id, "contradictory_text", f'"{text}"')


def _copies(triplets: Sequence[Triplet], texts: Sequence[str]) -> Iterator[Finding]:
    pairs: dict[tuple[str, str], set[tuple[str, str | None]]] = defaultdict(set)
    sizes = Counter(triplet.category for triplet in triplets)
    for triplet, text in zip(triplets, texts, strict=True):
        pairs[triplet.category, text].add((triplet.reference, triplet.target))
    for triplet, text in zip(triplets, texts, strict=True):
        count = len(pairs[triplet.category, text])
        if text and count >= max(COPIES, 0.01 * sizes[triplet.category]):
            yield Finding(triplet.triplet_id, "copied_text", f'"{text}" at {count:,} pairs')


def _some(names: Sequence[str], limit: int = 3) -> str:
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
