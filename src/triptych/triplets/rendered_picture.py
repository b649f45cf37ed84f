"""Pictures of scenes: anti-aliased shapes with jitter, over varied backgrounds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw

from triptych.triplets.rendered_scene import COLOURS, Scene, Thing

SIDE = 128
"""Width and height of a picture in pixels."""

DIAMETERS = {"small": 25.0, "medium": 37.0, "large": 50.0}
"""Size of a thing in pixels."""

STEP = 39
"""Distance of two neighbouring cells of the grid in pixels."""

FINE = 4
"""Shapes are drawn this much larger and reduced, which smooths their edges."""

GROUNDS = ("plain", "gradient", "grain", "bands", "spots", "clouds")

TONES = (
    (236, 232, 222),
    (222, 232, 240),
    (226, 238, 224),
    (244, 228, 230),
    (232, 224, 242),
    (248, 240, 214),
    (206, 212, 216),
    (200, 190, 176),
    (178, 196, 204),
    (186, 196, 176),
)
"""Muted colours of backgrounds, away from those of things."""


@dataclass(frozen=True)
class Ground:
    """A background: how it is filled, and two tones. It carries no meaning, and texts never name it."""

    kind: str
    tones: tuple[tuple[int, int, int], tuple[int, int, int]]
    angle: float


def random_ground(rng: np.random.Generator) -> Ground:
    """Draw a background."""
    first, second = rng.choice(len(TONES), size=2, replace=False)
    return Ground(
        GROUNDS[rng.integers(len(GROUNDS))], (TONES[first], TONES[second]), float(rng.uniform(0, np.pi))
    )


def draw(
    scene: Scene, ground: Ground, rng: np.random.Generator, *, behind: np.ndarray | None = None
) -> Image.Image:
    """Draw a scene as an RGB picture; places, sizes, angles, colours and the light vary a little.

    Args:
        scene: the things.
        ground: the background.
        rng: of every variation.
        behind: another background in its place, ``[SIDE, SIDE, 3]`` uint8 of :func:`fill`; the things stay as they
            are to the pixel.

    Returns:
        A picture of ``SIDE`` x ``SIDE`` pixels.
    """
    own = fill(ground, rng)
    picture = Image.fromarray(own if behind is None else behind)
    for thing in scene.things:
        _draw_thing(picture, thing, rng)
    light = rng.uniform(0.94, 1.06)
    pixels = np.asarray(picture, dtype=np.float32) * light + 2 * rng.standard_normal(
        (SIDE, SIDE, 1), np.float32
    )
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def centre_of(place: int) -> tuple[float, float]:
    """Return (x, y) of a cell's centre in pixels, before jitter."""
    return SIDE / 2 + (place % 3 - 1) * STEP, SIDE / 2 + (place // 3 - 1) * STEP


def fill(ground: Ground, rng: np.random.Generator) -> np.ndarray:
    """Draw a background: ``[SIDE, SIDE, 3]`` uint8."""
    first, second = (
        np.array(tone, np.float32) + rng.uniform(-6, 6, 3).astype(np.float32) for tone in ground.tones
    )
    x, y = _grid()
    cos, sin = np.float32(np.cos(ground.angle)), np.float32(np.sin(ground.angle))
    along, across = x * cos + y * sin, y * cos - x * sin
    phase = np.float32(rng.uniform(0, 2 * np.pi))
    if ground.kind == "plain":
        share = np.zeros_like(x)
    elif ground.kind == "gradient":
        share = along * 0.35 + 0.5
    elif ground.kind == "grain":
        share = 0.3 + 0.22 * rng.standard_normal(x.shape, np.float32)
    elif ground.kind == "bands":
        share = 0.3 + 0.3 * np.sin(along * 14 + phase)
    elif ground.kind == "spots":
        share = 0.3 + 0.3 * np.sin(along * 12 + phase) * np.sin(across * 12 + phase)
    else:
        coarse = Image.fromarray(rng.uniform(0, 1, (6, 6)).astype(np.float32))
        share = np.asarray(coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC))
    share = np.clip(share, 0, 1)[..., None].astype(np.float32)
    filled: np.ndarray = np.clip(first + share * (second - first), 0, 255).astype(np.uint8)
    return filled


@lru_cache(maxsize=1)
def _grid() -> tuple[np.ndarray, np.ndarray]:
    line = np.linspace(-1, 1, SIDE, dtype=np.float32)
    x, y = np.meshgrid(line, line)
    return x, y


def _draw_thing(picture: Image.Image, thing: Thing, rng: np.random.Generator) -> None:
    diameter = DIAMETERS[thing.size] * rng.uniform(0.96, 1.04)
    x, y = np.array(centre_of(thing.place)) + rng.uniform(-2, 2, 2)
    angle = rng.uniform(-0.2, 0.2)
    colour = np.clip(np.array(COLOURS[thing.colour]) + rng.uniform(-9, 9, 3), 0, 255)
    edge = tuple((colour * 0.45).astype(int)) if sum(colour) > 150 else (120, 120, 128)

    margin = int(diameter / 2) + 4
    left, top = int(x) - margin, int(y) - margin
    centre = (x - left, y - top)
    side = 2 * margin + 1
    outer = _mask(thing.shape, centre, diameter / 2, angle, side)
    inner = _mask(thing.shape, centre, diameter / 2 - (1.2 if thing.size == "small" else 1.7), angle, side)
    picture.paste(edge, (left, top), outer)
    fill = Image.new("RGB", (side, side), tuple(colour.astype(int)))
    if thing.texture != "plain":
        fill.paste(_second_tone(colour), (0, 0), _pattern(thing.texture, diameter, angle, side, rng))
    picture.paste(fill, (left, top), inner)


