"""A benchmark that needs no download: scenes drawn by this program, with texts about their differences.

Scenes come in clusters. A *hub* is drawn at random; its *siblings* differ from it by one edit each. A query
leads from a hub to a sibling, or from a sibling to another. So many pictures of a gallery are near the
reference (its whole cluster), and, because each category has few shapes and colours, many fit the text (in
other clusters): only both together tell the target.
"""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from triptych.errors import UsageError
from triptych.files import explain_full_disk
from triptych.randomness import generator
from triptych.triplets.rendered_captions import describe_scene, relative_captions
from triptych.triplets.rendered_picture import SIDE, Ground, draw, random_ground
from triptych.triplets.rendered_readme import readme
from triptych.triplets.rendered_scene import (
    WORLDS,
    Edit,
    Scene,
    World,
    apply,
    between,
    random_edits,
    random_scene,
)


@dataclass(frozen=True)
class Plan:
    """How the clusters of a split are built.

    Attributes:
        siblings: scenes around a hub.
        hub_pictures: pictures of each hub, with other jitter and now and then another background.
        twins: chances that a sibling has 0, 1 or 2 pictures more than one.
        triplets: triplets a cluster.
        from_hub: share of them that lead from the hub to a sibling.
        to_hub: share that lead from a sibling to the hub; the rest leads from a sibling to another.
        clusters_at_least: clusters a category, but no more than one for four triplets.
    """

    siblings: int
    hub_pictures: int
    twins: tuple[float, float, float]
    triplets: int
    from_hub: float
    to_hub: float
    clusters_at_least: int


TRAIN_PLAN = Plan(10, 1, (1.0, 0.0, 0.0), triplets=10, from_hub=0.5, to_hub=0.12, clusters_at_least=40)
VAL_PLAN = Plan(60, 5, (0.75, 0.2, 0.05), triplets=56, from_hub=0.7, to_hub=0.0, clusters_at_least=3)
"""The val galleries are dense, so that neither picture nor text alone finds the target."""

