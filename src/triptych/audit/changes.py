"""Changes: what verdicts and a reviewer's decisions do to a table of triplets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from triptych.audit.verdicts import Verdicts
from triptych.errors import DataError, UsageError
from triptych.noise.corruption import TripletField, Value
from triptych.noise.manifest import COLUMN
from triptych.triplets.table import TripletTable

Mode: TypeAlias = Literal["drop", "fix", "weight"]
Action: TypeAlias = Literal["drop", "fix", "weight", "keep"]
Choice: TypeAlias = Literal["keep", "drop", "fix", "skip"]

DECISIONS_FORMAT = "triptych-decisions-1"
FIX_AT = 0.5
"""A fix is made without a reviewer only where its corner is wrong with at least this chance."""


@dataclass(frozen=True, slots=True)
class Change:
    """What is done to one triplet, and why.

    Attributes:
        triplet_id: in the audited data.
        action: ``keep`` stands in the log where a triplet was flagged and nothing is done.
        why: ``flagged`` or ``decision``, with the reason.
        score: of the verdict.
        field: that is fixed.
        old: value of that field.
        new: value of that field.
        weight: that the triplet gets.
    """

    triplet_id: str
    action: Action
    why: str
    score: float
    field: TripletField | None = None
    old: Value | None = None
    new: Value | None = None
    weight: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for a line of the log."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Decision:
    """What a reviewer decided on a triplet; ``field`` and ``value`` say which fix, where it is one."""

    choice: Choice
    field: TripletField | None = None
    value: Value | None = None


def check_modes(modes: Sequence[str]) -> frozenset[Mode]:
    """Check what is to be done with flagged triplets.

    Raises:
        UsageError: one is unknown, or they contradict each other.
    """
    known = get_args(Mode)
    if unknown := [mode for mode in modes if mode not in known]:
        raise UsageError(f'unknown way to clean "{unknown[0]}"; there are: {", ".join(known)}')
    if {"drop", "weight"} <= set(modes):
        raise UsageError("--drop and --weight contradict each other; --fix goes with either")
    return frozenset(mode for mode in known if mode in modes)


def plan_changes(
    verdicts: Verdicts, modes: frozenset[Mode], decisions: Mapping[str, Decision] | None = None
) -> list[Change]:
    """Say what happens to each triplet that is flagged, decided on, or weighted; the others are left alone.

    A decision always wins. ``fix`` takes the best proposal for the corner that is wrong with a chance of at least
    0.5; where there is none, ``drop`` or ``weight`` does its work, or else the triplet is kept and the log says so.

    Raises:
        DataError: a decision is on a triplet that is not in the verdicts, or its fix has no value.
    """
    decided = dict(decisions or {})
    rows = {name: row for row, name in enumerate(verdicts.column("triplet_id"))}
    if unknown := [name for name in decided if name not in rows]:
        raise DataError(
            f"{len(unknown)} decisions are on triplets that the verdicts do not have, such as {unknown[0]}",
            mend="Use the decisions that were exported from this audit's report.",
        )
    columns = {name: verdicts.column(name) for name in verdicts.data.schema.names if name != "evidence"}
    changes = []
    for name, row in rows.items():
        line = {column: values[row] for column, values in columns.items()}
        decision = decided.get(name)
        if decision is not None and decision.choice != "skip":
            changes.append(_by_decision(line, decision))
        elif line["flagged"] and modes:
            changes.append(_by_mode(line, modes))
        elif "weight" in modes:
            changes.append(Change(name, "weight", "score", _score(line), weight=_score(line)))
    return changes


def apply_changes(table: TripletTable, changes: Sequence[Change]) -> TripletTable:
    """Return the cleaned table; weights are no part of a table and are left to the file."""
    for name, column in COLUMN.items():
        values = {
            change.triplet_id: change.new
            for change in changes
            if change.action == "fix" and change.field == name
        }
        table = table.replace(column, values) if values else table
    return table.without(change.triplet_id for change in changes if change.action == "drop")


def read_decisions(path: Path) -> dict[str, Decision]:
    """Read what the report exported.

    Raises:
        DataError: the file is missing or damaged.
    """
    mend = "Export it from the audit's report.html."
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise DataError("there are no decisions here", file=path, mend=mend) from error
    except (OSError, ValueError) as error:
        raise DataError(f"the decisions cannot be read: {error}", file=path, mend=mend) from error
    if not isinstance(content, dict) or content.get("format") != DECISIONS_FORMAT:
        raise DataError(f'"format" should be "{DECISIONS_FORMAT}"', file=path, field="format", mend=mend)
    given = content.get("decisions")
    if not isinstance(given, dict):
        raise DataError(
            '"decisions" must be an object by triplet id', file=path, field="decisions", mend=mend
        )
    return {name: _decision(name, value, path) for name, value in given.items()}


def check_same_data(verdicts: Verdicts, table: TripletTable, where: Path) -> None:
    """Raise unless the verdicts are on this table.

    Raises:
        DataError: they are on other triplets, or the triplets have changed since.
    """
    if verdicts.info.get("fingerprint") == table.fingerprint():
        return
    ids = set(verdicts.column("triplet_id"))
    known = sum(name in ids for name in table.triplet_ids)
    problem = f"the verdicts are on other triplets: {known} of {len(table)} ids are the same"
    if known == len(table) == len(ids):
        problem = "the ids are the same, but the triplets are not those that were audited"
    mend = "Give the data that was audited, and --noise MANIFEST if it was audited with noise."
    raise DataError(problem, file=where, mend=mend)


def write_log(path: Path, changes: Sequence[Change]) -> None:
    """Write the changes as JSON lines, whole or not at all."""
    from triptych.files import atomic_write

    with atomic_write(path) as file:
        for change in changes:
            file.write(json.dumps(change.as_dict(), ensure_ascii=False) + "\n")


def _by_decision(line: Mapping[str, Any], decision: Decision) -> Change:
    name, score = line["triplet_id"], _score(line)
    if decision.choice in ("drop", "keep"):
        return Change(name, "drop" if decision.choice == "drop" else "keep", "decision", score)
    if decision.field is not None and decision.value is not None:
        return Change(
            name, "fix", "decision", score, decision.field, _old(line, decision.field), decision.value
        )
    if (fix := _fix(line)) is None:
        raise DataError(
            f"the decision on {name} accepts a fix, but there is none", mend="Decide on it again."
        )
    return Change(name, "fix", "decision", score, *fix)


def _by_mode(line: Mapping[str, Any], modes: frozenset[Mode]) -> Change:
    name, score = line["triplet_id"], _score(line)
    why = f"flagged: {line['corner']}" + (f" ({', '.join(line['rules'])})" if line["rules"] else "")
    if "fix" in modes and (fix := _fix(line)) is not None and line[f"p_{fix[0]}"] >= FIX_AT:
        return Change(name, "fix", why, score, *fix)
    if "drop" in modes:
        return Change(name, "drop", why, score)
    if "weight" in modes:
        return Change(name, "weight", why, score, weight=score)
    return Change(name, "keep", f"{why}; no fix is sure enough", score)


def _fix(line: Mapping[str, Any]) -> tuple[TripletField, Value, Value] | None:
    """Take the best proposal for the corner that is most likely wrong."""
    corner: TripletField | None = line["corner"]
    if corner is None:
        return None
    proposals = line[f"better_{corner}s"]
    if not proposals:
        return None
    best = tuple(proposals[0]) if corner == "text" else proposals[0]
    return corner, _old(line, corner), best


def _old(line: Mapping[str, Any], corner: TripletField) -> Value:
    value = line[COLUMN[corner]]
    return tuple(value) if isinstance(value, list) else str(value)


def _score(line: Mapping[str, Any]) -> float:
    return round(float(line["score"]), 6)


def _decision(name: str, value: Any, path: Path) -> Decision:
    choice: Any = value.get("decision") if isinstance(value, dict) else None
    if choice not in get_args(Choice):
        known = ", ".join(get_args(Choice))
        raise DataError(f"the decision on {name} is {choice!r}; there are: {known}", file=path, field=name)
    fix = value.get("fix")
    if choice != "fix" or fix is None:
        return Decision(choice)
    corner: Any = fix.get("field") if isinstance(fix, dict) else None
    new: Any = fix.get("value") if isinstance(fix, dict) else None
    texts = isinstance(new, list) and bool(new) and all(isinstance(part, str) for part in new)
    good = (corner == "text" and texts) or (corner in ("reference", "target") and isinstance(new, str))
    if not good:
        raise DataError(f"the fix of {name} is not a field with its value", file=path, field=name)
    return Decision(choice, corner, tuple(new) if texts else new)
