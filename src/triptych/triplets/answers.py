"""Several right answers a query: ``ground_truth_multi.json`` beside FashionIQ-like annotations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from triptych.errors import DataError
from triptych.triplets.benchmark import QuerySet
from triptych.triplets.entries import UnknownKeys, check_members
from triptych.triplets.findings import Findings, Place
from triptych.triplets.jsonfiles import read_json

FILE = "ground_truth_multi.json"

_KNOWN = ("category", "row", "gt_img_ids", "split", "id", "candidate", "target", "changed")

Answers = dict[tuple[str, str], dict[str, tuple[str, ...]]]


def read_answers(root: Path, query_sets: Mapping[tuple[str, str], QuerySet], findings: Findings) -> Answers:
    """Read every right image of each query, the target first.

    The file is a list of ``{"category", "row", "gt_img_ids"}``, ``row`` being the place in the category's
    caption file; ``split`` is ``val`` where it is not given. Without a file there are no answers.

    Args:
        root: the data folder.
        query_sets: by split and category.
        findings: gets every entry that does not fit.

    Returns:
        Per split and category the answers by ``triplet_id``.
    """
    answers: Answers = {}
    if not (root / FILE).is_file():
        return answers
    try:
        entries = read_json(root / FILE, FILE)
    except DataError as error:
        findings.add_error("unreadable_file", error)
        return answers
    if not isinstance(entries, list):
        findings.add("not_a_list", "a list of entries is expected", Place(FILE))
        return answers
    unknown = UnknownKeys(_KNOWN)
    galleries = {key: set(query_set.gallery) for key, query_set in query_sets.items()}
    for number, entry in enumerate(entries):
        place = Place(FILE, number)
        if not isinstance(entry, Mapping):
            _refuse(findings, place, None, "an object is expected")
            continue
        unknown.see(entry, place)
        key = (str(entry.get("split", "val")), str(entry.get("category")))
        if key not in query_sets:
            _refuse(findings, place, "category", f"there are no {key[0]} queries of category {key[1]}")
            continue
        found = _answers_of(entry, query_sets[key], galleries[key], place, findings)
        if found:
            triplet_id, images = found
            answers.setdefault(key, {})[triplet_id] = images
    unknown.report(findings)
    return answers


def _answers_of(
    entry: Mapping[str, Any], query_set: QuerySet, gallery: set[str], place: Place, findings: Findings
) -> tuple[str, tuple[str, ...]] | None:
    row, images = entry.get("row"), entry.get("gt_img_ids")
    triplet_id = f"{query_set.category}.{query_set.split}.{row}"
    if type(row) is not int or triplet_id not in query_set.queries:
        problem = f"row {row!r} is not among the {len(query_set.queries)} queries of {query_set.category}"
        _refuse(findings, place, "row", problem)
        return None
    if not isinstance(images, list) or not images or not all(isinstance(image, str) for image in images):
        _refuse(findings, place, "gt_img_ids", "a list of ids, as texts, is expected")
        return None
    query = query_set.queries[query_set.queries.row_of(triplet_id)]
    for field, value in (("candidate", query.reference), ("target", query.target)):
        if field in entry and str(entry[field]) != value:
            problem = f'{entry[field]!r} is not the {field} of this query, which is "{value}"'
            _refuse(findings, place, field, problem)
            return None
    if not check_members(
        [("gt_img_ids", image) for image in images], gallery, "the gallery", place, findings
    ):
        return None
    if query.target is not None and query.target not in images:
        message = f'the target "{query.target}" is not in the list and is put first'
        findings.add("odd_answer", message, place, field="gt_img_ids")
    first = () if query.target is None else (query.target,)
    return triplet_id, tuple(dict.fromkeys((*first, *images)))


def _refuse(findings: Findings, place: Place, field: str | None, problem: str) -> None:
    """Report an entry that does not fit."""
    mend = "Make the file anew for these captions, or remove it: then only the target counts as right."
    findings.add("bad_answer", problem, place, field=field, mend=mend)
