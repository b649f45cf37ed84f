"""The papers' claims that were argued and never measured: which trainings each needs, and what is found."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from triptych.evaluation.comparison import Unfinished
from triptych.evaluation.comparison_tables import NOTHING, spread
from triptych.evaluation.tables import Table
from triptych.files import write_json
from triptych.methods.conesep_switches import ConeSepConfig
from triptych.studies.cells import Cell, NoiseLevel, Study, settings_of
from triptych.studies.layout import Line, Report
from triptych.studies.reproduce import Choice, variant_lines

Claim = Literal["references", "backlash", "terms"]
CLAIMS: Mapping[Claim, str] = {
    "references": "INTENT: a model that learned invariance finds the target though the reference's look is altered",
    "backlash": "ConeSep: unlearning wrong triplets leaves the clean ones near to them unharmed",
    "terms": "each loss term moves something",
}
"""Each claim in a sentence."""
REFERENCES = ("rcl", "intent.A1", "intent")
TERMS = ("habit", "intent", "conesep")
BEFORE, AFTER = "before unlearning", "after unlearning"
WITHOUT, MASKED = "w/o unlearning (D13)", "masking only: D13, the wrong left out by a perfect filter"
Progress = Callable[[str, int, int], None]


def claim_lines(claim: Claim, data: str, choice: Choice, training: Mapping[str, Any]) -> tuple[Line, ...]:
    """Return the lines of a claim: what must be trained for it.

    Args:
        claim: which.
        data: the data set's name.
        choice: seeds, noise, and methods or rows in place of the claim's own.
        training: settings of all cells; the model before unlearning has fewer epochs of the same schedule.
    """
    if claim == "backlash":
        lines: list[Line] = []
        for level in choice.levels((0.2,)):
            if level.ratio and not level.oracle:
                lines += _backlash_lines(level, data, choice, training)
        return tuple(lines)
    return variant_lines(choice.methods or (REFERENCES if claim == "references" else TERMS), data, choice)


def _backlash_lines(level: NoiseLevel, data: str, choice: Choice, training: Mapping[str, Any]) -> list[Line]:
    from triptych.training.config import TrainingConfig

    full = Cell("conesep", level, 0, data=data)
    without = replace(full, row="conesep.D13")
    warm_up = ConeSepConfig().warmup_epochs
    epochs = int(training.get("epochs", TrainingConfig().epochs))
    early = settings_of({"training.epochs": warm_up, "training.horizon_epochs": epochs})
    return [
        *choice.line(replace(full, settings=early), BEFORE),
        *choice.line(full, AFTER),
        *choice.line(without, WITHOUT),
        *choice.line(replace(without, noise=replace(level, oracle=True)), MASKED),
    ]


def claim_report(
    claim: Claim, study: Study, lines: Sequence[Line], *, seed: int = 0, progress: Progress | None = None
) -> Report:
    """Measure what is finished and lay it out; what is not is named and counted.

    Args:
        claim: which.
        study: whose cells are measured; what was measured is kept in their folders.
        lines: of the claim, on one data set.
        seed: of alterations.
        progress: called with (what is done, done, total).
    """
    unfinished = [
        Unfinished(cell.name, "not finished")
        for line in lines
        for cell in line.cells
        if not study.is_done(cell)
    ]
    told = progress or (lambda what, done, total: None)
    make = {"references": _references, "backlash": _backlash, "terms": _terms}[claim]
    table, notes, records = make(study, lines, seed, told)
    said = [f"Claim: {CLAIMS[claim]}.", *notes]
    seeds = sorted({cell.seed for line in lines for cell in line.cells if study.is_done(cell)})
    said.append(f"Seeds: {', '.join(map(str, seeds)) or 'none'}; ± is the standard deviation over them.")
    if unfinished:
        names = "; ".join(each.name for each in unfinished)
        said.append(f"{len(unfinished)} runs are not finished and are in no mean: {names}.")
    kept = tuple({"table": f"claims-{claim}", "kind": "measured", **record} for record in records)
    return Report((table,), tuple(said), kept, tuple(unfinished))


Found = tuple[Table, list[str], list[dict[str, Any]]]


def _references(study: Study, lines: Sequence[Line], seed: int, told: Progress) -> Found:
    from triptych.studies.altered_references import score_altered
    from triptych.training.model import load_model
    from triptych.triplets import read_benchmark

    def measure(cell: Cell) -> list[dict[str, Any]]:
        model = load_model(study.folder / cell.name)
        benchmark = read_benchmark(study.data[cell.data])
        found = score_altered(
            model, benchmark, seed=seed, progress=lambda done, total: told(cell.name, done, total)
        )
        return [asdict(each) for each in found]

    rows, records = [], []
    for line in lines:
        kept = [
            _kept(study, cell, "altered-references", seed, measure)
            for cell in line.cells
            if study.is_done(cell)
        ]
        for at, first in enumerate(kept[0] if kept else ()):
            own = {name: np.array([each[at]["recalls"][name] for each in kept]) for name in ("R@10", "R@50")}
            plain = np.array([each[0]["recalls"]["R@10"] for each in kept])
            change = own["R@10"] - plain
            left = f"{100 * own['R@10'].mean() / plain.mean():.0f} %" if plain.mean() else NOTHING
            points = f"{change.mean():+.1f}" + (f" ± {change.std(ddof=1):.1f}" if len(change) > 1 else "")
            head = (line.label, line.noise.name, first["alteration"], first["strength"])
            rows.append(
                (*head, spread(own["R@10"]), spread(own["R@50"]), points if at else "", left if at else "")
            )
            records += [
                {"method": line.label, "noise": line.noise.name, "alteration": first["alteration"],
                 "strength": first["strength"], "metric": name, "value": float(values.mean()), "runs": len(values)}
                for name, values in own.items()
            ]  # fmt: skip
    header = ("method", "noise", "references", "strength", "R@10", "R@50", "R@10, points", "kept")
    notes = [
        "Only the references of the queries are altered, at test time; galleries stay. The reference is removed from"
        " the gallery. Best epoch of each run.",
    ]
    if not any(row[2] == "other background" for row in rows) and rows:
        notes.append("This is no rendered benchmark of this version: other backgrounds cannot be drawn.")
    return _table("Recall with altered references", header, rows, 4), notes, records


def _backlash(study: Study, lines: Sequence[Line], seed: int, told: Progress) -> Found:
    rows, records = [], []
    levels = list(dict.fromkeys(replace(line.noise, oracle=False) for line in lines))
    for level in levels:
        own = [line for line in lines if replace(line.noise, oracle=False) == level]
        figures: dict[str, list[dict[str, Any]]] = {line.label: [] for line in own}
        for at, before in enumerate(own[0].cells):
            if study.is_done(before):
                for label, found in _backlash_of_seed(study, own, at, before, told).items():
                    figures[label].append(found)
        for line in own:
            seeds = figures[line.label]
            names = ("neighbours", "others", "wrong")
            values = {name: np.array([each[name] for each in seeds]) for name in names}
            gap = values["neighbours"] - values["others"]
            cells = (*(spread(values[name]) for name in names), spread(gap))
            counts = " / ".join(map(str, seeds[0]["counts"])) if seeds else NOTHING
            rows.append((line.label, level.name, *cells, counts))
            records += [
                {"method": line.label, "noise": level.name, "metric": f"R@10 {name}",
                 "value": float(own_values.mean()), "runs": len(own_values)}
                for name, own_values in values.items() if len(own_values)
            ]  # fmt: skip
    header = (
        "model", "noise", "R@10 near wrong ones", "R@10 of other clean ones", "R@10 of the wrong annotations",
        "near minus other", "triplets",
    )  # fmt: skip
    notes = [
        "Training triplets as queries, each category's training pictures as its gallery, the reference removed; the"
        " last epoch of each run. Near: the 3 clean triplets whose queries are nearest to a wrong one's, by the model"
        " before unlearning. A backlash is a fall of the first column against the second.",
    ]
    return _table("Recall near wrong triplets, before and after unlearning", header, rows, 2), notes, records


def _backlash_of_seed(
    study: Study, lines: Sequence[Line], at: int, before: Cell, told: Progress
) -> dict[str, dict[str, Any]]:
    from triptych.noise import NoiseManifest
    from triptych.studies.backlash import backlash
    from triptych.training.model import load_model
    from triptych.triplets import read_benchmark

    done = {line.label: line.cells[at] for line in lines if study.is_done(line.cells[at])}

    def measure(cell: Cell) -> list[dict[str, Any]]:
        benchmark = read_benchmark(study.data[cell.data])
        manifest = NoiseManifest.read(study.folder / before.name / "noise.json", benchmark.train)
        first = load_model(study.folder / before.name / "last")
        models = [
            (label, first if other == before else load_model(study.folder / other.name / "last"))
            for label, other in done.items()
        ]
        found = backlash(
            first, models, benchmark, manifest, progress=lambda n, total: told(f"seed {cell.seed}", n, total)
        )
        return [asdict(each) for each in found]

    found = _kept(study, before, f"backlash-{len(done)}", 0, measure)
    return {each["model"]: each for each in found}


def _terms(study: Study, lines: Sequence[Line], seed: int, told: Progress) -> Found:
    from triptych.studies.term_gradients import INERT, term_gradients
    from triptych.training.run import Run

    rows, records, without = [], [], []
    for line in lines:
        kept: dict[tuple[str, int], list[tuple[float, float]]] = {}
        for cell in line.cells:
            if study.is_done(cell):
                found = term_gradients(Run(study.folder / cell.name).metrics())
                if not found:
                    without.append(cell.name)
                for each in found:
                    kept.setdefault((each.term, each.epoch), []).append((each.norm, each.share))
        for (term, epoch), pairs in kept.items():
            norms, shares = np.array(pairs).T
            verdict = "hardly moves anything" if shares.mean() < INERT else ""
            cells = (f"{norms.mean():.2e}", f"{100 * shares.mean():.1f} %", str(len(norms)), verdict)
            rows.append((line.label, line.noise.name, term, str(epoch), *cells))
            records.append(
                {"method": line.label, "noise": line.noise.name, "term": term, "epoch": epoch,
                 "metric": "gradient norm", "value": float(norms.mean()), "share": float(shares.mean()),
                 "runs": len(norms)}
            )  # fmt: skip
    notes = [
        "The norm of each weighted term's gradient over all trained parameters: the median of the steps measured"
        " (training.term_gradients_every) in the first and the last epoch that have the term; beside it its share of"
        f" the largest term's. Below {100 * INERT:g} % a term hardly moves anything.",
    ]
    if without:
        notes.append(f"No gradients were measured in {len(without)} runs: {', '.join(without)}.")
    header = ("method", "noise", "term", "epoch", "gradient norm", "of the largest", "runs", "")
    return _table("Gradients of loss terms", header, rows, 4), notes, records


def _kept(
    study: Study, cell: Cell, name: str, seed: int, measure: Callable[[Cell], list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Return what was measured of a cell, and measure it where it was not, or with another seed."""
    path: Path = study.folder / cell.name / f"{name}.json"
    if path.is_file():
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["seed"] == seed:
            return list(kept["found"])
    found = measure(cell)
    write_json(path, {"seed": seed, "found": found})
    return found


def _table(title: str, header: tuple[str, ...], rows: Sequence[tuple[str, ...]], names: int) -> Table:
    return Table(title, header, tuple(rows), names, (False,) * len(rows))
