"""The FashionIQ layout, with any category names.

``captions/cap.<category>.<split>.json`` holds a list of ``{"candidate", "target", "captions"}``, the
candidate being the reference; ``image_splits/split.<category>.<split>.json`` the ids of the gallery. The
files may also lie in the folder itself; without ``<split>`` in the name they are training data.

Source: the public FashionIQ annotations; spec 1.1.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from triptych.triplets.answers import read_answers
from triptych.triplets.benchmark import Benchmark, QuerySet
from triptych.triplets.entries import Keys, Repeats, UnknownKeys, check_members, read_entry, read_id
from triptych.triplets.findings import Findings, Place
from triptych.triplets.images import ImageStore
from triptych.triplets.jsonfiles import read_entries
from triptych.triplets.licence import licence_note
from triptych.triplets.table import Triplet, TripletTable

KEYS = Keys(reference="candidate", text="captions", target="target")
TRAIN = "train"

Files = dict[tuple[str, str], Path]


def has_fashioniq_layout(root: Path) -> bool:
    """Tell whether a folder holds caption files of this layout."""
    return bool(_files(root, "captions", "cap"))


def needs_target(split: str) -> bool:
    """Tell whether the truth of a split must be known; that of test splits is often not published."""
    return not split.lower().startswith("test")


def read_fashioniq(root: Path, images: ImageStore, findings: Findings) -> Benchmark:
    """Read a data set in the FashionIQ layout.

    Args:
        root: its folder.
        images: its pictures.
        findings: gets everything wrong or odd; where it is not strict, bad entries are left out.

    Returns:
        The benchmark; ``triplet_id`` is ``<category>.<split>.<place in the caption file>``.

    Raises:
        DataError: something is wrong and ``findings`` is strict.
    """
    captions, lists = (
        _files(root, "captions", "cap", findings),
        _files(root, "image_splits", "split", findings),
    )
    train: list[TripletTable] = []
    query_sets: dict[tuple[str, str], QuerySet] = {}
    for split, category in sorted({*captions, *lists}):
        gallery = _read_gallery(root, lists.get((split, category)), findings)
        if (split, category) not in captions:
            name = lists[split, category].relative_to(root).as_posix()
            message = f"there is no cap.{category}.{split}.json, so {category} is left out of {split}"
            findings.add("no_queries", message, Place(name))
            continue
        path = captions[split, category]
        if gallery is None and (split, category) not in lists:
            _report_missing_list(path.relative_to(root).as_posix(), split, category, findings)
        table = _read_captions(root, path, split, category, gallery, findings)
        if split == TRAIN:
            train.append(table)
        else:
            query_sets[split, category] = QuerySet(split, category, table, gallery or ())
    for key, answers in read_answers(root, query_sets, findings).items():
        query_sets[key] = replace(query_sets[key], answers=answers)
    splits = sorted({split for split, _ in query_sets})
    return Benchmark(
        name=root.resolve().name,
        path=root,
        train=TripletTable.concat(train),
        splits={split: tuple(query_sets[key] for key in query_sets if key[0] == split) for split in splits},
        images=images,
        licence=licence_note(root),
    )


def _files(root: Path, folder: str, prefix: str, findings: Findings | None = None) -> Files:
    """Find ``<prefix>.<category>[.<split>].json`` by split and category."""
    place = root / folder if (root / folder).is_dir() else root
    found: Files = {}
    for path in sorted(place.glob("*.json")):
        match = re.fullmatch(rf"{prefix}\.(.+?)(?:\.([^.]+))?\.json", path.name)
        key = (match[2] or TRAIN, match[1]) if match else None
        if key and key not in found:
            found[key] = path
        elif findings and (key or place != root):
            message = f"the file is not used: {prefix}.<category>.<split>.json is expected, each once"
            findings.add("unknown_file", message, Place(path.relative_to(root).as_posix()))
    return found


def _read_gallery(root: Path, path: Path | None, findings: Findings) -> tuple[str, ...] | None:
    if path is None:
        return None
    name = path.relative_to(root).as_posix()
    values = read_entries(path, name, findings)
    if values is None:
        return None
    gallery: dict[str, Place] = {}
    for number, value in enumerate(values):
        place = Place(name, number)
        image_id = read_id(value, place, findings, "id")
        if image_id is None:
            continue
        first = gallery.setdefault(image_id, place)
        if first is not place:
            message = f'the picture "{image_id}" is listed again (first: entry {first.row}) and counts once'
            findings.add("duplicate_split_id", message, place)
    if not gallery:
        mend = "List the ids of the pictures to search."
        findings.add("empty_gallery", "the gallery has no picture", Place(name), mend=mend)
    return tuple(gallery)


def _report_missing_list(name: str, split: str, category: str, findings: Findings) -> None:
    wanted = f"image_splits/split.{category}.{split}.json"
    if split == TRAIN:
        message = f"there is no {wanted}, so the pictures of {category} are not checked against it"
        findings.add("missing_split", message, Place(name))
    else:
        mend = f"Add {wanted}: a list of the ids to search."
        findings.add("missing_file", f"there is no {wanted} for these queries", Place(name), mend=mend)


def _read_captions(
    root: Path, path: Path, split: str, category: str, gallery: tuple[str, ...] | None, findings: Findings
) -> TripletTable:
    name = path.relative_to(root).as_posix()
    entries = read_entries(path, name, findings)
    if entries == []:
        mend = "Add entries, or remove the file together with its split file."
        findings.add("no_triplets", "there are no triplets in it", Place(name), mend=mend)
    members = None if gallery is None else set(gallery)
    repeats, unknown = Repeats(findings), UnknownKeys((KEYS.reference, KEYS.target, KEYS.text))
    rows: list[Triplet] = []
    for number, values in enumerate(entries or ()):
        place = Place(name, number)
        unknown.see(values if isinstance(values, dict) else (), place)
        entry = read_entry(values, place, findings, KEYS, target_needed=needs_target(split), plain_text=False)
        if entry is None:
            continue
        if members is not None:
            pair = [(KEYS.reference, entry.reference), (KEYS.target, entry.target)]
            if not check_members(
                pair, members, f"image_splits/split.{category}.{split}.json", place, findings
            ):
                continue
        triplet_id = f"{category}.{split}.{number}"
        triplet = Triplet(triplet_id, entry.reference, entry.captions, entry.target, category)
        repeats.see(triplet, place)
        rows.append(triplet)
    unknown.report(findings)
    return TripletTable.from_triplets(rows)
