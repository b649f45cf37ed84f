"""``triptych.audit(...)``: which triplets are wrong, which part of them, and what would be right."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triptych.audit.changes import (
    Decision,
    apply_changes,
    check_modes,
    check_same_data,
    plan_changes,
    read_decisions,
)
from triptych.audit.config import AuditConfig
from triptych.audit.summary import summarise
from triptych.audit.verdicts import Verdicts, make_verdicts
from triptych.errors import DataError, UsageError, explain_validation
from triptych.files import write_json
from triptych.noise import NoiseManifest
from triptych.triplets import Benchmark, ImageStore, TripletTable, read_benchmark

if TYPE_CHECKING:
    from triptych.audit.crossfit import Stages, Watch


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes:
        verdicts: a row a triplet; ``verdicts.data`` is an Arrow table.
        summary: estimated share of wrong triplets and counts, as in ``summary.json``.
        table: the triplets that were audited, noise applied.
        images: their pictures.
        folder: where the audit lies; None where it was kept in memory only.
    """

    verdicts: Verdicts
    summary: dict[str, Any]
    table: TripletTable
    images: ImageStore
    folder: Path | None = None

    def apply(
        self, *modes: str, decisions: Mapping[str, Decision] | str | Path | None = None
    ) -> TripletTable:
        """Return the triplets cleaned; ``triptych audit apply`` writes them in the input's format.

        Args:
            modes: ``drop`` leaves flagged triplets out, ``fix`` takes the best proposal where it is sure enough.
            decisions: of a reviewer, or the file that the report exported; they win.

        Raises:
            UsageError: a mode is unknown, or neither a mode nor decisions are given.
        """
        chosen = check_modes(modes)
        if "weight" in chosen:
            raise UsageError("a table has no place for weights: take audit.verdicts.array('score')")
        if not chosen and decisions is None:
            raise UsageError('say what to do with flagged triplets: audit.apply("drop"), or give decisions')
        made = read_decisions(Path(decisions)) if isinstance(decisions, str | Path) else decisions
        return apply_changes(self.table, plan_changes(self.verdicts, chosen, made))

    def write_report(self, path: Path) -> Path:
        """Write the page for review; pictures lie beside it where they are many. Returns its path."""
        from triptych.audit.report import write_report

        return write_report(path, self.verdicts, self.summary, self.images)


def audit(
    data: Benchmark | TripletTable | str | Path,
    images: ImageStore | str | Path | None = None,
    *,
    folder: str | Path | None = None,
    noise: NoiseManifest | str | Path | None = None,
    runs: Sequence[str | Path] = (),
    init: str | Path | None = None,
    captions: str | Path | None = None,
    source: str | Sequence[str | None] | None = None,
    settings: Mapping[str, Any] | None = None,
    cache: str | Path | None = None,
    stages: Stages | None = None,
    watch: Watch | None = None,
) -> Audit:
    """Find out which triplets are wrong.

    Rules find what needs no model. Small models are trained on all folds but one and judge that one; a classifier that
    is trained on triplets made wrong on purpose turns what they say into chances.

    Args:
        data: a benchmark or its path, whose training triplets are audited, or a table of triplets.
        images: the pictures, if they are not beside the data; without any, rules alone are applied.
        folder: where models, evidence, verdicts and summary go; called again with the same, it goes on where it was.
            Without one nothing is kept.
        noise: a manifest that corrupts the triplets first, for benchmarks; the audit does not look at it again.
        runs: runs that were trained on these triplets, whose cleanliness counts as a view of its own.
        init: a model folder to start from, such as ``align`` writes.
        captions: a CSV of captions of single pictures to align a model on, where there is no ``init``.
        source: a column of the data that says who or what each triplet comes from, or its values.
        settings: of :class:`~triptych.audit.config.AuditConfig`.
        cache: the token cache's folder; by default the user's cache folder.
        stages: called with (what is being done, done, total).
        watch: gives the callbacks of each training.

    Raises:
        UsageError: a setting is unknown, or ``folder`` holds something else.
        DataError: the data, the manifest, a run or a model cannot be used.
        Interrupted: stopped by Ctrl-C; call it again to go on.
    """
    config = explain_validation(AuditConfig, dict(settings or {}), "audit")
    table, store, path = _read(data, images)
    if not len(table):
        raise DataError("there are no training triplets to audit", file=path)
    if noise is not None:
        manifest = noise if isinstance(noise, NoiseManifest) else NoiseManifest.read(Path(noise), table)
        table = manifest.apply(table)
    origins, source_name = _sources(source, path, table)
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="triptych-audit-") as temporary:
            found = _run(
                table, store, path, Path(temporary), config, runs, init, captions, cache, stages, watch
            )
    else:
        folder = Path(folder)
        claim = _claimed(config, table, path, init, captions, runs, noise is not None)
        from triptych.audit.pipeline import claim as claim_folder

        claim_folder(folder, claim)
        found = _run(table, store, path, folder, config, runs, init, captions, cache, stages, watch)
    verdicts, examined = found
    summary = summarise(
        verdicts,
        folds=examined.folds if examined.judged is not None else None,
        source=origins,
        source_name=source_name,
        notes=examined.notes,
        unreadable=examined.looks.failures if examined.looks is not None else {},
    )
    summary["kinds"] = examined.shares
    if folder is not None:
        verdicts.write(Path(folder) / "verdicts.parquet")
        write_json(Path(folder) / "summary.json", summary)
    return Audit(verdicts, summary, table, store, None if folder is None else Path(folder))


