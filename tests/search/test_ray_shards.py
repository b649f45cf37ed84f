"""Two actors of Ray embed a gallery; one is killed halfway."""

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from triptych.search import Gallery, find_pictures, index_images
from triptych.search.columns import HASH, ID, POOLED, TARGETS, THUMBNAIL, TOKENS
from triptych.search.verify import verify

COLUMNS = [ID, HASH, THUMBNAIL, POOLED, TARGETS, TOKENS]
PHOTOS = 2_000


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    dice = np.random.default_rng(0)
    for number in range(PHOTOS):
        pixels = dice.integers(0, 255, (4, 4, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((32, 32)).save(folder / f"{number:04d}.png")
    return folder


def kill_one_when(gallery: Gallery, records: int, killed: list[int]) -> None:
    """Kill one of Ray's actors once so many groups are done."""
    import psutil

    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if len(list((gallery.folder / "shards").glob("[0-9]*.json"))) >= records:
            for process in psutil.process_iter(["cmdline"]):
                if "MapWorker" in " ".join(process.info["cmdline"] or ()):
                    process.kill()
                    killed.append(process.pid)
                    return
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_workers_one_killed_halfway(lance: None, tiny_model: Any, photos: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed")
    pytest.importorskip("lance", reason="pylance is not installed")
    from triptych.search.merging import merge
    from triptych.search.ray_shards import index_with_ray

    alone = Gallery.create(tmp_path / "alone", tiny_model, "m")
    index_images(alone, tiny_model, find_pictures(photos).items)
    gallery = Gallery.create(tmp_path / "gallery", tiny_model, "m")
    killed: list[int] = []
    killer = threading.Thread(target=kill_one_when, args=(gallery, 2, killed))
    killer.start()
    result = index_with_ray(gallery, photos, workers=2)
    killer.join()
    assert killed
    assert result.groups == 8
    assert merge(gallery).added == PHOTOS
    alone.refresh()
    gallery.refresh()
    assert sorted(gallery.read(COLUMNS).to_pylist(), key=lambda row: row[ID]) == sorted(
        alone.read(COLUMNS).to_pylist(), key=lambda row: row[ID]
    )
    assert verify(gallery).clean