def _second_tone(colour: np.ndarray) -> tuple[int, int, int]:
    bright = colour @ (0.299, 0.587, 0.114) > 150
    tone = colour * 0.45 if bright else colour * 0.2 + 255 * 0.8
    return int(tone[0]), int(tone[1]), int(tone[2])


def _mask(shape: str, centre: tuple[float, float], radius: float, angle: float, side: int) -> Image.Image:
    mask = Image.new("L", (side * FINE, side * FINE), 0)
    brush = ImageDraw.Draw(mask)
    outline, hole = OUTLINES[shape]
    brush.polygon(_placed(outline, centre, radius, angle), fill=255)
    if hole is not None:
        brush.polygon(_placed(hole, centre, radius, angle), fill=0)
    return mask.reduce(FINE)


def _placed(
    points: np.ndarray, centre: tuple[float, float], radius: float, angle: float
) -> list[tuple[float, float]]:
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    placed = (points @ turn * radius + centre) * FINE
    return [(float(x), float(y)) for x, y in placed]


def _pattern(texture: str, diameter: float, angle: float, side: int, rng: np.random.Generator) -> Image.Image:
    fine = FINE // 2
    period = (4.5 + diameter * 0.09) * fine
    line = np.arange(side * fine, dtype=np.float32) - side * fine / 2
    x, y = np.meshgrid(line, line)
    tilt = angle + (np.pi / 4 if texture == "striped" else 0)
    along = (x * np.cos(tilt) + y * np.sin(tilt)) / period + rng.uniform(0, 1)
    across = (y * np.cos(tilt) - x * np.sin(tilt)) / period + rng.uniform(0, 1)
    if texture == "striped":
        on = along - np.floor(along) < 0.45
    elif texture == "checked":
        on = (np.floor(along * 1.2) + np.floor(across * 1.2)) % 2 == 0
    else:
        on = (along - np.floor(along) - 0.5) ** 2 + (across - np.floor(across) - 0.5) ** 2 < 0.3**2
    return Image.fromarray((on * 255).astype(np.uint8)).reduce(fine)


def _circle(radius: float = 1.0, x: float = 0.0, y: float = 0.0, points: int = 72) -> np.ndarray:
    turn = np.linspace(0, 2 * np.pi, points, endpoint=False)
    return np.stack([x + radius * np.cos(turn), y + radius * np.sin(turn)], axis=1)


def _regular(corners: int, start: float, radius: float = 1.0) -> np.ndarray:
    turn = start + np.arange(corners) * 2 * np.pi / corners
    return radius * np.stack([np.cos(turn), np.sin(turn)], axis=1)


def _star() -> np.ndarray:
    points = _regular(10, -np.pi / 2, 1.08)
    points[1::2] *= 0.45
    return points


def _cross(arm: float = 0.34) -> np.ndarray:
    points = [np.array([[arm, -0.95], [arm, -arm], [0.95, -arm]])]
    for _ in range(3):
        points.append(points[-1] @ np.array([[0, 1], [-1, 0]]))
    return np.concatenate(points)


def _heart() -> np.ndarray:
    turn = np.linspace(0, 2 * np.pi, 72, endpoint=False)
    x = 16 * np.sin(turn) ** 3
    y = -(13 * np.cos(turn) - 5 * np.cos(2 * turn) - 2 * np.cos(3 * turn) - np.cos(4 * turn))
    return np.stack([x, y - 2], axis=1) / 16.5


def _crescent() -> np.ndarray:
    outer = np.linspace(0.25 * np.pi, 1.75 * np.pi, 60)
    tips = np.stack([np.cos(outer), np.sin(outer)], axis=1)
    inner = np.linspace(-0.62 * np.pi, -1.38 * np.pi, 40)
    bow = np.stack([0.86 + 0.74 * np.cos(inner), 0.74 * np.sin(inner)], axis=1)
    points: np.ndarray = np.concatenate([tips, bow]) + np.array([0.12, 0])
    return points


OUTLINES: dict[str, tuple[np.ndarray, np.ndarray | None]] = {
    "circle": (_circle(0.95), None),
    "square": (_regular(4, np.pi / 4, 1.18), None),
    "triangle": (_regular(3, -np.pi / 2, 1.12) + np.array([0, 0.15]), None),
    "star": (_star(), None),
    "ring": (_circle(), _circle(0.5)),
    "cross": (_cross(), None),
    "heart": (_heart(), None),
    "hexagon": (_regular(6, 0.0), None),
    "crescent": (_crescent(), None),
    "diamond": (_regular(4, 0.0) * (0.8, 1.15), None),
}
"""Each shape as a polygon around the origin, about as large as the unit circle, and its hole."""
