"""Training where pictures are missing: what is left is trained on, the manifest of all triplets still fits."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from triptych.errors import DataError
from triptych.noise import inject
from triptych.training.run import Run
from triptych.training.train import resume, train
from triptych.triplets import read_benchmark
from triptych.triplets.missing import table_without_missing

GONE = "plain-small-red-circle", "tinted-large-blue-square"


@pytest.fixture
def gappy(tiny_benchmark: Path, tmp_path: Path) -> Path:
    root = Path(shutil.copytree(tiny_benchmark, tmp_path / "gappy"))
    for name in GONE:
        (root / "images" / f"{name}.png").unlink()
    return root


def test_what_is_left_is_trained_on(
    gappy: Path, tmp_path: Path, sizes: dict[str, Any], lite_weights: None, shared_towers: None
) -> None:
    data = read_benchmark(gappy)
    noise = inject(data.train, kind="mix", ratio=0.5, seed=42)
    noise.write(tmp_path / "noise.json")
    settings = {"epochs": 1, "batch_size": 8}
    shared = {"method": "rcl", "backbone": sizes, "training": settings, "noise": tmp_path / "noise.json"}
    with pytest.raises(DataError, match="there is no picture"):
        train(data, tmp_path / "stops", **shared)
    run = train(data, tmp_path / "run", leave_out_missing=True, **shared)
    left = table_without_missing(noise.apply(data.train), data.images)
    assert 0 < len(left) < len(data.train)
    assert not set(GONE) & set(left.image_ids())
    assert run.cleanliness.is_file()
    from triptych.training.cleanliness import read_cleanliness

    assert set(read_cleanliness(run.cleanliness)[0]) <= set(left.triplet_ids)
    assert Run.open(run.folder)[1].leave_out_missing
    resume(run.folder)  # it is finished; its data is read alike


def test_nothing_left_is_an_error(
    tiny_benchmark: Path, tmp_path: Path, sizes: dict[str, Any], lite_weights: None, shared_towers: None
) -> None:
    root = Path(shutil.copytree(tiny_benchmark, tmp_path / "none"))
    for path in (root / "images").glob("*-small-*"):
        path.unlink()
    with pytest.raises(DataError, match="the pictures of all 40 training triplets are missing"):
        train(root, tmp_path / "run", backbone=sizes, leave_out_missing=True, training={"batch_size": 8})
