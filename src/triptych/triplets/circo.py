"""CIRCO as its authors distribute it, over the unlabelled pictures of COCO 2017.

``annotations/<split>.json`` holds a list of ``{"id", "reference_img_id", "relative_caption", "shared_concept"}``
and, for ``val``, ``target_img_id``, ``gt_img_ids`` and ``semantic_aspects``. Ids are whole numbers; here a
picture is called as its file is, the number with leading zeros to twelve digits. The gallery is every picture
that COCO lists (``image_info_unlabeled2017.json``), or, without that file, every picture that is there. The
text of a query is the relative caption alone.

Source: the public CIRCO annotations; spec 1.1 and 2.4.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from triptych.triplets.benchmark import Benchmark, QuerySet
from triptych.triplets.entries import Keys, UnknownKeys, check_members, read_entry, read_number
from triptych.triplets.fashioniq import needs_target
from triptych.triplets.findings import Findings, Place
from triptych.triplets.images import ImageStore
from triptych.triplets.jsonfiles import read_entries
from triptych.triplets.licence import licence_note
from triptych.triplets.table import Triplet, TripletTable

KEYS = Keys(reference="reference_img_id", text="relative_caption", target="target_img_id")
CATEGORY = "all"
OFFICIAL_PICTURES = 123_403
DIGITS = 12

_SPLITS = ("val", "test")
_KNOWN = ("id", *vars(KEYS).values(), "shared_concept", "gt_img_ids", "semantic_aspects")
_PICTURES = ("unlabeled2017", "unlabeled2017.zip", "unlabeled2017.tar")
_LISTS = ("image_info_unlabeled2017.json", "annotations/image_info_unlabeled2017.json")
_COCO = (".", "COCO2017_unlabeled", "coco2017_unlabeled", "COCO2017", "COCO", "coco", "coco2017")
_FILE_NAME = re.compile(rb'"file_name"\s*:\s*"(\d{12})\.jpg"')


def has_circo_layout(root: Path) -> bool:
    """Tell whether a folder holds CIRCO's annotations."""
    for split in _SPLITS:
        path = root / "annotations" / f"{split}.json"
        if path.is_file():
            with path.open("rb") as file:
                if b'"reference_img_id"' in file.read(4096):
                    return True
    return False


def find_coco_pictures(root: Path) -> Path | None:
    """Return where COCO's ``unlabeled2017`` lies, a folder or an archive, in or beside the annotations."""
    places = (base / below for base in (root, root.parent) for below in _COCO)
    return next((place / name for place in places for name in _PICTURES if (place / name).exists()), None)


def picture_id(number: int) -> str:
    """Return the name of a COCO picture, its number with leading zeros."""
    return f"{number:0{DIGITS}d}"


def read_circo(root: Path, images: ImageStore, findings: Findings) -> Benchmark:
    """Read CIRCO, which has queries only: nothing to train on.

    Args:
        root: the folder of ``annotations/``.
        images: the pictures of COCO's ``unlabeled2017``.
        findings: gets everything wrong or odd; where it is not strict, bad entries are left out.

    Returns:
        The benchmark; ``triplet_id`` is ``<split>.<id>``.

    Raises:
        DataError: something is wrong and ``findings`` is strict.
    """
    read = {
        split: _read_split(root / "annotations" / f"{split}.json", split, findings)
        for split in _SPLITS
        if (root / "annotations" / f"{split}.json").is_file()
    }
    named = {image for part in read.values() for image in _named(part)}
    gallery = _gallery(root, images, named, findings)
    known = len(gallery) > len(named) or len(images) > 0
    members = set(gallery)
    splits = {}
    for split, part in read.items():
        lost = [
            triplet.triplet_id
            for triplet in part.queries
            if not check_members(
                [(KEYS.reference, triplet.reference), (KEYS.target, triplet.target)],
                members,
                "COCO's list of pictures",
                Place(f"annotations/{split}.json"),
                findings,
            )
        ]
        queries = part.queries.without(lost) if lost else part.queries
        splits[split] = (replace(part, queries=queries, gallery=gallery),)
    return Benchmark(
        name=root.resolve().name,
        path=root,
        train=TripletTable.from_triplets([]),
        splits=splits,
        images=images,
        licence=licence_note(root),
        protocol="circo",
        gallery_known=known,
    )


