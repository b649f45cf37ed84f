"""Indexing that is killed at any moment: what was said to be on disk is there, and the gallery is whole."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from triptych.search import Gallery, find_pictures, index_images
from triptych.search.verify import verify

KILLS = int(os.environ.get("TRIPTYCH_KILLS", "50"))

INGEST = """
import sys
from pathlib import Path
import numpy as np, torch
from triptych.search import Gallery, find_pictures, indexing
torch.set_num_threads(1)
folder, images, log = map(Path, sys.argv[1:4])
indexing._COMMIT = 4
gallery = Gallery.open(folder)
model = gallery.load_model()
pictures = find_pictures(images).items
with log.open("a") as file:
    def acknowledge(done, total):
        file.write(f"{done}\\n")
        file.flush()
    print("ready", flush=True)
    indexing.index_images(gallery, model, pictures, progress=acknowledge, wait=30)
"""


@pytest.mark.faults
def test_kills_at_random_moments(lance: None, tiny_model: Any, tiny_benchmark: Path, tmp_path: Path) -> None:
    dice = random.Random(int(os.environ.get("TRIPTYCH_SEED", "0")))
    images = tiny_benchmark / "images"
    names = [picture.id for picture in find_pictures(images).items]
    for kill in range(KILLS):
        folder, log = tmp_path / f"g{kill}", tmp_path / f"log{kill}"
        Gallery.create(folder, tiny_model, "m")
        process = subprocess.Popen(
            [sys.executable, "-c", INGEST, folder, images, log], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        time.sleep(dice.uniform(0, 1.5))
        process.send_signal(signal.SIGKILL)
        process.wait()
        acknowledged = [int(line) for line in log.read_text().splitlines()] if log.exists() else []
        gallery = Gallery.open(folder)
        assert verify(gallery).problems == {}, kill
        there = set(gallery.hashes())
        assert set(names[: max(acknowledged, default=0)]) <= there, kill
        assert len(there) % 4 == 0, kill  # whole commits only
        result = index_images(gallery, tiny_model, find_pictures(images).items)
        assert (result.added, result.same) == (48 - len(there), len(there)), kill
        assert verify(gallery).clean, kill
