"""Small data sets made on the spot, so that the suite tests without the shared data too."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

MakePicture = Callable[..., bytes]
MakeData = Callable[..., Path]


@pytest.fixture(scope="session")
def picture() -> MakePicture:
    """``picture("red", (8, 6), "PNG")``: the bytes of a plain picture."""

    def make(
        colour: str = "red", size: tuple[int, int] = (8, 6), format: str = "PNG", **options: Any
    ) -> bytes:
        out = io.BytesIO()
        Image.new("RGB", size, colour).save(out, format)
        return out.getvalue()

    return make


@pytest.fixture
def make_data(tmp_path: Path, picture: MakePicture) -> MakeData:
    """Write a data set in the FashionIQ layout.

    ``captions`` maps "<category>.<split>" to entries (or raw bytes); ``splits`` likewise to ids, by default
    those of the pictures, which are written to ``images/`` as PNG.
    """

    def make(
        captions: dict[str, Any],
        splits: dict[str, Any] | None = None,
        pictures: str | None = "abcdef",
        name: str = "data",
    ) -> Path:
        root = tmp_path / name
        ids = list(pictures or "abcdef")
        for key, entries in captions.items():
            _write(root / "captions" / f"cap.{key}.json", entries)
        for key, gallery in ({key: ids for key in captions} if splits is None else splits).items():
            _write(root / "image_splits" / f"split.{key}.json", gallery)
        if pictures:
            (root / "images").mkdir()
            for image_id in ids:
                (root / "images" / f"{image_id}.png").write_bytes(picture())
        return root

    return make


@pytest.fixture(scope="session")
def entry() -> Callable[..., dict[str, Any]]:
    """``entry("a", "b", "make it red", "longer")``: an entry of a caption file."""

    def make(candidate: str, target: str, *captions: str) -> dict[str, Any]:
        texts = list(captions) or ["make it red", "is longer"]
        return {"candidate": candidate, "target": target, "captions": texts}

    return make


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()
    path.write_bytes(data)