SAME_GROUND = 0.85
"""Chance that a picture has its cluster's background."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """One picture: its id, its scene, its background."""

    image_id: str
    split: str
    category: str
    scene: Scene
    ground: Ground


@dataclass(frozen=True, slots=True)
class RenderedTriplet:
    """One triplet, with the edits that lead from its reference to its target."""

    split: str
    category: str
    reference: Rendering
    target: Rendering
    edits: tuple[Edit, ...]
    captions: tuple[str, str]


@dataclass(frozen=True)
class RenderSummary:
    """What was drawn: pictures and triplets by split, and right answers a query on average."""

    path: Path
    images: dict[str, int]
    triplets: dict[str, int]
    answers: float


def render_benchmark(
    out: Path | str,
    *,
    seed: int = 0,
    train: int = 4000,
    val: int = 800,
    progress: Callable[[int, int], None] | None = None,
) -> RenderSummary:
    """Draw a benchmark in the FashionIQ layout; the same arguments give the same bytes.

    Besides pictures, captions and splits it holds ``ground_truth_multi.json`` (every right picture of each
    val query), ``captions.csv`` (a description of each picture), ``scenes.json`` and
    ``changed_fields.train.json``.

    Args:
        out: the folder to make; it appears when everything is written.
        seed: seed of every draw, not negative.
        train: training triplets, over three categories.
        val: validation triplets, over three categories.
        progress: called with (done, total) pictures.

    Raises:
        UsageError: ``out`` is there and not empty, or a count is too small.
        DataError: the disk is full or the place cannot be written.
    """
    out = Path(out)
    if seed < 0:
        raise UsageError(f"the seed must not be negative: {seed}")
    for name, count in (("train", train), ("val", val)):
        if count < len(WORLDS):
            raise UsageError(f"--{name} must be at least {len(WORLDS)}, one triplet a category, not {count}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} is there already and not empty: choose another place, or remove it")

    val_renderings, val_triplets = compose_split(
        "val", val, VAL_PLAN, seed, forbidden=frozenset(), first_id=0
    )
    seen = frozenset(rendering.scene for rendering in val_renderings)
    first_id = len(val_renderings)
    renderings, triplets = compose_split("train", train, TRAIN_PLAN, seed, forbidden=seen, first_id=first_id)
    renderings, triplets = renderings + val_renderings, triplets + val_triplets
    answers = _answers(val_renderings, val_triplets)

    with explain_full_disk(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
        try:
            _write_annotations(temporary, renderings, triplets, answers, seed)
            (temporary / "README.md").write_text(
                readme(seed, train, val, ((r.split, r.category) for r in renderings), SIDE), encoding="utf-8"
            )
            _write_pictures(temporary / "images.zip", renderings, seed, progress)
            temporary.chmod(0o755)
            temporary.replace(out)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return RenderSummary(
        path=out,
        images=_by_split(renderings),
        triplets=_by_split(triplets),
        answers=sum(map(len, answers)) / len(answers),
    )


def compose_split(
    split: str, count: int, plan: Plan, seed: int, *, forbidden: frozenset[Scene], first_id: int
) -> tuple[list[Rendering], list[RenderedTriplet]]:
    """Compose the pictures and triplets of a split, without drawing them.

    Args:
        split: its name.
        count: triplets, shared evenly over the categories.
        plan: how clusters are built.
        seed: seed of every draw.
        forbidden: scenes that must not occur (those of the other split).
        first_id: number of the first picture.
    """
    renderings: list[Rendering] = []
    triplets: list[RenderedTriplet] = []
    for number, world in enumerate(WORLDS):
        wanted = count // len(WORLDS) + (number < count % len(WORLDS))
        clusters = max(math.ceil(wanted / plan.triplets), min(plan.clusters_at_least, math.ceil(wanted / 4)))
        drafts: list[_Cluster] = []
        for cluster in range(clusters):
            share = wanted // clusters + (cluster < wanted % clusters)
            rng = generator(seed, "rendered", split, world.name, cluster)
            drafts.append(_cluster(world, share, plan, forbidden, rng))
        rng = generator(seed, "rendered", split, world.name, "order")
        start = first_id + len(renderings)
        names = (f"{start + i:06d}" for i in rng.permutation(sum(len(draft.pictures) for draft in drafts)))
        for draft in drafts:
            made = [Rendering(next(names), split, world.name, *picture) for picture in draft.pictures]
            renderings += made
            triplets += (
                RenderedTriplet(split, world.name, made[reference], made[target], edits, captions)
                for reference, target, edits, captions in draft.triplets
            )
    return sorted(renderings, key=lambda rendering: rendering.image_id), _mixed(triplets, split, seed)


@dataclass(frozen=True)
class _Cluster:
    pictures: list[tuple[Scene, Ground]]
    triplets: list[tuple[int, int, tuple[Edit, ...], tuple[str, str]]]
    """(picture of the reference, picture of the target, edits, captions)"""


def _cluster(
    world: World, wanted: int, plan: Plan, forbidden: frozenset[Scene], rng: np.random.Generator
) -> _Cluster:
    hub, siblings = _hub_and_siblings(world, plan, forbidden, rng)
    scenes = [hub, *(apply([edit], hub) for edit in siblings)]
    ground = random_ground(rng)
    pictures: list[tuple[Scene, Ground]] = []
    pictures_of: dict[int, list[int]] = {}
    for number, scene in enumerate(scenes):
        copies = plan.hub_pictures if number == 0 else 1 + int(rng.choice(3, p=plan.twins))
        for _ in range(copies):
            pictures_of.setdefault(number, []).append(len(pictures))
            pictures.append((scene, ground if rng.random() < SAME_GROUND else random_ground(rng)))

    triplets = []
    for reference, target, edits in _paths(siblings, wanted, plan, rng):
        captions = relative_captions(edits, scenes[reference], rng)
        start, end = (int(rng.choice(pictures_of[number])) for number in (reference, target))
        triplets.append((start, end, tuple(edits), captions))
    return _Cluster(pictures, triplets)


def _hub_and_siblings(
    world: World, plan: Plan, forbidden: frozenset[Scene], rng: np.random.Generator
) -> tuple[Scene, list[Edit]]:
    while True:
        hub = random_scene(world, rng)
        edits = random_edits(hub, world, plan.siblings + 8, rng)
        edits = [edit for edit in edits if apply([edit], hub) not in forbidden][: plan.siblings]
        if hub not in forbidden and len(edits) == plan.siblings:
            return hub, edits


def _paths(
    siblings: list[Edit], wanted: int, plan: Plan, rng: np.random.Generator
) -> Iterator[tuple[int, int, list[Edit]]]:
    """Choose ordered pairs of scenes (0 = hub), each once, and the edits that lead from one to the other."""
    count = len(siblings)
    from_hub = [(0, i + 1, [siblings[i]]) for i in rng.permutation(count)]
    to_hub = [(i + 1, 0, [siblings[i].undone()]) for i in rng.permutation(count)]
    across = _across(siblings, rng)
    for _ in range(wanted):
        draw_ = rng.random()
        if draw_ < plan.from_hub and from_hub:
            yield from_hub.pop()
        elif draw_ < plan.from_hub + plan.to_hub and to_hub:
            yield to_hub.pop()
        else:
            path = next(across, None)
            yield path if path is not None else (from_hub or to_hub).pop()


def _across(siblings: list[Edit], rng: np.random.Generator) -> Iterator[tuple[int, int, list[Edit]]]:
    for pair in rng.permutation(len(siblings) ** 2):
        first, second = divmod(int(pair), len(siblings))
        edits = between(siblings[first], siblings[second]) if first != second else None
        if edits is not None:
            yield first + 1, second + 1, edits


def _mixed(triplets: list[RenderedTriplet], split: str, seed: int) -> list[RenderedTriplet]:
    order = generator(seed, "rendered", split, "triplets").permutation(len(triplets))
    return sorted((triplets[i] for i in order), key=lambda triplet: triplet.category)


def _answers(renderings: list[Rendering], triplets: list[RenderedTriplet]) -> list[list[str]]:
    """Per triplet every picture of its category that shows the target's scene, the target first."""
    ids: dict[tuple[str, Scene], list[str]] = {}
    for rendering in renderings:
        ids.setdefault((rendering.category, rendering.scene), []).append(rendering.image_id)
    answers = []
    for triplet in triplets:
        right = ids[triplet.category, triplet.target.scene]
        answers.append([triplet.target.image_id, *(i for i in right if i != triplet.target.image_id)])
    return answers