def open_audit(folder: str | Path, *, images: ImageStore | None = None) -> Audit:
    """Read a finished audit.

    Raises:
        DataError: there is none, or the data it was made of has changed.
    """
    folder = Path(folder)
    verdicts = Verdicts.read(folder)
    table = audited_table(verdicts)
    path = folder / "summary.json"
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"the summary cannot be read: {error}", file=path, mend="Run the audit again."
        ) from error
    return Audit(verdicts, summary, table, images or ImageStore.empty(folder), folder)


def audited_table(verdicts: Verdicts) -> TripletTable:
    """Make the audited triplets from their verdicts."""
    from triptych.triplets import Triplet

    columns = (
        verdicts.column(name) for name in ("triplet_id", "reference", "captions", "target", "category")
    )
    return TripletTable.from_triplets(
        Triplet(name, reference, tuple(captions), target, category)
        for name, reference, captions, target, category in zip(*columns, strict=True)
    )


def _run(
    table: TripletTable,
    store: ImageStore,
    path: Path,
    folder: Path,
    config: AuditConfig,
    runs: Sequence[str | Path],
    init: str | Path | None,
    captions: str | Path | None,
    cache: str | Path | None,
    stages: Stages | None,
    watch: Watch | None,
) -> tuple[Verdicts, Any]:
    from triptych.audit.pipeline import examine

    examined = examine(
        table,
        store,
        folder,
        config,
        path=path,
        init=Path(init) if init else None,
        captions=Path(captions) if captions else None,
        runs=[Path(run) for run in runs],
        cache=Path(cache) if cache else None,
        stages=stages,
        watch=watch,
    )
    info = {"data": str(path.resolve()), "images": str(store.path) if len(store) else None}
    verdicts = make_verdicts(table, examined.findings, examined.judged, flag_at=config.flag_at, info=info)
    return verdicts, examined


def _read(
    data: Benchmark | TripletTable | str | Path, images: ImageStore | str | Path | None
) -> tuple[TripletTable, ImageStore, Path]:
    if isinstance(data, str | Path):
        given = images if isinstance(images, str | Path) else None
        data = read_benchmark(data, images=given)
    if isinstance(data, Benchmark):
        table, store, path = data.train, data.images, data.path
    else:
        table, store, path = data, ImageStore.empty("."), Path("triplets")
    if isinstance(images, ImageStore):
        store = images
    elif images is not None and not len(store):
        store = ImageStore.open(images)
    return table, store, path


def _claimed(
    config: AuditConfig,
    table: TripletTable,
    path: Path,
    init: str | Path | None,
    captions: str | Path | None,
    runs: Sequence[str | Path],
    noisy: bool,
) -> dict[str, Any]:
    return {
        "format": "triptych-audit-1",
        "data": str(path.resolve()),
        "triplets": table.fingerprint(),
        "corrupted on purpose": noisy,
        "init": str(Path(init).resolve()) if init else None,
        "captions": str(Path(captions).resolve()) if captions else None,
        "runs": [str(Path(run).resolve()) for run in runs],
        "settings": config.model_dump(mode="json"),
    }


def _sources(
    source: str | Sequence[str | None] | None, path: Path, table: TripletTable
) -> tuple[list[str | None] | None, str | None]:
    if source is None:
        return None, None
    if isinstance(source, str):
        from triptych.audit.sources import read_column

        values = read_column(path, source)
        return [values.get(name) for name in table.triplet_ids], source
    if len(source) != len(table):
        raise UsageError(f"source names {len(source)} triplets, but there are {len(table)}")
    return list(source), "source"


__all__ = ["Audit", "audit", "audited_table", "check_same_data", "open_audit"]
