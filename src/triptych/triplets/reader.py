"""read_benchmark: any data set that Triptych knows, by looking at what lies in the folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias

from triptych.errors import DataError, UsageError
from triptych.triplets.archives import is_picture_name
from triptych.triplets.benchmark import Benchmark, QuerySet
from triptych.triplets.circo import find_coco_pictures, has_circo_layout, read_circo
from triptych.triplets.cirr import find_cirr, find_cirr_pictures, read_cirr
from triptych.triplets.fashioniq import has_fashioniq_layout, read_fashioniq
from triptych.triplets.findings import Findings, Place
from triptych.triplets.images import ImageStore, find_images
from triptych.triplets.missing import missing_pictures, without_missing
from triptych.triplets.tabular import SUFFIXES as TABLE_SUFFIXES
from triptych.triplets.tabular import read_tabular

Gallery: TypeAlias = Literal["original", "union"]


def read_benchmark(
    path: str | Path,
    *,
    images: str | Path | None = None,
    gallery: Gallery = "original",
    leave_out_missing: bool = False,
) -> Benchmark:
    """Read a data set: FashionIQ, CIRR, CIRCO, data in FashionIQ's layout, or a table of triplets.

    Args:
        path: the folder, or the table itself (CSV, TSV, JSONL, Parquet).
        images: the folder, ``.zip`` or ``.tar`` of pictures; by default it is looked for beside the annotations,
            under the names that the data's distributions use.
        gallery: ``original`` ranks every picture that a split lists; ``union`` only the references and targets
            of its queries, which is FashionIQ's "val split" protocol (spec 2.2).
        leave_out_missing: leave out what needs a picture that is not there; counts are in ``notes``.

    Returns:
        The benchmark; what is odd but usable is in its ``warnings``, with counts.

    Raises:
        UsageError: there is nothing at ``path``.
        DataError: no data set is there, or something in it is wrong; the first error is raised, and
            :func:`~triptych.triplets.check.check_data` lists all.
    """
    findings = Findings(strict=True)
    benchmark = read_layout(Path(path), None if images is None else Path(images), findings)
    place = Place(benchmark.name)
    if not len(benchmark.train):
        findings.add("no_training", "there are no training triplets", place, severity="warning")
    if not len(benchmark.images):
        findings.add("no_pictures", "there are no pictures beside the annotations", place)
    else:
        for image_id in benchmark.images.missing(named_pictures(benchmark)):
            message = f'"{image_id}" is not in {benchmark.images.path.name}'
            findings.add("image_missing", message, place, severity="warning")
        lacking = missing_pictures(benchmark) if findings.counts["image_missing"] else ()
        for line in (line for line in lacking if line.split in benchmark.splits):
            findings.add("queries_hit", line.sentence, Place(f"{benchmark.name}/{line.split}"))
    benchmark = replace(benchmark, warnings=findings.sentences())
    if gallery == "union":
        benchmark = with_union_galleries(benchmark)
    return without_missing(benchmark) if leave_out_missing else benchmark


def with_union_galleries(benchmark: Benchmark) -> Benchmark:
    """Return a benchmark whose galleries hold the references and targets of their queries and nothing else."""

    def narrowed(part: QuerySet) -> QuerySet:
        named = set(part.queries.image_ids())
        return replace(part, gallery=tuple(image for image in part.gallery if image in named))

    splits = {split: tuple(map(narrowed, parts)) for split, parts in benchmark.splits.items()}
    note = "The galleries are the union of the queries' references and targets, not the whole splits."
    return replace(benchmark, splits=splits, notes=(*benchmark.notes, note))


def read_layout(path: Path, images: Path | None, findings: Findings) -> Benchmark:
    """Find out what lies at ``path`` and read it; what is wrong or odd goes to ``findings``.

    Raises:
        UsageError: there is nothing at ``path``.
        DataError: no data set is there; or something is wrong and ``findings`` is strict.
    """
    if not path.exists():
        raise UsageError(f"{path}: there is no such file or folder")
    if path.is_file():
        if path.suffix.lower() not in TABLE_SUFFIXES:
            raise _nothing_known(path)
        return read_tabular(path, open_images(path.parent, images, findings), findings)
    annotations = find_cirr(path)
    if annotations is not None:
        pictures = images or find_cirr_pictures(path, annotations)
        return read_cirr(annotations, open_images(annotations, pictures, findings), findings)
    if has_circo_layout(path):
        pictures = images or find_coco_pictures(path)
        return read_circo(path, open_images(path, pictures, findings), findings)
    if has_fashioniq_layout(path):
        return read_fashioniq(path, open_images(path, images, findings), findings)
    table = find_table(path)
    return read_tabular(table, open_images(path, images, findings), findings)


def named_pictures(benchmark: Benchmark) -> list[str]:
    """Return every picture that a triplet or a gallery names, once."""
    named = dict.fromkeys(benchmark.train.image_ids())
    for query_sets in benchmark.splits.values():
        for query_set in query_sets:
            named.update(dict.fromkeys(query_set.gallery))
            named.update(dict.fromkeys(query_set.queries.image_ids()))
    return list(named)


def open_images(folder: Path, images: Path | None, findings: Findings) -> ImageStore:
    """Open the pictures given, or those that lie beside the annotations; none give an empty store."""
    beside = [images] if images else find_images(folder)
    if not beside and any(is_picture_name(path.name) for path in folder.iterdir()):
        beside = [folder]
    if not beside:
        return ImageStore.empty(folder)
    if len(beside) > 1:
        names = ", ".join(path.name for path in beside[1:])
        findings.add("odd_pictures", f"{names} is there too and is not read", Place(beside[0].name))
    try:
        store = ImageStore.open(beside[0])
    except DataError as error:
        findings.add_error("pictures", error)
        return ImageStore.empty(beside[0])
    for sentence in store.warnings:
        findings.add("odd_pictures", sentence, Place(store.path.name))
    return store


def find_table(folder: Path) -> Path:
    """Return the table of triplets in a folder: ``triplets.csv`` or the like, or the only one.

    Raises:
        DataError: there is none, or several could be meant.
    """
    tables = [path for path in sorted(folder.iterdir()) if path.suffix.lower() in TABLE_SUFFIXES]
    named = [path for path in tables if path.stem.lower() == "triplets"]
    if len(named) == 1 or len(tables) == 1:
        return (named or tables)[0]
    if not tables:
        raise _nothing_known(folder)
    raise DataError(
        f"several tables could be the triplets: {', '.join(path.name for path in tables)}",
        file=folder,
        mend="Give the path of the one that is meant, or call it triplets.csv.",
    )


def _nothing_known(path: Path) -> DataError:
    expected = (
        "Expected a folder with captions/cap.<category>.<split>.json and image_splits/, or a table"
        " triplets.csv (or .tsv, .jsonl, .parquet) with the columns reference, text and target; CIRR has"
        " captions/cap.rc2.<split>.json, CIRCO annotations/val.json."
    )
    return DataError("no triplets found", file=path, mend=expected)
