"""Pictures of a rendered benchmark drawn again over other backgrounds, with the same things in the same light."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from triptych.randomness import generator
from triptych.triplets.rendered import VAL_PLAN, Rendering, compose_split
from triptych.triplets.rendered_picture import draw, fill, random_ground

Redraw = Callable[[str], Image.Image]
"""Draws a picture of val again, by its id."""


def other_backgrounds(data: Path, *, seed: int = 0) -> Redraw | None:
    """Return what draws a val picture again over another background; the things are the same to the pixel.

    The scenes are composed again from the command that the README names, and compared with ``scenes.json``.

    Args:
        data: the benchmark's folder.
        seed: of the new backgrounds.

    Returns:
        None where the data is no rendered benchmark, or one of another version of the program.
    """
    found = _renderings(data)
    if found is None:
        return None
    renderings, drawn_with = found

    def redraw(image_id: str) -> Image.Image:
        rendering = renderings[image_id]
        rng = generator(seed, "other background", image_id)
        ground = random_ground(rng)
        while ground.kind == rendering.ground.kind or set(ground.tones) & set(rendering.ground.tones):
            ground = random_ground(rng)
        own = generator(drawn_with, "rendered", "picture", image_id)
        return draw(rendering.scene, rendering.ground, own, behind=fill(ground, rng))

    return redraw


def _renderings(data: Path) -> tuple[dict[str, Rendering], int] | None:
    readme, scenes = data / "README.md", data / "scenes.json"
    if not (readme.is_file() and scenes.is_file()):
        return None
    said = re.search(
        r"data render OUT --seed (\d+) --train \d+ --val (\d+)", readme.read_text(encoding="utf-8")
    )
    if said is None:
        return None
    seed, count = map(int, said.groups())
    made, _ = compose_split("val", count, VAL_PLAN, seed, forbidden=frozenset(), first_id=0)
    stored = {
        item["image_id"]: item["things"]
        for item in json.loads(scenes.read_text(encoding="utf-8"))
        if item["split"] == "val"
    }
    again = {
        each.image_id: [[t.place, t.shape, t.colour, t.size, t.texture] for t in each.scene.things]
        for each in made
    }
    return ({each.image_id: each for each in made}, seed) if again == stored else None
