"""check_data: everything that is wrong with a data set, before any run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from triptych.errors import DataError
from triptych.triplets.benchmark import Benchmark
from triptych.triplets.decoding import ImageError
from triptych.triplets.findings import Finding, Findings, Place
from triptych.triplets.images import ImageStore
from triptych.triplets.missing import MissingPictures, missing_pictures
from triptych.triplets.reader import named_pictures, read_layout

Progress = Callable[[int, int], None]

_BATCH = 256

EVALUATION_ONLY = ("cirr", "circo")
"""Protocols of data that often, or always, comes without training triplets; that is no error then."""


@dataclass(frozen=True)
class CheckReport:
    """What :func:`check_data` found.

    Attributes:
        path: what was checked.
        findings: everything found: the errors first, then warnings, then notes, each in the order found.
        triplets: how many good training triplets there are.
        queries: per split and category how many good queries there are.
        pictures: how many pictures are named by triplets and splits.
        decoded: how many of these could be decoded.
        missing: what each split lacks because pictures are not there.
    """

    path: Path
    findings: tuple[Finding, ...]
    triplets: int
    queries: dict[str, dict[str, int]]
    pictures: int
    decoded: int
    missing: tuple[MissingPictures, ...] = ()

    @property
    def fails(self) -> bool:
        """Whether training or evaluation would fail."""
        return any(finding.severity == "error" for finding in self.findings)

    @property
    def counts(self) -> dict[str, int]:
        """How many findings of each kind there are, in the order of ``findings``."""
        return dict(Counter(finding.kind for finding in self.findings))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "path": str(self.path),
            "fails": self.fails,
            "triplets": self.triplets,
            "queries": self.queries,
            "pictures": self.pictures,
            "decoded": self.decoded,
            "missing": [asdict(line) for line in self.missing],
            "counts": self.counts,
            "findings": [finding.as_dict() for finding in self.findings],
        }


def check_data(
    path: str | Path, *, images: str | Path | None = None, progress: Progress | None = None
) -> CheckReport:
    """List everything that is wrong or odd in a data set; nothing stops it and nothing is changed.

    Every picture that a triplet or a split names is decoded.

    Args:
        path: as for :func:`~triptych.triplets.reader.read_benchmark`.
        images: as there.
        progress: called with how many pictures were decoded, and of how many.

    Raises:
        UsageError: there is nothing at ``path``.
    """
    path = Path(path)
    findings = Findings(strict=False)
    try:
        benchmark = read_layout(path, None if images is None else Path(images), findings)
    except DataError as error:  # not even a layout to read
        findings.add_error("unreadable_file", error)
        return _report(path, findings, None, 0, 0)
    if not len(benchmark.train):
        mend = "Add training captions, or evaluate only: then this does not matter."
        only = benchmark.protocol in EVALUATION_ONLY and benchmark.splits
        findings.add(
            "no_training",
            "there are no good training triplets",
            Place(benchmark.name),
            mend=mend,
            severity="warning" if only else None,
        )
    named = sorted({*named_pictures(benchmark), *findings.mentions})
    decoded = 0
    if len(benchmark.images):
        decoded = _check_pictures(benchmark.images, named, findings, progress)
    elif not findings.counts["pictures"]:
        message = "there are no pictures beside the annotations"
        mend = "Put them into images/, images.zip or images.tar there, or give their place (--images)."
        findings.add("no_pictures", message, Place(benchmark.name), mend=mend, severity="error")
    return _report(path, findings, benchmark, len(named), decoded)


def _check_pictures(
    store: ImageStore, named: list[str], findings: Findings, progress: Progress | None
) -> int:
    """Decode every named picture, on a few threads; return how many are good."""
    good = 0
    for done, (image_id, error) in enumerate(_decode_all(store, named), start=1):
        if error is None:
            good += 1
        elif error.kind == "missing":
            place, field = findings.mentions.get(image_id, (Place(store.path.name), "id"))
            findings.add("image_missing", error.problem, place, field=field, mend=error.mend)
        else:
            place = Place(store.source(image_id))
            findings.add(f"image_{error.kind}", error.problem, place, mend=error.mend)
        if progress is not None:
            progress(done, len(named))
    unused = len(store) - (len(named) - findings.counts["image_missing"])
    if unused > 0:
        message = f"pictures that no triplet or split names: {unused:,}"
        findings.add("unused_picture", message, Place(store.path.name))
    return good


def _decode_all(store: ImageStore, named: list[str]) -> Iterator[tuple[str, ImageError | None]]:
    def attempt(image_id: str) -> tuple[str, ImageError | None]:
        try:
            store.load(image_id)
        except ImageError as error:
            return image_id, error
        return image_id, None

    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        for start in range(0, len(named), _BATCH):
            yield from pool.map(attempt, named[start : start + _BATCH])


def _report(
    path: Path, findings: Findings, benchmark: Benchmark | None, pictures: int, decoded: int
) -> CheckReport:
    order = ("error", "warning", "note")
    queries: dict[str, dict[str, int]] = {}
    for split, query_sets in benchmark.splits.items() if benchmark else ():
        queries[split] = {query_set.category: len(query_set.queries) for query_set in query_sets}
    return CheckReport(
        path=path,
        findings=tuple(sorted(findings.items, key=lambda finding: order.index(finding.severity))),
        triplets=len(benchmark.train) if benchmark else 0,
        queries=queries,
        pictures=pictures,
        decoded=decoded,
        missing=missing_pictures(benchmark) if benchmark and len(benchmark.images) else (),
    )
