"""Findings: what is wrong or odd in a data set, each with file, row and field.

The readers and the check share one validation. A reader stops at the first error and keeps counts of the
rest; the check keeps everything and stops at nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, Literal

from triptych.errors import DataError

Severity = Literal["error", "warning", "note"]

KINDS: dict[str, tuple[Severity, str]] = {
    # errors: training or evaluation would fail, or be wrong
    "unreadable_file": ("error", "files that cannot be read"),
    "missing_file": ("error", "files that are missing"),
    "not_a_list": ("error", "files that do not hold a list"),
    "no_triplets": ("error", "files without a triplet"),
    "no_training": ("error", "data sets without a training triplet"),
    "missing_column": ("error", "columns that are missing"),
    "bad_row": ("error", "rows that cannot be read"),
    "missing_field": ("error", "fields that are missing"),
    "wrong_type": ("error", "values of a wrong type"),
    "bad_text": ("error", "texts with broken characters"),
    "no_words": ("error", "triplets without a word of text"),
    "outside_split": ("error", "pictures that are not in their split"),
    "empty_gallery": ("error", "galleries without a picture"),
    "duplicate_id": ("error", "triplet ids that are used again"),
    "bad_answer": ("error", "lists of right answers that do not fit"),
    "pictures": ("error", "problems with the pictures as a whole"),
    "image_missing": ("error", "pictures that are missing"),
    "image_unreadable": ("error", "picture files that cannot be read"),
    "image_empty": ("error", "picture files without a byte"),
    "image_not_an_image": ("error", "picture files that are no picture"),
    "image_truncated": ("error", "pictures that are cut off or damaged"),
    "image_too_large": ("error", "pictures that are too large"),
    "image_unsupported": ("error", "pictures of an unsupported kind"),
    # warnings: usable, but probably not what was meant
    "blank_caption": ("warning", "blank captions beside others with words"),
    "duplicate_triplet": ("warning", "triplets that occur again"),
    "same_image": ("warning", "triplets whose reference is the target"),
    "duplicate_split_id": ("warning", "pictures listed twice in a split"),
    "unknown_key": ("warning", "keys that are not used"),
    "no_queries": ("warning", "categories without queries in a split"),
    "missing_split": ("warning", "training categories without a list of pictures"),
    "odd_answer": ("warning", "lists of right answers without their own target"),
    "no_pictures": ("warning", "data sets without pictures"),
    "odd_subset": ("warning", "subsets without their own reference or target"),
    "odd_gallery": ("warning", "galleries that are not the official one"),
    "queries_hit": ("warning", "splits with pictures missing"),
    "odd_pictures": ("warning", "oddities of the folder or archive of pictures"),
    # notes: the check lists them, a reader says nothing
    "one_word_caption": ("note", "captions of one word"),
    "integer_id": ("note", "ids that are numbers and are read as text"),
    "unknown_file": ("note", "files that are not used"),
    "unused_picture": ("note", "pictures that no triplet or split names"),
}
"""Every kind of finding, its severity, and what to call many of it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands: a file, and the entry or line in it."""

    file: str
    row: int | None = None
    unit: str = "entry"

    def __str__(self) -> str:
        return self.file if self.row is None else f"{self.file}, {self.unit} {self.row}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong or odd.

    Attributes:
        kind: a key of :data:`KINDS`.
        severity: ``error`` (training would fail or be wrong), ``warning`` or ``note``.
        message: what is wrong, without the place.
        file: the file at fault, relative to the data set.
        row: zero-based entry of a list or one-based line of a text file, see ``unit``.
        field: the field at fault.
        mend: what the user can do.
        unit: what ``row`` counts: ``entry``, ``line`` or ``row``.
    """

    kind: str
    severity: Severity
    message: str
    file: str
    row: int | None = None
    field: str | None = None
    mend: str | None = None
    unit: str = "entry"

    @property
    def place(self) -> str:
        """File and row, as a user reads them."""
        return str(Place(self.file, self.row, self.unit))

    def as_error(self) -> DataError:
        """Return the error that a reader raises for this finding."""
        return DataError(
            self.message, file=self.file, row=self.row, field=self.field, mend=self.mend, unit=self.unit
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


class Findings:
    """Collects findings; with ``strict`` the first error is raised.

    Attributes:
        items: all findings in the order found; with ``strict`` only the first of each kind.
        counts: how many of each kind.
        mentions: for each picture the first place and field that names it; empty with ``strict``.
    """

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict
        self.items: list[Finding] = []
        self.counts: Counter[str] = Counter()
        self.mentions: dict[str, tuple[Place, str]] = {}

    def add(
        self,
        kind: str,
        message: str,
        place: Place,
        *,
        field: str | None = None,
        mend: str | None = None,
        severity: Severity | None = None,
    ) -> None:
        """Record a finding.

        Raises:
            DataError: it is an error and this collector is strict.
        """
        severity = severity or KINDS[kind][0]
        finding = Finding(kind, severity, message, place.file, place.row, field, mend, place.unit)
        self.counts[kind] += 1
        if self.strict and severity == "error":
            raise finding.as_error()
        if not self.strict or self.counts[kind] == 1:
            self.items.append(finding)

    def add_error(self, kind: str, error: DataError) -> None:
        """Record an error that was raised, or raise it on where this collector is strict."""
        if self.strict:
            raise error
        place = Place(str(error.file or ""), error.row, error.unit)
        self.add(kind, error.problem, place, field=error.field, mend=error.mend)

    def mention(self, image_id: str, place: Place, field: str) -> None:
        """Remember where a picture is first named, so that a missing one can be traced."""
        if not self.strict:
            self.mentions.setdefault(image_id, (place, field))

    def sentences(self) -> tuple[str, ...]:
        """Return one sentence per kind of warning, with its count and the first of them."""
        first = {finding.kind: finding for finding in reversed(self.items) if finding.severity == "warning"}
        texts = []
        for kind, finding in sorted(first.items()):
            text = f"{finding.place}: {finding.message}"
            count = self.counts[kind]
            texts.append(text if count == 1 else f"{count:,} {KINDS[kind][1]} (first: {text})")
        return tuple(texts)
