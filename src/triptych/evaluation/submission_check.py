"""Check a file for the CIRR or CIRCO server by the server's rules, before it is uploaded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triptych.errors import DataError, UsageError
from triptych.evaluation.submission import NUM_IDS, NUM_NAMES, VERSION, query_id

if TYPE_CHECKING:
    from triptych.triplets.benchmark import Benchmark, QuerySet

MAX_BYTES = 5 * 10**6
"""CIRR's server takes no larger file: 5 MB."""

SPECIAL = ("version", "metric")
OFFICIAL_QUERIES = {"cirr": {"test1": 4148, "val": 4181}, "circo": {"test": 800, "val": 220}}
"""How many queries the official splits have; what is expected where the data is not at hand."""


@dataclass(frozen=True)
class Fault:
    """Why a server would refuse a file, or score it as something else.

    Attributes:
        rule: ``size``, ``json``, ``version``, ``metric``, ``queries``, ``length``, ``unknown``, ``duplicate``,
            ``reference``, ``type`` or ``subset``.
        message: what is wrong, and where.
        query: the query at fault.
    """

    rule: str
    message: str
    query: str | None = None


@dataclass(frozen=True)
class SubmissionReport:
    """What :func:`check_submission` found.

    Attributes:
        path: the file.
        kind: ``cirr recall``, ``cirr recall_subset``, ``circo``, or ``unknown`` where the file does not say.
        queries: how many queries it answers.
        faults: everything that is wrong.
        unchecked: the rules that need the data, where it was not given.
    """

    path: Path
    kind: str
    queries: int
    faults: tuple[Fault, ...]
    unchecked: tuple[str, ...] = ()

    @property
    def passes(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults


def check_submission(path: Path, benchmark: Benchmark | None = None) -> SubmissionReport:
    """Check a submission file.

    Args:
        path: the file.
        benchmark: the CIRR or CIRCO data; without it names, ids and references cannot be checked, and the number
            of queries is compared with that of the official splits.

    Raises:
        UsageError: there is no such file, or ``benchmark`` is of data that has no server.
    """
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file")
    if benchmark is not None and benchmark.protocol not in OFFICIAL_QUERIES:
        raise UsageError(f"{benchmark.name} is neither CIRR nor CIRCO: its files have no server")
    size = path.stat().st_size
    faults: list[Fault] = []
    if size > MAX_BYTES:
        faults.append(Fault("size", f"the file has {size:,} bytes; the server takes {MAX_BYTES:,} (5 MB)"))
    try:
        values = json.loads(path.read_bytes().decode("utf-8"), object_pairs_hook=_pairs)
    except (ValueError, RecursionError) as error:
        return SubmissionReport(
            path, "unknown", 0, (*faults, Fault("json", f"the file is not JSON: {error}"))
        )
    except DataError as error:
        return SubmissionReport(path, "unknown", 0, (*faults, Fault("queries", str(error))))
    if not isinstance(values, dict):
        faults.append(Fault("json", "the file must hold one object: query to list of pictures"))
        return SubmissionReport(path, "unknown", 0, tuple(faults))
    answers = {key: names for key, names in values.items() if key not in SPECIAL}
    is_cirr = any(key in values for key in SPECIAL) or (
        benchmark is not None and benchmark.protocol == "cirr"
    )
    if benchmark is not None and (benchmark.protocol == "cirr") != is_cirr:
        faults.append(
            Fault("metric", f'"version" and "metric" are CIRR\'s, but {benchmark.name} is CIRCO: remove them')
        )
        is_cirr = False
    part = _split_of(answers, benchmark)
    if is_cirr:
        kind, length = _cirr_kind(values, faults)
        faults += _check_queries(answers, part, benchmark, "cirr")
        for query, names in answers.items():
            faults += _check_list(query, names, str, length)
    else:
        kind, length = "circo", NUM_IDS
        faults += _check_queries(answers, part, benchmark, "circo")
        for query, names in answers.items():
            faults += _check_list(query, names, int, length)
    unchecked: tuple[str, ...] = ("known queries", "known pictures", "reference not listed")
    if part is not None and benchmark is not None:
        unchecked = () if benchmark.gallery_known else ("known pictures",)
        faults += _check_names(
            answers,
            part,
            subset=kind == "cirr recall_subset",
            is_cirr=is_cirr,
            complete=benchmark.gallery_known,
        )
    return SubmissionReport(path, kind, len(answers), tuple(faults), unchecked)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise DataError(f'the key "{twice}" is there twice')
    return values


def _cirr_kind(values: Mapping[str, Any], faults: list[Fault]) -> tuple[str, int | None]:
    if values.get("version") != VERSION:
        found = f"it is {values['version']!r}" if "version" in values else "it is missing"
        faults.append(Fault("version", f'"version" must be "{VERSION}"; {found}'))
    metric = values.get("metric")
    if metric in NUM_NAMES:
        return f"cirr {metric}", NUM_NAMES[metric]
    found = f"it is {metric!r}" if "metric" in values else "it is missing"
    known = " or ".join(f'"{name}"' for name in NUM_NAMES)
    faults.append(Fault("metric", f'"metric" must be {known}; {found}'))
    return "unknown", None


def _split_of(answers: Mapping[str, Any], benchmark: Benchmark | None) -> QuerySet | None:
    """Find the split that a file answers: the one that shares most queries with it."""
    if benchmark is None:
        return None
    parts = [part for parts in benchmark.splits.values() for part in parts]

    def shared(part: QuerySet) -> tuple[int, int]:
        known = {query_id(name) for name in part.queries.triplet_ids}
        return len(known & answers.keys()), -len(known ^ answers.keys())

    return max(parts, key=shared, default=None)


def _check_queries(
    answers: Mapping[str, Any], part: QuerySet | None, benchmark: Benchmark | None, server: str
) -> Iterator[Fault]:
    if part is None:
        counts = OFFICIAL_QUERIES[server]
        if len(answers) not in counts.values():
            expected = " or ".join(f"{count:,} ({split})" for split, count in counts.items())
            yield Fault("queries", f"the file answers {len(answers):,} queries; {expected} are expected")
        return
    known = dict.fromkeys(query_id(name) for name in part.queries.triplet_ids)
    where = f"split {part.split} of {benchmark.name if benchmark else server}"
    lacking = [query for query in known if query not in answers]
    if len(answers) != len(known):
        yield Fault(
            "queries",
            f"the file answers {len(answers):,} queries; {where} has {len(known):,}: one list for each",
        )
    if lacking:
        yield Fault("queries", f"{len(lacking):,} queries are not answered, such as {lacking[0]}", lacking[0])
    for query in answers:
        if query not in known:
            yield Fault("queries", f'"{query}" is no query of {where}', query)


def _check_list(query: str, names: Any, kind: type, length: int | None) -> Iterator[Fault]:
    word = "names" if kind is str else "ids"
    if not isinstance(names, list):
        yield Fault("type", f"query {query}: a list of {word} is expected", query)
        return
    wrong = [name for name in names if type(name) is not kind]
    if wrong:
        needed = "a name in quotes" if kind is str else "a whole number"
        yield Fault("type", f"query {query}: {json.dumps(wrong[0])} is not {needed}", query)
        return
    if length is not None and len(names) != length:
        yield Fault(
            "length", f"query {query}: {len(names)} {word} are listed; exactly {length} are expected", query
        )
    twice = _first_twice(names)
    if twice is not None:
        yield Fault("duplicate", f"query {query}: {json.dumps(twice)} is listed twice", query)


def _first_twice(names: Sequence[Any]) -> Any:
    seen = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _check_names(
    answers: Mapping[str, Any], part: QuerySet, *, subset: bool, is_cirr: bool, complete: bool
) -> Iterator[Fault]:
    def called(image: str) -> Any:
        return image if is_cirr else int(image) if image.isdecimal() else image

    gallery = {called(image) for image in part.gallery}
    for query in part.queries:
        key = query_id(query.triplet_id)
        names = answers.get(key)
        if not isinstance(names, list) or not all(isinstance(name, str | int) for name in names):
            continue
        strange = [name for name in names if complete and name not in gallery]
        if strange:
            said = json.dumps(strange[0])
            yield Fault("unknown", f"query {key}: {said} is no picture of {part.split}", key)
        reference = called(query.reference)
        if is_cirr and reference in names:
            yield Fault("reference", f"query {key}: its own reference {json.dumps(reference)} is listed", key)
        outside = [name for name in names if subset and query.group and name not in query.group]
        if outside and not strange:
            said = json.dumps(outside[0])
            yield Fault("subset", f"query {key}: {said} is not a member of its subset", key)
