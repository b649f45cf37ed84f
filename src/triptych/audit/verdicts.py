"""Verdicts: one row a triplet with its score, the corner that is most likely wrong, why, and what would be right."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from triptych.audit.evidence import FEATURES
from triptych.audit.probes import CORNERS
from triptych.audit.rules import Finding
from triptych.errors import DataError
from triptych.files import atomic_path
from triptych.triplets.table import TripletTable

Array = npt.NDArray[np.float64]

FORMAT = "triptych-verdicts-1"
PROPOSALS = 5
SUSPECT_SCORE = 0.25
"""The score of a triplet that a rule finds suspect, where no model was asked."""

SCHEMA = pa.schema(
    [
        pa.field("triplet_id", pa.string(), nullable=False),
        pa.field("category", pa.string()),
        pa.field("reference", pa.string()),
        pa.field("captions", pa.list_(pa.string())),
        pa.field("target", pa.string()),
        pa.field("score", pa.float32()),
        pa.field("flagged", pa.bool_()),
        pa.field("corner", pa.string()),
        *(pa.field(f"p_{corner}", pa.float32()) for corner in CORNERS),
        pa.field("rules", pa.list_(pa.string())),
        pa.field("reasons", pa.list_(pa.string())),
        pa.field("better_targets", pa.list_(pa.string())),
        pa.field("better_texts", pa.list_(pa.list_(pa.string()))),
        pa.field("better_references", pa.list_(pa.string())),
        pa.field("asked", pa.bool_()),
        pa.field("disagreement", pa.float32()),
        pa.field("evidence", pa.struct([pa.field(name, pa.float32()) for name in FEATURES])),
    ]
)
"""``score`` in [0, 1], low = bad: the chance to be right; ``corner`` is null where nothing is flagged; ``p_*`` are the
chances that this corner is wrong; ``asked`` says whether models judged it, or rules alone."""


@dataclass
class Judged:
    """What the models say of the triplets that they could be asked about.

    Attributes:
        rows: ``[M]`` rows of the audited table.
        wrong: ``[M]`` chance to be wrong.
        corners: ``[M, 3]`` chance that this corner is; sums to ``wrong``.
        figures: ``[M, F]`` evidence.
        disagreement: ``[M]`` of the models.
        targets: up to five better targets of each, best first; likewise texts and references.
    """

    rows: npt.NDArray[np.int64]
    wrong: Array
    corners: Array
    figures: npt.NDArray[np.floating]
    disagreement: npt.NDArray[np.floating]
    targets: Sequence[Sequence[str]]
    texts: Sequence[Sequence[tuple[str, ...]]]
    references: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Verdicts:
    """The verdicts on a table of triplets.

    Attributes:
        data: Arrow rows of :data:`SCHEMA`, in the order of the audited table.
        info: what was audited: the table's fingerprint, the data's path, the threshold of flags.
    """

    data: pa.Table
    info: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.data.num_rows)

    def column(self, name: str) -> list[Any]:
        """Return a column as a Python list."""
        return list(self.data[name].to_pylist())

    def array(self, name: str) -> npt.NDArray[Any]:
        """Return a column of numbers or booleans as an array."""
        return np.asarray(self.data[name].to_numpy())

    def write(self, path: Path) -> None:
        """Write Parquet, whole or not at all; ``info`` is in its metadata."""
        import json

        metadata = {"format": FORMAT, "info": json.dumps(self.info)}
        with atomic_path(path) as temporary:
            pq.write_table(self.data.replace_schema_metadata(metadata), temporary)

    @classmethod
    def read(cls, path: Path) -> Verdicts:
        """Read a file of verdicts, or the folder of an audit.

        Raises:
            DataError: there is none, or it is not of this version.
        """
        import json

        path = path / "verdicts.parquet" if path.is_dir() else path
        mend = "It is what `triptych audit DATA -o AUDIT` writes as AUDIT/verdicts.parquet."
        if not path.is_file():
            raise DataError("there are no verdicts here", file=path, mend=mend)
        try:
            table = pq.read_table(path)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"the verdicts cannot be read: {error}", file=path, mend=mend) from error
        metadata = table.schema.metadata or {}
        if metadata.get(b"format") != FORMAT.encode() or not table.schema.equals(SCHEMA):
            raise DataError("these are no verdicts of this version", file=path, mend=mend)
        return cls(table, json.loads(metadata[b"info"]))


def make_verdicts(
    table: TripletTable,
    findings: Sequence[Finding],
    judged: Judged | None,
    *,
    flag_at: float,
    info: dict[str, Any],
) -> Verdicts:
    """Put rules and models together.

    A rule that cannot be wrong itself (no text, an unreadable picture) gives score 0 and names its corner. Where models
    were asked, the score is theirs and other rules stand beside it; where they were not, a suspect triplet has score
    0.25 and all others 1.

    Args:
        table: the audited triplets.
        findings: of the rules.
        judged: of the models; None where none was asked.
        flag_at: a lower score is flagged.
        info: what to remember of the audit.
    """
    count = len(table)
    score, corners, asked = np.ones(count), np.zeros((count, len(CORNERS))), np.zeros(count, dtype=bool)
    disagreement = np.full(count, np.nan)
    figures = np.full((count, len(FEATURES)), np.nan)
    proposals: dict[str, list[Any]] = {
        name: [[] for _ in range(count)] for name in ("targets", "texts", "references")
    }
    if judged is not None:
        score[judged.rows], corners[judged.rows], asked[judged.rows] = 1 - judged.wrong, judged.corners, True
        disagreement[judged.rows], figures[judged.rows] = judged.disagreement, judged.figures
        for name, values in proposals.items():
            for row, found in zip(judged.rows.tolist(), getattr(judged, name), strict=True):
                values[row] = list(found)
    by_row: dict[int, list[Finding]] = defaultdict(list)
    for finding in findings:
        by_row[table.row_of(finding.triplet_id)].append(finding)
    for row, found in by_row.items():
        _apply_rules(row, found, score, corners, asked)
    flagged = score < flag_at
    named = [
        CORNERS[int(line.argmax())] if line.sum() > 0 and wrong else None
        for line, wrong in zip(corners, flagged, strict=True)
    ]
    columns = {
        "triplet_id": table.triplet_ids,
        **{name: table.column(name) for name in ("category", "reference", "captions", "target")},
        "score": score,
        "flagged": flagged,
        "corner": named,
        **{f"p_{corner}": corners[:, at] for at, corner in enumerate(CORNERS)},
        "rules": [[finding.rule for finding in by_row[row]] for row in range(count)],
        "reasons": [[finding.sentence for finding in by_row[row]] for row in range(count)],
        **{f"better_{name}": values for name, values in proposals.items()},
        "asked": asked,
        "disagreement": disagreement,
        "evidence": [dict(zip(FEATURES, line, strict=True)) for line in figures.tolist()],
    }
    data = pa.table(
        {name: pa.array(columns[name], SCHEMA.field(name).type) for name in SCHEMA.names}, schema=SCHEMA
    )
    return Verdicts(data, {**info, "fingerprint": table.fingerprint(), "flag_at": flag_at})


def _apply_rules(
    row: int, found: Sequence[Finding], score: Array, corners: Array, asked: npt.NDArray[np.bool_]
) -> None:
    certain = [finding for finding in found if finding.weight == "wrong"]
    suspect = [finding for finding in found if finding.weight == "suspect"]
    if certain:
        score[row] = 0.0
        corners[row] = 0.0
        corners[row, CORNERS.index(certain[0].corner)] = 1.0
    elif suspect and not asked[row]:
        score[row] = SUSPECT_SCORE
        corners[row, CORNERS.index(suspect[0].corner)] = 1 - SUSPECT_SCORE
