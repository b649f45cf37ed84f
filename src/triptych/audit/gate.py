"""A gate for a data repository's continuous integration: too many wrong triplets fail, with SARIF that says which."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from triptych.audit.rules import RULES
from triptych.audit.verdicts import Verdicts
from triptych.errors import UsageError
from triptych.files import write_json

MOST_RESULTS = 5000
"""What code hosts accept of one tool; the worst triplets are kept."""


@dataclass(frozen=True)
class Gate:
    """Whether the data passes.

    Attributes:
        share: estimated share of wrong triplets.
        limit: the share that is allowed.
        flagged: how many triplets are flagged.
        triplets: of all.
    """

    share: float
    limit: float
    flagged: int
    triplets: int

    @property
    def passes(self) -> bool:
        """Whether the share is within the limit."""
        return self.share <= self.limit

    @property
    def sentence(self) -> str:
        """The result in a line."""
        relation = "within" if self.passes else "over"
        return (
            f"{'PASS' if self.passes else 'FAIL'}: {self.share:.2%} of {self.triplets:,} triplets are estimated to be "
            f"wrong, {relation} the limit of {self.limit:.2%}; {self.flagged:,} are flagged"
        )


def parse_share(text: str) -> float:
    """Read a share such as ``2%`` or ``0.02``.

    Raises:
        UsageError: it is none.

    Example:
        >>> parse_share("2%"), parse_share("0.02")
        (0.02, 0.02)
    """
    number = text.strip()
    try:
        value = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise UsageError(f"--fail-over {text}: write a share such as 2% or 0.02")
    return value


def gate(verdicts: Verdicts, summary: dict[str, Any], limit: float) -> Gate:
    """Compare the estimated share of wrong triplets with a limit."""
    return Gate(float(summary["wrong"]["share"]), limit, int(summary["flagged"]), len(verdicts))


def write_sarif(path: Path, verdicts: Verdicts, result: Gate) -> None:
    """Write the flagged triplets as SARIF 2.1.0, worst first; a triplet is named by a logical location.

    Source: OASIS, Static Analysis Results Interchange Format 2.1.0.
    """
    scores = verdicts.array("score")
    flagged = np.flatnonzero(verdicts.array("flagged"))
    worst = flagged[np.argsort(scores[flagged], kind="stable")][:MOST_RESULTS]
    names = ("triplet_id", "corner", "rules", "reasons", "reference", "captions", "target")
    columns = {name: verdicts.column(name) for name in names}
    rules = {
        f"wrong-{corner}": f"the {corner} is probably wrong" for corner in ("reference", "text", "target")
    }
    rules |= {name: means for name, (_, _, means) in RULES.items()}
    results = []
    for row in worst.tolist():
        line = {name: values[row] for name, values in columns.items()}
        rule = line["rules"][0] if line["rules"] else f"wrong-{line['corner'] or 'target'}"
        said = (
            line["reasons"][0] if line["reasons"] else f"the {line['corner'] or 'target'} is probably wrong"
        )
        text = " / ".join(line["captions"])
        results.append(
            {
                "ruleId": rule,
                "level": "error" if scores[row] < 0.1 else "warning",
                "rank": round(100 * (1 - float(scores[row])), 1),
                "message": {
                    "text": f'{line["triplet_id"]}: {said} ({line["reference"]} + "{text}" -> {line["target"]})'
                },
                "locations": [
                    {
                        "physicalLocation": {
                            "artifactLocation": {"uri": Path(str(verdicts.info["data"])).as_uri()}
                        },
                        "logicalLocations": [{"fullyQualifiedName": line["triplet_id"], "kind": "element"}],
                    }
                ],
            }
        )
    driver = {
        "name": "triptych audit",
        "version": _version(),
        "rules": [{"id": name, "shortDescription": {"text": text}} for name, text in rules.items()],
    }
    run = {
        "tool": {"driver": driver},
        "results": results,
        "properties": {
            "passes": result.passes,
            "estimated_share": result.share,
            "limit": result.limit,
            "flagged": result.flagged,
            "left_out": int(len(flagged) - len(worst)),
        },
    }
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    write_json(path, {"$schema": schema, "version": "2.1.0", "runs": [run]})


def _version() -> str:
    try:
        return version("triptych")
    except PackageNotFoundError:  # run from the source folder without an installation
        return "unknown"
