"""The audit from a data set to verdicts: rules, pictures, cross-fitted models, the classifier; restartable."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from triptych.audit.classify import Chances, classify
from triptych.audit.config import AuditConfig
from triptych.audit.corpus import Corpus
from triptych.audit.dynamics import combine, read_dynamics, view
from triptych.audit.evidence import FEATURES, Evidence, average
from triptych.audit.folds import assign_folds
from triptych.audit.picture_hashes import Looks, find_by_pictures, look_at
from triptych.audit.probes import draw_probes
from triptych.audit.rules import Finding, find_by_rules
from triptych.audit.verdicts import PROPOSALS, Judged
from triptych.errors import DataError, UsageError
from triptych.files import write_json
from triptych.triplets import ImageStore, TripletTable

if TYPE_CHECKING:
    from triptych.audit.crossfit import CrossFit, Stages, Watch

Array = npt.NDArray[np.float64]

FEWEST = 30
"""With fewer triplets that models could be asked about, rules alone are applied."""

DYNAMICS_WEIGHT = 0.1
"""How much the training dynamics count beside what models say that never saw the triplet."""

EARLIER = ("fit", "rank", "reverse_rank", "gap")
"""What the classifier sees of the rounds before the last one."""


@dataclass(frozen=True)
class Examined:
    """What rules, pictures and models found.

    Attributes:
        findings: of the rules, in the order of the triplets.
        looks: what was seen of the pictures; None where there are none.
        judged: by models; None where none was asked.
        folds: ``[N]`` the fold of each triplet, -1 where none was asked.
        notes: what is to be known, a sentence each.
        shares: estimated share of each kind of wrong triplet.
    """

    findings: list[Finding]
    looks: Looks | None
    judged: Judged | None
    folds: npt.NDArray[np.int64]
    notes: list[str]
    shares: dict[str, float] = field(default_factory=dict)


def claim(folder: Path, settings: Mapping[str, Any]) -> None:
    """Make the folder this audit's, or find that it is.

    Raises:
        UsageError: it holds an audit of other data or settings, or something else.
    """
    marker, wanted = folder / "audit.json", json.loads(json.dumps(settings))
    if marker.is_file():
        found = json.loads(marker.read_text(encoding="utf-8"))
        if found != wanted:
            different = ", ".join(key for key in wanted if found.get(key) != wanted[key])
            raise UsageError(
                f"{folder} holds an audit with other {different or 'settings'}.\n"
                "  Give the same to go on with it, or choose another folder with -o."
            )
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not empty and holds no audit: choose another folder with -o")
    else:
        write_json(marker, wanted)


def examine(
    table: TripletTable,
    images: ImageStore,
    folder: Path,
    config: AuditConfig,
    *,
    path: Path,
    init: Path | None = None,
    captions: Path | None = None,
    runs: Sequence[Path] = (),
    cache: Path | None = None,
    stages: Stages | None = None,
    watch: Watch | None = None,
) -> Examined:
    """Apply the rules to every triplet, and ask models about those that they can be asked about.

    Args:
        table: the triplets as they are given to the audit.
        images: the pictures; empty for rules alone.
        folder: where runs and evidence go; what is there is kept.
        config: the settings.
        path: where the data was read from, for messages.
        init: a model folder to start from.
        captions: a CSV of captions to align a model on, where none is given.
        runs: run folders that were trained on these triplets; their dynamics count too.
        cache: the token cache's folder.
        stages: called with (what is being done, done, total).
        watch: gives the callbacks of a training.

    Raises:
        DataError: a run or a model does not fit.
    """
    report = stages or (lambda what, done, total: None)
    findings, notes = find_by_rules(table), list[str]()
    looks = None
    if len(images):
        looks = look_at(images, table.image_ids(), lambda d, t: report("looking at pictures", d, t))
        findings += find_by_pictures(table, looks)
        if looks.failures:
            notes.append(
                f"{len(looks.failures)} pictures are missing or cannot be read; their triplets are flagged"
            )
    else:
        notes.append(
            "there are no pictures, so rules on texts and ids alone were applied; shares are of what they found"
        )
    barred = {finding.triplet_id for finding in findings if finding.weight == "wrong"}
    rows = np.array([row for row, name in enumerate(table.triplet_ids) if name not in barred], dtype=np.int64)
    folds = np.full(len(table), -1, dtype=np.int64)
    if looks is None:
        return Examined(findings, looks, None, folds, notes)
    asked = table.take(rows)
    parts = assign_folds(asked, config.folds, config.seed)
    count = int(parts.max(initial=-1)) + 1
    if len(rows) < FEWEST or count < 2:
        notes.append(
            f"rules alone were applied: {len(rows)} usable triplets of {max(count, 0)} different pairs of pictures are "
            f"too few to train on (at least {FEWEST} are needed)"
        )
        return Examined(findings, looks, None, folds, notes)
    if count < config.folds:
        notes.append(f"there are only {count} different pairs of pictures, so {count} folds")
    notes += _small_categories(asked)
    folds[rows] = parts
    start = init or _aligned(images, captions, folder, config, cache, report)
    from triptych.audit.crossfit import CrossFit, pooled_tokens

    pooled = pooled_tokens(asked, images, config.backbone, cache, lambda d, t: report("image tokens", d, t))
    probes = draw_probes(asked, max(200, round(config.probes * len(asked))), config.seed, looks=pooled)
    extras = {} if watch is None else {"watch": watch}
    crossfit = CrossFit(asked, parts, probes, images, folder, config, path, start, cache, report, **extras)
    judged, shares = _ask(crossfit, runs)
    judged.rows = rows[judged.rows]
    return Examined(findings, looks, judged, folds, notes, shares)


def _ask(crossfit: CrossFit, runs: Sequence[Path]) -> tuple[Judged, dict[str, float]]:
    """Run the rounds, and put what they found together."""
    config, table, probes = crossfit.config, crossfit.table, crossfit.probes
    believed = np.ones(len(table), dtype=bool)
    earlier: list[npt.NDArray[np.floating]] = []
    for number in range(1, config.rounds + 1):
        evidence, spread = average(crossfit.judge(number, believed))
        columns = np.concatenate([evidence.figures, spread[:, None], *earlier], axis=1).astype(np.float64)
        crossfit.stages("weighing the evidence", number - 1, config.rounds)
        chances = classify(
            columns[~evidence.is_probe],
            columns[evidence.is_probe],
            probes.kind,
            probes.base,
            seed=config.seed,
        )
        earlier.append(evidence.figures[:, [list(FEATURES).index(name) for name in EARLIER]])
        believed = _believed(chances.wrong, crossfit.folds)
    crossfit.stages("weighing the evidence", config.rounds, config.rounds)
    files = [
        *(run / "cleanliness.parquet" for run in crossfit.run_folders(1)),
        *(_record(run) for run in runs),
    ]
    dynamics = read_dynamics([file for file in files if file.is_file()], table.triplet_ids)
    wrong = combine(chances.wrong, view(dynamics, chances.wrong), DYNAMICS_WEIGHT)
    real = ~evidence.is_probe
    return _judged(table, evidence, real, wrong, chances, spread), chances.shares


def _judged(
    table: TripletTable,
    evidence: Evidence,
    real: npt.NDArray[np.bool_],
    wrong: Array,
    chances: Chances,
    spread: npt.NDArray[np.floating],
) -> Judged:
    corpus = Corpus(table)
    corners = chances.corners + 1e-12
    corners *= (wrong / corners.sum(axis=1))[:, None]
    captions = table.column("captions")
    own = evidence.figures[:, list(FEATURES).index("fit")]

    def better(name: str, row: int) -> list[int]:
        numbers, fits = evidence.candidates[name][row], evidence.scores[name][row]
        return [int(n) for n, fit in zip(numbers, fits, strict=True) if n >= 0 and fit > own[row]]

    targets, texts, references = [], [], []
    for row in np.flatnonzero(real).tolist():
        at = int(evidence.rows[row])
        pair = {corpus.rows.reference[at], corpus.rows.target[at]}
        targets.append([corpus.images[n] for n in better("targets", row) if n not in pair][:PROPOSALS])
        references.append([corpus.images[n] for n in better("references", row) if n not in pair][:PROPOSALS])
        texts.append([captions[n] for n in better("texts", row)][:PROPOSALS])
    return Judged(
        evidence.rows[real], wrong, corners, evidence.figures[real], spread[real], targets, texts, references
    )


def _believed(wrong: Array, folds: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Say which triplets the next round is trained on: those more likely right than wrong, and a fifth at least."""
    believed = wrong < 0.5
    fewest = max(len(wrong) // 5, 8)
    if believed.sum() < fewest:
        believed = np.zeros(len(wrong), dtype=bool)
        believed[np.argsort(wrong, kind="stable")[:fewest]] = True
    for fold in range(int(folds.max()) + 1):
        others = np.flatnonzero(folds != fold)
        if believed[others].sum() < 4:  # a fold's model must have something to learn from
            believed[others[np.argsort(wrong[others], kind="stable")[:4]]] = True
    return believed


def _small_categories(table: TripletTable) -> list[str]:
    categories = table.column("category")
    sizes = {name: categories.count(name) for name in table.categories}
    small = [f"{name} ({size})" for name, size in sizes.items() if size < FEWEST]
    if not small or len(sizes) == 1:
        return []
    return [
        f"few triplets, so judge with care: {', '.join(small)}; they are compared with pictures of all categories"
    ]


def _aligned(
    images: ImageStore,
    captions: Path | None,
    folder: Path,
    config: AuditConfig,
    cache: Path | None,
    report: Stages,
) -> Path | None:
    """Align a model on captions of single pictures, once; None where there are none."""
    if captions is None:
        return None
    from triptych.training.align import align, read_captions

    target = folder / "aligned"
    if not (target / "model.safetensors").is_file():
        pairs = read_captions(captions)
        settings = {"epochs": 8, "batch_size": min(128, len(pairs)), "seed": config.seed}
        align(images, pairs, target, backbone=config.backbone, settings=settings, cache=cache, stages=report)
    return target


def _record(run: Path) -> Path:
    """Return the record of a trained run.

    Raises:
        DataError: there is none.
    """
    path = run / "cleanliness.parquet"
    if not path.is_file():
        mend = "Give a folder that `triptych train` wrote, trained on the audited triplets."
        raise DataError("this run recorded no cleanliness", file=path, mend=mend)
    return path
