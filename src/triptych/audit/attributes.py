"""A second truth: labels of the pictures say which moved texts happen to be right, and which proposals are."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triptych.audit.verdicts import Verdicts
from triptych.errors import DataError
from triptych.noise import NoiseManifest
from triptych.triplets.table import TripletTable

DESCRIBING = ("type", "colour", "gender", "pattern", "usage", "detail")
"""What makes two products the same to a shopper; a photo that agrees in all of them is a right answer."""


@dataclass(frozen=True)
class Attributes:
    """Labels of pictures and what each clean triplet changes.

    Attributes:
        labels: image id to attribute to value.
        changed: triplet id to the attributes in which reference and target differ.
    """

    labels: Mapping[str, Mapping[str, str]]
    changed: Mapping[str, tuple[str, ...]]

    @classmethod
    def read(cls, folder: Path) -> Attributes:
        """Read ``attributes.csv`` and ``changed_fields.train.json`` of fashion-products.

        Raises:
            DataError: one is missing or damaged.
        """
        labels, changed = folder / "attributes.csv", folder / "changed_fields.train.json"
        try:
            with labels.open(encoding="utf-8-sig", newline="") as file:
                rows = {row["id"]: row for row in csv.DictReader(file)}
            entries = json.loads(changed.read_text(encoding="utf-8"))
            fields = {f"{e['category']}.train.{e['row']}": tuple(e["changed"]) for e in entries}
        except (OSError, ValueError, KeyError, TypeError) as error:
            mend = "The second truth is for data with attributes.csv and changed_fields.train.json."
            raise DataError(f"the attributes cannot be read: {error}", file=folder, mend=mend) from error
        return cls(rows, fields)

    def same_answer(self, first: str, second: str, also: Sequence[str] = ()) -> bool:
        """Say whether two pictures agree in all describing attributes, and in those that the text is about."""
        one, other = self.labels.get(first), self.labels.get(second)
        if one is None or other is None:
            return False
        return all(one[name] == other[name] for name in dict.fromkeys((*DESCRIBING, *also)))


def still_right(clean: TripletTable, manifest: NoiseManifest, attributes: Attributes) -> frozenset[str]:
    """Name the corrupted triplets whose moved text still names the values of their target, and no other ones.

    The text came from a triplet that changes some attributes to some values; it is right where the present target has
    the same values there.
    """
    by_text: dict[tuple[str, ...], list[str]] = {}
    for name, captions in zip(clean.triplet_ids, clean.column("captions"), strict=True):
        by_text.setdefault(captions, []).append(name)
    targets = dict(zip(clean.triplet_ids, clean.column("target"), strict=True))
    found = set()
    for corruption in manifest.corruptions:
        if corruption.field != "text":
            continue
        mine = attributes.labels.get(targets[corruption.triplet_id], {})
        for donor in by_text.get(tuple(corruption.new), []):
            theirs, fields = attributes.labels.get(targets[donor], {}), attributes.changed.get(donor, ())
            if fields and all(mine.get(name) == theirs.get(name) for name in fields):
                found.add(corruption.triplet_id)
                break
    return frozenset(found)


def score_proposals(
    verdicts: Verdicts, clean: TripletTable, manifest: NoiseManifest, attributes: Attributes
) -> dict[str, Any]:
    """Count how often a right answer is among the proposals for triplets with a wrong target, or a wrong text.

    A proposed target is right where it agrees with the clean one in all describing attributes. A proposed text is right
    where the triplet that it comes from changes the same attributes to the same values.
    """
    rows = {name: row for row, name in enumerate(verdicts.column("triplet_id"))}
    targets, texts = verdicts.column("better_targets"), verdicts.column("better_texts")
    donors: dict[tuple[str, ...], list[str]] = {}
    for name, captions in zip(clean.triplet_ids, clean.column("captions"), strict=True):
        donors.setdefault(captions, []).append(name)
    true_target = dict(zip(clean.triplet_ids, clean.column("target"), strict=True))

    def right_text(name: str, captions: tuple[str, ...]) -> bool:
        fields = attributes.changed.get(name, ())
        mine = attributes.labels.get(true_target[name], {})
        return any(
            set(attributes.changed.get(donor, ())) == set(fields)
            and all(mine.get(f) == attributes.labels.get(true_target[donor], {}).get(f) for f in fields)
            for donor in donors.get(captions, [])
            if donor != name
        )

    hits: dict[str, list[bool]] = {"target": [], "text": []}
    for corruption in manifest.corruptions:
        name, row = corruption.triplet_id, rows[corruption.triplet_id]
        if corruption.field == "target":
            also = [field for field in attributes.changed.get(name, ()) if field in ("tone", "brand")]
            hits["target"].append(
                any(attributes.same_answer(found, str(corruption.old), also) for found in targets[row])
            )
        elif corruption.field == "text":
            hits["text"].append(any(right_text(name, tuple(found)) for found in texts[row]))
    return {
        f"right_{corner}_proposed": {"of": len(found), "share": sum(found) / len(found) if found else None}
        for corner, found in hits.items()
    }
