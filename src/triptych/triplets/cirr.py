"""CIRR as its authors distribute it (version rc2).

``captions/cap.rc2.<split>.json`` holds a list of ``{"pairid", "reference", "target_hard", "target_soft",
"caption", "img_set"}``; ``image_splits/split.rc2.<split>.json`` an object from the names of the split's
pictures, which are its gallery, to their paths. The six members of ``img_set`` are the query's subset; they
become the triplet's ``group``. The truth of ``test1`` is on the authors' server.

Source: the public CIRR annotations; spec 1.1 and 2.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from triptych.triplets.benchmark import Benchmark, QuerySet
from triptych.triplets.entries import Keys, Repeats, UnknownKeys, check_members, read_entry, read_number
from triptych.triplets.fashioniq import TRAIN, needs_target
from triptych.triplets.findings import Findings, Place
from triptych.triplets.images import ImageStore
from triptych.triplets.jsonfiles import read_entries, read_object
from triptych.triplets.licence import licence_note
from triptych.triplets.table import Triplet, TripletTable

KEYS = Keys(reference="reference", text="caption", target="target_hard")
CATEGORY = "all"
PICTURE_FOLDERS = ("img_raw", "train", "dev", "test1")
"""What the folders of the official picture archives are called."""

_KNOWN = ("pairid", "reference", "target_hard", "target_soft", "caption", "img_set")
_WITHIN = (".", "cirr", "CIRR", "cirr_dataset/cirr", "cirr_dataset")


def find_cirr(root: Path) -> Path | None:
    """Return the folder of CIRR's annotations: ``root`` itself, or where other projects keep it below."""
    return next((root / name for name in _WITHIN if _files(root / name, "captions", "cap")), None)


def find_cirr_pictures(root: Path, annotations: Path) -> Path | None:
    """Return where CIRR's pictures lie: ``img_raw/``, or a folder that holds ``train/``, ``dev/``, ``test1/``."""
    for folder in dict.fromkeys((annotations, root, annotations.parent)):
        if (folder / "img_raw").is_dir():
            return folder / "img_raw"
        if any((folder / name).is_dir() for name in PICTURE_FOLDERS[1:]):
            return folder
    return None


def read_cirr(root: Path, images: ImageStore, findings: Findings) -> Benchmark:
    """Read CIRR, or data in its layout.

    Args:
        root: the folder of ``captions/`` and ``image_splits/``.
        images: its pictures.
        findings: gets everything wrong or odd; where it is not strict, bad entries are left out.

    Returns:
        The benchmark; ``triplet_id`` is ``<split>.<pairid>``.

    Raises:
        DataError: something is wrong and ``findings`` is strict.
    """
    captions, lists = _files(root, "captions", "cap"), _files(root, "image_splits", "split")
    train = TripletTable.from_triplets([])
    splits: dict[str, tuple[QuerySet, ...]] = {}
    for split, path in captions.items():
        name = path.relative_to(root).as_posix()
        gallery = None
        if split in lists:
            gallery = _read_gallery(lists[split], lists[split].relative_to(root).as_posix(), findings)
        else:
            wanted = f"image_splits/split.rc2.{split}.json"
            mend = f"Add {wanted}: the names of the split's pictures."
            findings.add("missing_file", f"there is no {wanted} for these entries", Place(name), mend=mend)
        table = _read_captions(path, name, split, gallery, findings)
        if split == TRAIN:
            train = table
        else:
            splits[split] = (QuerySet(split, CATEGORY, table, tuple(gallery or ())),)
    for split in sorted(lists.keys() - captions.keys()):
        name = lists[split].relative_to(root).as_posix()
        message = f"there is no cap.rc2.{split}.json, so {split} has no entries"
        findings.add("no_queries", message, Place(name))
    return Benchmark(
        name=root.resolve().name,
        path=root,
        train=train,
        splits={split: splits[split] for split in sorted(splits)},
        images=images,
        licence=licence_note(root),
        protocol="cirr",
    )


def _files(root: Path, folder: str, prefix: str) -> dict[str, Path]:
    """Find ``<folder>/<prefix>.rc2.<split>.json`` by split."""
    found = {}
    for path in sorted((root / folder).glob(f"{prefix}.rc2.*.json")):
        match = re.fullmatch(rf"{prefix}\.rc2\.([^.]+)\.json", path.name)
        if match:
            found[match[1]] = path
    return found


def _read_gallery(path: Path, name: str, findings: Findings) -> dict[str, None] | None:
    values = read_object(path, name, findings)
    if values is None:
        return None
    if not values:
        mend = "List the names of the pictures to search."
        findings.add("empty_gallery", "the gallery has no picture", Place(name), mend=mend)
    return dict.fromkeys(values)


def _read_captions(
    path: Path, name: str, split: str, gallery: Mapping[str, None] | None, findings: Findings
) -> TripletTable:
    entries = read_entries(path, name, findings)
    if entries == []:
        findings.add("no_triplets", "there are no triplets in it", Place(name), mend="Add entries.")
    repeats, unknown = Repeats(findings), UnknownKeys(_KNOWN)
    rows: dict[str, Triplet] = {}
    labelled = needs_target(split)
    for number, values in enumerate(entries or ()):
        place = Place(name, number)
        unknown.see(values if isinstance(values, dict) else (), place)
        entry = read_entry(
            values,
            place,
            findings,
            KEYS,
            target_needed=labelled,
            plain_text=True,
            words_needed=labelled,  # the server wants every query of a test split, also one without words
        )
        if entry is None:
            continue
        group = _read_group(values.get("img_set"), entry.reference, entry.target, place, findings)
        triplet_id = read_number(values, "pairid", number, split, rows, place, findings)
        if triplet_id is None:
            continue
        if gallery is not None:
            named = [(KEYS.reference, entry.reference), (KEYS.target, entry.target)]
            named += [("img_set", member) for member in group or ()]
            if not check_members(
                named, gallery.keys(), f"image_splits/split.rc2.{split}.json", place, findings
            ):
                continue
        triplet = Triplet(triplet_id, entry.reference, entry.captions, entry.target, CATEGORY, group)
        repeats.see(triplet, place)
        rows[triplet_id] = triplet
    unknown.report(findings)
    return TripletTable.from_triplets(rows.values())


def _read_group(
    value: Any, reference: str, target: str | None, place: Place, findings: Findings
) -> tuple[str, ...] | None:
    """Return the members of a query's subset; one that cannot be used is a finding, and the query has none."""
    if value is None:
        return None
    members = value.get("members") if isinstance(value, Mapping) else None
    if not isinstance(members, list) or not all(isinstance(member, str) for member in members):
        mend = 'It should be {"members": ["...", ...]}.'
        findings.add("wrong_type", '"img_set" has no list of members', place, field="img_set", mend=mend)
        return None
    group = tuple(dict.fromkeys(members))
    absent = [name for name in (reference, target) if name is not None and name not in group]
    if absent:
        message = f'"{absent[0]}" is not a member of its own subset; R_sub leaves the query out'
        findings.add("odd_subset", message, place, field="img_set")
        return None
    return group
