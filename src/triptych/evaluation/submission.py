"""The files that the CIRR and CIRCO servers score: rankings in, a file out.

CIRR asks for two files, each an object with ``"version": "rc2"``, ``"metric"`` (``recall`` or
``recall_subset``) and, for the ``pairid`` of every query, its 50 best pictures, or the 3 best of its subset.
CIRCO asks for one: for the id of every query its 50 best pictures, as COCO's numbers. The reference is never
listed. :mod:`~triptych.evaluation.submission_check` checks such a file.

Source: specification, sections 2.3 and 2.4; the servers' rules in the READMEs of the two data sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from triptych.errors import DataError, UsageError
from triptych.evaluation.ranking import UNRANKED, Ranking
from triptych.files import write_json

if TYPE_CHECKING:
    from triptych.triplets.benchmark import Benchmark, QuerySet

VERSION = "rc2"
NUM_NAMES = {"recall": 50, "recall_subset": 3}
"""How many pictures each of CIRR's two files lists for a query."""

NUM_IDS = 50
"""How many pictures CIRCO's file lists for a query."""

Answers = dict[str, Any]


def query_id(triplet_id: str) -> str:
    """Return what the server calls a query: CIRR's pairid, CIRCO's id.

    Example:
        >>> query_id("test1.12063")
        '12063'
    """
    return triplet_id.rpartition(".")[2]


def cirr_answers(query_set: QuerySet, ranking: Ranking) -> dict[str, Answers]:
    """Make the contents of CIRR's two files, by metric.

    Args:
        query_set: the queries of ``test1`` (or ``val``); each should have a group.
        ranking: the 50 best of each query, its reference taken out, and in ``ranks`` where the members of its
            group that are in the gallery stand.

    Raises:
        DataError: queries have no subset.
    """
    places, names = set(query_set.gallery), query_set.gallery
    queries = list(query_set.queries)
    alone = [query.triplet_id for query in queries if query.group is None]
    if alone:
        raise DataError(
            f"{len(alone)} of {len(queries)} queries have no subset, such as {alone[0]}: there is nothing to rank"
            " for recall_subset",
            field="img_set",
            mend="Fetch the captions file again.",
        )
    recall: Answers = {"version": VERSION, "metric": "recall"}
    subset: Answers = {"version": VERSION, "metric": "recall_subset"}
    for row, query in enumerate(queries):
        key = query_id(query.triplet_id)
        best = ranking.indices[row][: NUM_NAMES["recall"]]
        recall[key] = [names[index] for index in best.tolist() if index >= 0]
        members = [name for name in query.group or () if name in places]
        order = np.argsort(ranking.ranks[row], kind="stable")
        own = [members[at] for at in order if ranking.ranks[row][at] != UNRANKED]
        subset[key] = own[: NUM_NAMES["recall_subset"]]
    return {"recall": recall, "recall_subset": subset}


def circo_answers(query_set: QuerySet, ranking: Ranking) -> Answers:
    """Make the contents of CIRCO's file.

    Args:
        query_set: the queries of ``test`` or ``val``.
        ranking: the 50 best of each query, its reference taken out.
    """
    return {
        query_id(query.triplet_id): [
            int(query_set.gallery[index]) for index in ranking.indices[row][:NUM_IDS].tolist() if index >= 0
        ]
        for row, query in enumerate(query_set.queries)
    }


def write_submission(
    folder: Path, benchmark: Benchmark, split: str, rankings: Sequence[Ranking]
) -> tuple[Path, ...]:
    """Write the files that a benchmark's server scores.

    Args:
        folder: where they go: ``cirr_<split>_recall.json`` and ``cirr_<split>_recall_subset.json``, or
            ``circo_<split>.json``.
        benchmark: CIRR or CIRCO, or data in their layout.
        split: which of its splits.
        rankings: one, of the split's queries, as :func:`cirr_answers` or :func:`circo_answers` take it.

    Returns:
        The files.

    Raises:
        UsageError: the data has no server.
        DataError: the data cannot be submitted, or the files cannot be written.
    """
    check_can_submit(benchmark)
    (part,) = benchmark.splits[split]
    if benchmark.protocol == "circo":
        files = {folder / f"circo_{split}.json": circo_answers(part, rankings[0])}
    else:
        files = {
            folder / f"cirr_{split}_{metric}.json": answers
            for metric, answers in cirr_answers(part, rankings[0]).items()
        }
    for path, answers in files.items():
        write_json(path, answers, indent=None)
    return tuple(files)


def check_can_submit(benchmark: Benchmark) -> None:
    """Raise ``UsageError`` where a benchmark has no server to submit to."""
    if benchmark.protocol not in ("cirr", "circo"):
        raise UsageError(
            f"{benchmark.name} has no server to submit to; only CIRR and CIRCO have.\n"
            "  Leave out --submission to score a split whose targets are known."
        )
