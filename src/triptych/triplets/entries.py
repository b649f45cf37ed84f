"""One entry of annotations, from whatever file: checked field by field, and read as a user meant it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from triptych.triplets.findings import Findings, Place
from triptych.triplets.table import Triplet
from triptych.triplets.text import clean


@dataclass(frozen=True)
class Keys:
    """How a layout calls the fields of an entry."""

    reference: str
    text: str
    target: str


@dataclass(frozen=True, slots=True)
class Entry:
    """The fields of a good entry."""

    reference: str
    captions: tuple[str, ...]
    target: str | None


def read_entry(
    values: Any,
    place: Place,
    findings: Findings,
    keys: Keys,
    *,
    target_needed: bool,
    plain_text: bool,
    words_needed: bool = True,
) -> Entry | None:
    """Check an entry and return its fields, or ``None`` where it cannot be used; every fault is a finding.

    Args:
        values: what the file holds; an object is expected.
        place: where it stands.
        findings: gets every fault.
        keys: the names of the fields.
        target_needed: whether a missing target is an error; where truths are not published it is not.
        plain_text: whether the text may be one string; where a list is expected, a string is an error and is
            never read letter by letter.
        words_needed: whether a text without a word is an error; where every query must be answered it is not.
    """
    if not isinstance(values, Mapping):
        mend = f'An entry is an object with "{keys.reference}", "{keys.target}" and "{keys.text}".'
        findings.add("wrong_type", f"an object is expected, not {_name(values)}", place, mend=mend)
        return None
    reference = read_id(values.get(keys.reference), place, findings, keys.reference, keys=keys)
    target = None
    if values.get(keys.target) is not None or target_needed:
        target = read_id(values.get(keys.target), place, findings, keys.target, keys=keys)
    captions = _read_captions(values.get(keys.text), place, findings, keys, plain_text, words_needed)
    if reference is not None and reference == target:
        findings.add(
            "same_image", f'reference and target are the same picture "{target}"', place, field=keys.target
        )
    if reference is None or captions is None or (target_needed and target is None):
        return None
    if values.get(keys.target) is not None and target is None:
        return None
    return Entry(reference, captions, target)


def read_id(
    value: Any, place: Place, findings: Findings, field: str, *, keys: Keys | None = None
) -> str | None:
    """Return an id as text, or ``None`` where there is none; a whole number is read as text, with a note."""
    if value is None:
        mend = f'Each entry needs "{keys.reference}", "{keys.target}" and "{keys.text}". ' if keys else ""
        mend += "Run `triptych data check` on the data to list all problems."
        findings.add("missing_field", f'"{field}" is missing', place, field=field, mend=mend)
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        findings.add("integer_id", f"the id {value} is a number and is read as text", place, field=field)
        value = str(value)
    if not isinstance(value, str):
        mend = 'Write ids as text in quotes, such as "10002".'
        findings.add(
            "wrong_type", f'"{field}" must be an id, not {_name(value)}', place, field=field, mend=mend
        )
        return None
    if not value.strip():
        findings.add(
            "missing_field", f'"{field}" is blank', place, field=field, mend="Give the picture's id."
        )
        return None
    if not _whole(value, place, findings, field):
        return None
    findings.mention(value, place, field)
    return value


def read_number(
    values: Mapping[str, Any],
    key: str,
    number: int,
    split: str,
    used: Container[str],
    place: Place,
    findings: Findings,
) -> str | None:
    """Return the triplet id ``<split>.<number>`` of an official entry, or None after reporting what is wrong.

    Args:
        values: the entry.
        key: the field of its number; submissions name queries by it.
        number: its place in the file, where it has no such field.
        split: of the file.
        used: ids that were read before.
        place: of the entry.
        findings: takes what is wrong.
    """
    value = values.get(key, number)
    triplet_id = f"{split}.{value}"
    if type(value) is int and triplet_id not in used:
        return triplet_id
    problem = "was used before" if triplet_id in used else "is no whole number"
    mend = "Give each entry a number of its own; submissions name queries by it."
    findings.add("duplicate_id", f"the {key} {value!r} {problem}", place, field=key, mend=mend)
    return None


def _read_captions(
    value: Any, place: Place, findings: Findings, keys: Keys, plain_text: bool, words_needed: bool
) -> tuple[str, ...] | None:
    field = keys.text
    expected = "a text or a list of texts" if plain_text else "a list of texts"
    if value is None:
        mend = f'Each entry needs "{keys.reference}", "{keys.target}" and "{field}".'
        findings.add("missing_field", f'"{field}" is missing', place, field=field, mend=mend)
        return None
    if plain_text and isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple):
        mend = f'Write "{field}": ["..."]; one caption is a list of one.'
        message = f'"{field}" must be {expected}, not {_name(value)}'
        findings.add("wrong_type", message, place, field=field, mend=mend)
        return None
    good = True
    for number, caption in enumerate(value):
        if not isinstance(caption, str):
            message = f'"{field}": caption {number} must be a text, not {_name(caption)}'
            findings.add("wrong_type", message, place, field=field, mend="Write it in quotes, or remove it.")
            good = False
        elif not _whole(caption, place, findings, field):
            good = False
    if not good:
        return None
    words = [len(clean(caption).split()) for caption in value]
    if not any(words) and words_needed:
        problem = "is an empty list" if not value else "has no word in it"
        mend = "Write what changes from the reference to the target, or remove the entry."
        findings.add("no_words", f'"{field}" {problem}', place, field=field, mend=mend)
        return None
    for number, count in enumerate(words):
        if count == 0:
            findings.add("blank_caption", f'"{field}": caption {number} is blank', place, field=field)
        elif count == 1:
            message = f'"{field}": caption {number} is the one word "{clean(value[number])}"'
            findings.add("one_word_caption", message, place, field=field)
    return tuple(value)


def _whole(value: str, place: Place, findings: Findings, field: str) -> bool:
    """Tell whether a text can be written as UTF-8; JSON can escape half a character."""
    try:
        value.encode()
    except UnicodeEncodeError:
        mend = "Write the character itself, not half of a \\u pair."
        findings.add("bad_text", f'"{field}" holds half a character', place, field=field, mend=mend)
        return False
    return True


def _name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return "a text"
    return "an object" if isinstance(value, Mapping) else f"a {type(value).__name__}"


class Repeats:
    """Finds triplets that occur again: same pictures, same captions."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._first: dict[int, Place] = {}

    def see(self, triplet: Triplet, place: Place) -> None:
        """Report ``triplet`` if an equal one was seen before."""
        key = hash((triplet.reference, triplet.captions, triplet.target))
        first = self._first.setdefault(key, place)
        if first is not place:
            self._findings.add("duplicate_triplet", f"the same triplet as {first}", place)


