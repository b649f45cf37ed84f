"""An audit's folder against a manifest's file, and the plot of its calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from triptych.audit.attributes import Attributes, score_proposals, still_right
from triptych.audit.score import check_truth, score_audit
from triptych.audit.verdicts import Verdicts
from triptych.errors import TriptychError, UsageError
from triptych.files import atomic_path
from triptych.noise import NoiseManifest
from triptych.triplets import read_benchmark


def score_folder(
    audit: Path, manifest: Path, *, data: Path | None = None, attributes: Path | None = None
) -> dict[str, Any]:
    """Score an audit; see :func:`~triptych.audit.score.score_audit`.

    Args:
        audit: its folder, or its verdicts.
        manifest: what was made wrong.
        data: the clean data; by default what was audited.
        attributes: a folder with labels, for the second truth.

    Returns:
        The figures; with attributes also ``by_attributes`` (the same with texts that happen to be right counted as
        right) and how often a right answer was proposed.

    Raises:
        DataError: audit, manifest or data are missing, or do not belong to each other.
    """
    verdicts = Verdicts.read(audit)
    clean = read_benchmark(data or Path(str(verdicts.info["data"]))).train
    noise = NoiseManifest.read(manifest, clean)
    check_truth(verdicts, noise)
    figures = score_audit(verdicts, noise)
    if attributes is not None:
        labels = Attributes.read(attributes)
        excused = still_right(clean, noise, labels)
        figures["texts_still_right"] = len(excused)
        figures["by_attributes"] = score_audit(verdicts, noise, excused=excused)
        figures |= score_proposals(verdicts, clean, noise, labels)
    return figures


def draw_reliability(bins: Sequence[Mapping[str, float]], path: Path) -> None:
    """Draw how often triplets were wrong against how often they were said to be.

    Raises:
        TriptychError: matplotlib is not installed.
        UsageError: the file's ending is unknown.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise TriptychError('drawing needs matplotlib.\n  Run: pip install "triptych[figures]"') from error
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("png", "svg", "pdf"):
        raise UsageError(f"--plot {path}: the ending must be .png, .svg or .pdf")
    figure = Figure(figsize=(4.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    sizes = [20 + 200 * each["triplets"] / sum(b["triplets"] for b in bins) for each in bins]
    axes.scatter([each["said"] for each in bins], [each["was"] for each in bins], s=sizes)
    axes.set(xlabel="said chance to be wrong", ylabel="share that was wrong", xlim=(0, 1), ylim=(0, 1))
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=kind)