def _write_annotations(
    folder: Path,
    renderings: list[Rendering],
    triplets: list[RenderedTriplet],
    answers: list[list[str]],
    seed: int,
) -> None:
    for name in ("captions", "image_splits"):
        (folder / name).mkdir()
    truth: list[dict[str, Any]] = []
    changed: list[dict[str, Any]] = []
    remaining = iter(answers)
    for split in ("train", "val"):
        for world in WORLDS:
            own = [t for t in triplets if (t.split, t.category) == (split, world.name)]
            gallery = [r.image_id for r in renderings if (r.split, r.category) == (split, world.name)]
            captions = [
                {"target": t.target.image_id, "candidate": t.reference.image_id, "captions": list(t.captions)}
                for t in own
            ]
            _write_lines(folder / "captions" / f"cap.{world.name}.{split}.json", captions)
            _write_lines(folder / "image_splits" / f"split.{world.name}.{split}.json", gallery)
            for row, triplet in enumerate(own):
                kinds = [edit.kind for edit in triplet.edits]
                if split == "train":
                    changed.append({"category": world.name, "row": row, "changed": kinds})
                else:
                    pair = {"candidate": triplet.reference.image_id, "target": triplet.target.image_id}
                    item = {"id": len(truth), "category": world.name, "row": row, **pair, "changed": kinds}
                    truth.append(item | {"gt_img_ids": next(remaining)})
    _write_lines(folder / "ground_truth_multi.json", truth)
    _write_lines(folder / "changed_fields.train.json", changed)
    _write_lines(folder / "scenes.json", (_shown(rendering) for rendering in renderings))
    with (folder / "captions.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("image_id", "split", "caption"))
        for rendering in renderings:
            rng = generator(seed, "rendered", "description", rendering.image_id)
            writer.writerow((rendering.image_id, rendering.split, describe_scene(rendering.scene, rng)))


def _write_pictures(
    path: Path, renderings: list[Rendering], seed: int, progress: Callable[[int, int], None] | None
) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for done, rendering in enumerate(renderings, start=1):
            rng = generator(seed, "rendered", "picture", rendering.image_id)
            encoded = io.BytesIO()
            draw(rendering.scene, rendering.ground, rng).save(encoded, "JPEG", quality=87, subsampling=0)
            entry = zipfile.ZipInfo(f"{rendering.image_id}.jpg", date_time=(1980, 1, 1, 0, 0, 0))
            archive.writestr(entry, encoded.getvalue())
            if progress is not None:
                progress(done, len(renderings))


def _write_lines(path: Path, items: Iterable[Any]) -> None:
    path.write_text("[\n" + ",\n".join(json.dumps(item) for item in items) + "\n]\n", encoding="utf-8")


def _shown(rendering: Rendering) -> dict[str, Any]:
    things = [[t.place, t.shape, t.colour, t.size, t.texture] for t in rendering.scene.things]
    return {
        "image_id": rendering.image_id,
        "split": rendering.split,
        "category": rendering.category,
        "things": things,
    }


def _by_split(items: Iterable[Rendering | RenderedTriplet]) -> dict[str, int]:
    counts = {"train": 0, "val": 0}
    for item in items:
        counts[item.split] += 1
    return counts