class UnknownKeys:
    """Counts keys that no reader uses: one finding a key, not one an entry."""

    def __init__(self, known: Iterable[str]) -> None:
        self._known = frozenset(known)
        self._first: dict[str, Place] = {}
        self._counts: Counter[str] = Counter()

    def see(self, keys: Iterable[str], place: Place) -> None:
        """Look at the keys of an entry."""
        for key in keys:
            if key not in self._known:
                self._first.setdefault(key, place)
                self._counts[key] += 1

    def report(self, findings: Findings) -> None:
        """Add what was seen to the findings."""
        for key, place in self._first.items():
            count = self._counts[key]
            message = f'the key "{key}" is not used' + (f" (in {count:,} entries)" if count > 1 else "")
            findings.add(
                "unknown_key", message, place, field=key, mend=f"Known: {', '.join(sorted(self._known))}."
            )


def check_members(
    image_ids: Sequence[tuple[str, str | None]],
    gallery: AbstractSet[str],
    split_file: str,
    place: Place,
    findings: Findings,
) -> bool:
    """Check that pictures are in their split's list; returns whether all are.

    Args:
        image_ids: pairs of field and id; an id of ``None`` is passed over.
        gallery: the ids of the split.
        split_file: where they are listed, for the message.
        place: the entry that names them.
        findings: gets what is outside.
    """
    good = True
    for field, image_id in image_ids:
        if image_id is not None and image_id not in gallery:
            message = f'the picture "{image_id}" is not in {split_file}'
            mend = f"Add it to {split_file}, or remove the entry."
            findings.add("outside_split", message, place, field=field, mend=mend)
            good = False
    return good
