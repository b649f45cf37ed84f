"""The demo's last step: a small gallery of its validation pictures, for `triptych serve`."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from triptych.files import atomic_write
from triptych.triplets import Benchmark

IMAGES = 160
"""Validation pictures that the gallery gets, at most; each costs some 30 ms of a core."""

GALLERY = "gallery"
NEEDED = ("lancedb", "fastapi", "uvicorn", "multipart", "prometheus_client")

Stages = Callable[[str, int, int], None]


def missing_packages() -> list[str]:
    """Name the packages of the extras ``search`` and ``serve`` that are not installed."""
    return [name for name in NEEDED if find_spec(name) is None]


def build_gallery(folder: Path, run: Path, benchmark: Benchmark, stages: Stages) -> Path:
    """Index the first validation pictures of each category with a run's model; what is there already is kept.

    Args:
        folder: where the gallery goes.
        run: the run folder whose best model embeds.
        benchmark: whose pictures; drawn data says in its folder what each picture shows.
        stages: called with (what is being done, done, total).

    Raises:
        DataError: the disk is full, or the gallery is damaged or another model's.
    """
    from triptych.search.gallery import Gallery, is_gallery
    from triptych.search.indexing import index_images
    from triptych.search.metadata import read_metadata
    from triptych.search.pictures import Picture
    from triptych.training.model import load_model

    model = load_model(run)
    gallery = Gallery.open(folder) if is_gallery(folder) else Gallery.create(folder, model, run.name)
    categories = [query_set.gallery for query_set in benchmark.splits["val"]]
    chosen = sorted({image_id for ids in categories for image_id in ids[: max(1, IMAGES // len(categories))]})
    items = folder.parent / "items.csv"
    _write_items(items, benchmark, chosen)
    images = benchmark.images
    pictures = [
        Picture(image_id, images.source(image_id), partial(images.read, image_id)) for image_id in chosen
    ]
    index_images(
        gallery,
        model,
        pictures,
        metadata=read_metadata(items),
        progress=lambda done, total: stages("indexing", done, total),
    )
    return folder


def _write_items(path: Path, benchmark: Benchmark, image_ids: list[str]) -> None:
    """Write what is known of the pictures: category, and of drawn ones how many things they show and which."""
    data = benchmark.path
    category = {
        image_id: query_set.category
        for query_set in benchmark.splits["val"]
        for image_id in query_set.gallery
    }
    scenes, captions = {}, {}
    if (data / "scenes.json").is_file() and (data / "captions.csv").is_file():
        entries = json.loads((data / "scenes.json").read_text(encoding="utf-8"))
        scenes = {entry["image_id"]: len(entry["things"]) for entry in entries}
        with (data / "captions.csv").open(encoding="utf-8", newline="") as file:
            captions = {row["image_id"]: row["caption"] for row in csv.DictReader(file)}
    with atomic_write(path) as file:
        table = csv.writer(file)
        table.writerow(["id", "category", *(["things", "shows"] if scenes else [])])
        for image_id in image_ids:
            known = [scenes.get(image_id), captions.get(image_id)] if scenes else []
            table.writerow([image_id, category[image_id], *known])
