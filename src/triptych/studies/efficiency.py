"""What methods cost: counted from their sizes both ways, measured in processes of their own, beside their recall."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triptych.errors import TriptychError
from triptych.evaluation.tables import Table
from triptych.files import write_json
from triptych.methods.ablations import apply_ablations
from triptych.studies.layout import Report
from triptych.studies.measure_cost import Measured, Request
from triptych.studies.reproduce import label_of
from triptych.training.plan import Options, Planner

VARIANTS = ("sprc", "tme", "intent.A1", "intent", "conesep", "habit.D6", "habit")
"""The rows of the papers' three tables, "w/o VIC" and "w/o History" among them."""


@dataclass(frozen=True)
class Cost:
    """What a method, or an ablation row, costs.

    Attributes:
        variant: a method, or ``METHOD.ROW``.
        parameters: all, trained, and as papers' profilers count them.
        gmacs: of a triplet's training forward and of a query, as papers print it (``hooked``) and true.
        measured: seconds and bytes; None where only counted.
    """

    variant: str
    parameters: Mapping[str, int]
    gmacs: Mapping[str, float]
    measured: Measured | None = None


def count_cost(
    variant: str, backbone: Mapping[str, Any], switches: Mapping[str, Any], batch_size: int
) -> Cost:
    """Count parameters and multiply-accumulates, without weights (specification 2.7).

    Args:
        variant: a method, or ``METHOD.ROW``.
        backbone: ``{"name": ..., sizes}``.
        switches: of the method, beside those of the row.
        batch_size: triplets a step.
    """
    planner = Planner(
        backbone, method_settings(variant, switches), Options(batch_size=batch_size, cached=False)
    )
    return Cost(variant, planner.parameters(), planner.gmacs())


def method_settings(variant: str, switches: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``{"name": ..., switches}`` of a method or an ablation row."""
    method, dot, _ = variant.partition(".")
    return apply_ablations([variant] if dot else [], {"name": method, **switches})


def measure(folder: Path, variant: str, request: Request) -> Measured:
    """Measure in a process of its own, unless the folder holds the answer to the same request.

    Raises:
        TriptychError: the process failed; its last words are in the message.
    """
    path = folder / f"{variant}.json"
    asked = request.model_dump(mode="json")
    if path.is_file():
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["request"] == asked:
            return Measured.model_validate(kept["measured"])
    command = [sys.executable, "-m", "triptych.studies.measure_cost", request.model_dump_json()]
    environment = {"OMP_WAIT_POLICY": "passive", **os.environ}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        raise TriptychError(f"measuring {variant} failed: {result.stderr.strip()[-500:]}")
    measured = Measured.model_validate_json(result.stdout.splitlines()[-1])
    write_json(path, {"request": asked, "measured": measured.model_dump(mode="json")})
    return measured


def cost_report(
    costs: Sequence[Cost],
    request: Request,
    *,
    name: str = "efficiency",
    printed: Mapping[str, tuple[float, ...]] | None = None,
    source: str = "",
    recalls: Callable[[str], Mapping[str, str]] = lambda variant: {},
    notes: Sequence[str] = (),
) -> Report:
    """Lay costs out.

    Args:
        costs: a line each.
        request: how they were measured.
        name: of the table.
        printed: variant to what a paper prints: FLOPs in 10^9, parameters in 10^6; shown for the backbone that
            papers use only.
        source: paper and table of ``printed``.
        recalls: gives the recall columns of a variant, name to figure.
        notes: what else must be said.
    """
    columns = list(dict.fromkeys(column for cost in costs for column in recalls(cost.variant)))
    shown = printed if printed and str(request.backbone.get("name", "")).startswith("blip2-vitg") else None
    rows: list[tuple[str, ...]] = []
    quoted: list[bool] = []
    for cost in costs:
        own = recalls(cost.variant)
        rows.append((label_of(cost.variant), *_cells(cost), *(own.get(column, "–") for column in columns)))
        quoted.append(False)
        if shown and cost.variant in shown:
            flops, parameters = shown[cost.variant][:2]
            dashes = ("–",) * (6 + len(columns))
            line = (
                f"{label_of(cost.variant)} (quoted)",
                f"{flops:.1f}",
                "–",
                "–",
                f"{parameters:.2f}",
                *dashes,
            )
            rows.append(line)
            quoted.append(True)
    table = Table(
        title=f"{name}: cost on backbone {request.backbone.get('name', 'lite')}, batch {request.batch_size}",
        header=(
            "method", "training GMAC, hooks", "training GMAC", "query GMAC", "parameters M, hooks",
            "parameters M", "peak memory GB", "train s/step, first epoch", "late epoch",
            "test s/query, batch 1", "batch 32", *columns,
        ),
        rows=tuple(rows),
        names=1,
        headline=(False,) * len(rows),
        quoted=tuple(quoted),
    )  # fmt: skip
    return Report((table,), (*_notes(costs, request, source if shown else ""), *notes), _records(costs, name))


def _cells(cost: Cost) -> tuple[str, ...]:
    counted = (
        f"{cost.gmacs['training_hooked']:.2f}",
        f"{cost.gmacs['training']:.2f}",
        f"{cost.gmacs['query']:.3f}",
        f"{cost.parameters['hooked'] / 1e6:.2f}",
        f"{cost.parameters['all'] / 1e6:.2f}",
    )
    found = cost.measured
    if found is None:
        return (*counted, *("–",) * 5)
    times = (*found.phases, *found.queries.values())
    return (*counted, f"{found.memory_bytes / 1e9:.2f}", *(f"{seconds:.4f}" for seconds in times))


def _notes(costs: Sequence[Cost], request: Request, source: str) -> list[str]:
    how = "pictures are encoded in every step" if request.live else "image tokens are there already"
    notes = [
        "Hooks: Linear, convolution and LayerNorm modules of one triplet's training forward, as papers print"
        " (specification 2.7); passes without gradient for statistics alone are left out. The other counts hold"
        " every matrix product and every parameter.",
    ]
    devices = sorted({cost.measured.device for cost in costs if cost.measured})
    if devices:
        notes.append(
            f"Measured on {', '.join(devices)}, precision {request.precision}: median of {request.steps} steps of"
            f" {request.batch_size} triplets, {how}; mean of {request.queries} queries, tower and scoring against"
            f" {request.gallery} images included, after 20 that are not counted. Memory:"
            f" {'of the whole process' if devices == ['cpu'] else 'allocated on the GPU'}, at its peak in training."
        )
    else:
        notes.append("Counted only; nothing was measured.")
    if source:
        notes.append(f"Quoted, not measured here: {source}; its memory and times are of other hardware.")
    return notes


def _records(costs: Sequence[Cost], name: str) -> tuple[Mapping[str, Any], ...]:
    found = []
    for cost in costs:
        values: dict[str, float] = {
            **{f"parameters_{key}": value for key, value in cost.parameters.items()},
            **{f"gmac_{key}": value for key, value in cost.gmacs.items()},
        }
        if cost.measured:
            values |= {
                "memory_bytes": cost.measured.memory_bytes,
                "train_seconds_first_epoch": cost.measured.phases[0],
                "train_seconds_late_epoch": cost.measured.phases[1],
                **{f"query_seconds_batch_{size}": value for size, value in cost.measured.queries.items()},
            }
        found += [
            {"table": name, "kind": "cost", "method": label_of(cost.variant), "metric": key, "value": value}
            for key, value in values.items()
        ]
    return tuple(found)