def _named(part: QuerySet) -> set[str]:
    return {*part.queries.image_ids(), *(image for found in part.answers.values() for image in found)}


def _gallery(root: Path, images: ImageStore, named: set[str], findings: Findings) -> tuple[str, ...]:
    """Find the gallery: COCO's own list, or else the pictures that are there and those that are named."""
    place = Place(images.path.name)
    bases = [images.path.parent, *(base / below for base in (root, root.parent) for below in _COCO)]
    for path in (base / name for base in bases for name in _LISTS):
        if path.is_file():
            gallery = tuple(dict.fromkeys(_listed(path)))
            place = Place(path.name)
            break
    else:
        found = (image for image in images.ids if len(image) == DIGITS and image.isdecimal())
        gallery = tuple(sorted({*found, *named}))
    if len(gallery) != OFFICIAL_PICTURES:
        message = (
            f"the gallery has {len(gallery):,} pictures, COCO's unlabeled2017 has {OFFICIAL_PICTURES:,}: "
            "figures are not those of CIRCO, and a submission would be incomplete"
        )
        findings.add("odd_gallery", message, place)
    return gallery


def _listed(path: Path) -> list[str]:
    """Read the names of COCO's list, which is large and mapped, not parsed."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return [match[1].decode() for match in _FILE_NAME.finditer(text)]


def _read_split(path: Path, split: str, findings: Findings) -> QuerySet:
    name = f"annotations/{path.name}"
    entries = read_entries(path, name, findings)
    unknown = UnknownKeys(_KNOWN)
    rows: dict[str, Triplet] = {}
    answers: dict[str, tuple[str, ...]] = {}
    aspects: dict[str, tuple[str, ...]] = {}
    labelled = needs_target(split)
    for number, values in enumerate(entries or ()):
        place = Place(name, number)
        unknown.see(values if isinstance(values, dict) else (), place)
        entry = read_entry(
            _with_names(values),
            place,
            findings,
            KEYS,
            target_needed=labelled,
            plain_text=True,
            words_needed=labelled,  # the server wants every query of a test split, also one without words
        )
        if entry is None:
            continue
        triplet_id = read_number(values, "id", number, split, rows, place, findings)
        if triplet_id is None:
            continue
        rows[triplet_id] = Triplet(triplet_id, entry.reference, entry.captions, entry.target, CATEGORY)
        found = _read_answers(values.get("gt_img_ids"), entry.target, place, findings)
        if found:
            answers[triplet_id] = found
        asked = values.get("semantic_aspects")
        if isinstance(asked, list) and all(isinstance(aspect, str) for aspect in asked):
            aspects[triplet_id] = tuple(asked)
    unknown.report(findings)
    if not rows:
        findings.add("no_triplets", "there are no queries in it", Place(name), mend="Fetch it again.")
    return QuerySet(split, CATEGORY, TripletTable.from_triplets(rows.values()), (), answers, aspects)


def _with_names(values: Any) -> Any:
    """Return an entry whose pictures are called as their files are."""
    if not isinstance(values, Mapping):
        return values
    numbers = {key: values[key] for key in (KEYS.reference, KEYS.target) if type(values.get(key)) is int}
    return {**values, **{key: picture_id(number) for key, number in numbers.items()}}


def _read_answers(value: Any, target: str | None, place: Place, findings: Findings) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not value or not all(type(number) is int for number in value):
        mend = "It should be a list of whole numbers."
        findings.add("bad_answer", '"gt_img_ids" is no list of ids', place, field="gt_img_ids", mend=mend)
        return None
    names = [picture_id(number) for number in value]
    if target is not None and target not in names:
        message = f'the target "{target}" is not in the list and is put first'
        findings.add("odd_answer", message, place, field="gt_img_ids")
    return tuple(dict.fromkeys((*([target] if target else []), *names)))
