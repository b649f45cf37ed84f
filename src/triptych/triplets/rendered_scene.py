"""Scenes of a rendered benchmark: what stands where, and the edits that lead from one scene to another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

import numpy as np

SHAPES = ("circle", "square", "triangle", "star", "ring", "cross", "heart", "hexagon", "crescent", "diamond")
COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (214, 40, 40),
    "orange": (245, 135, 25),
    "yellow": (247, 211, 42),
    "green": (52, 160, 64),
    "turquoise": (40, 190, 190),
    "blue": (42, 86, 205),
    "purple": (128, 56, 170),
    "pink": (245, 120, 180),
    "brown": (128, 78, 40),
    "black": (32, 32, 38),
}
SIZES = ("small", "medium", "large")
TEXTURES = ("plain", "striped", "dotted", "checked")
PLACES = (
    "top left",
    "top centre",
    "top right",
    "middle left",
    "centre",
    "middle right",
    "bottom left",
    "bottom centre",
    "bottom right",
)
"""A three by three grid, row by row."""

MOST_THINGS = 4

THINGS = (0.18, 0.4, 0.28, 0.14)
"""How often a scene is drawn with one, two, three and four things."""

KIND_WEIGHTS: dict[str, float] = {
    "colour": 0.23,
    "shape": 0.14,
    "size": 0.13,
    "texture": 0.14,
    "move": 0.12,
    "remove": 0.06,
    "add": 0.02,
    "copy": 0.05,
    "replace": 0.02,
    "swap colours": 0.06,
    "swap places": 0.03,
}
"""How often each kind of edit is drawn, where the scene allows it.

Those whose text alone tells much of the target (``add``, ``replace``) are rare.
"""


@dataclass(frozen=True)
class World:
    """A category: the shapes and colours that occur in it."""

    name: str
    shapes: tuple[str, ...]
    colours: tuple[str, ...]


WORLDS = (
    World("harbour", ("ring", "cross", "crescent", "square"), ("blue", "orange", "turquoise", "red")),
    World("meadow", ("circle", "heart", "star", "triangle"), ("green", "yellow", "pink", "purple")),
    World("workshop", ("square", "diamond", "circle", "hexagon"), ("brown", "yellow", "blue", "black")),
)
"""Few shapes and colours in each, so that many scenes of a gallery fit a text."""


@dataclass(frozen=True, order=True, slots=True)
class Thing:
    """One object; ``place`` is a cell of the grid, ``0..8``."""

    place: int
    shape: str
    colour: str
    size: str
    texture: str


@dataclass(frozen=True, slots=True)
class Scene:
    """One to four things, in the order of their places; pictures of equal scenes differ by jitter only."""

    things: tuple[Thing, ...]

    def is_valid(self) -> bool:
        """Say whether the things fit: one a cell, and large ones not squeezed by their neighbours."""
        if not 1 <= len(self.things) <= MOST_THINGS or len({thing.place for thing in self.things}) < len(
            self.things
        ):
            return False
        return not any(_squeezed(a, b) for a, b in combinations(self.things, 2))


@dataclass(frozen=True, slots=True)
class Edit:
    """One change: the things it takes out of a scene, and those it puts in.

    Attributes:
        kind: a key of :data:`KIND_WEIGHTS`.
        before: the changed things as they are in the reference; empty for ``add``.
        after: the same things, in the same order, as they are in the target; empty for ``remove``. A ``copy``
            looks as another thing of the scene.
    """

    kind: str
    before: tuple[Thing, ...]
    after: tuple[Thing, ...]

    def undone(self) -> Edit:
        """Return the edit that leads back."""
        kind = {"add": "remove", "copy": "remove", "remove": "add"}.get(self.kind, self.kind)
        return Edit(kind, self.after, self.before)


def scene(things: Iterable[Thing]) -> Scene:
    """Make a scene of things in any order."""
    return Scene(tuple(sorted(things)))


def apply(edits: Iterable[Edit], before: Scene) -> Scene:
    """Carry out edits of different things at once.

    Raises:
        ValueError: an edit changes a thing that is not in the scene.
    """
    things = list(before.things)
    edits = list(edits)
    for thing in (thing for edit in edits for thing in edit.before):
        things.remove(thing)
    return scene([*things, *(thing for edit in edits for thing in edit.after)])


def random_scene(world: World, rng: np.random.Generator) -> Scene:
    """Draw a valid scene in which no two things share both shape and colour."""
    while True:
        count = int(rng.choice(4, p=THINGS)) + 1
        places = rng.choice(len(PLACES), size=count, replace=False)
        drawn = scene(_random_thing(int(place), world, rng) for place in places)
        if drawn.is_valid() and len({(thing.shape, thing.colour) for thing in drawn.things}) == count:
            return drawn


def random_edits(before: Scene, world: World, count: int, rng: np.random.Generator) -> list[Edit]:
    """Draw edits that lead to different valid scenes: a kind by its weight, then any edit of that kind.

    Returns:
        At most ``count`` edits; fewer, where the scene allows no more.
    """
    options = {kind: list(propose(before, world)) for kind, propose in _PROPOSALS.items()}
    drawn: dict[Scene, Edit] = {}
    while len(drawn) < count:
        kinds = [kind for kind, edits in options.items() if edits]
        if not kinds:
            break
        weights = np.array([KIND_WEIGHTS[kind] for kind in kinds])
        edits = options[kinds[rng.choice(len(kinds), p=weights / weights.sum())]]
        while edits:
            edit = edits.pop(int(rng.integers(len(edits))))
            result = apply([edit], before)
            if result not in drawn and result.is_valid():
                drawn[result] = edit
                break
    return list(drawn.values())


def between(first: Edit, second: Edit) -> list[Edit] | None:
    """Return the edits that lead from the result of ``first`` to that of ``second``, both done to one scene.

    Returns:
        One edit where both changed the same thing in the same respect, two where they changed different
        things, None otherwise.
    """
    if first.before and first.before == second.before and first.kind == second.kind:
        return (
            [Edit(first.kind, first.after, second.after)] if first.kind not in ("remove", "replace") else None
        )
    if set(first.before) & set(second.before):
        return None
    return [first.undone(), second]


def _squeezed(a: Thing, b: Thing) -> bool:
    rows, columns = abs(a.place // 3 - b.place // 3), abs(a.place % 3 - b.place % 3)
    return rows + columns == 1 and "large" in (a.size, b.size) and "small" not in (a.size, b.size)


def _random_thing(place: int, world: World, rng: np.random.Generator) -> Thing:
    return Thing(
        place,
        shape=world.shapes[rng.integers(len(world.shapes))],
        colour=world.colours[rng.integers(len(world.colours))],
        size=SIZES[rng.choice(3, p=(0.3, 0.4, 0.3))],
        texture=TEXTURES[rng.choice(4, p=(0.4, 0.2, 0.2, 0.2))],
    )


def _changed(name: str, before: Scene, values: tuple[str, ...]) -> Iterator[Edit]:
    for thing in before.things:
        for value in _others(values, getattr(thing, name)):
            changes: dict[str, Any] = {name: value}
            yield Edit(name, (thing,), (replace(thing, **changes),))


def _moved(before: Scene, world: World) -> Iterator[Edit]:
    for thing in before.things:
        for place in _free(before):
            yield Edit("move", (thing,), (replace(thing, place=place),))


def _removed(before: Scene, world: World) -> Iterator[Edit]:
    if len(before.things) > 1:
        yield from (Edit("remove", (thing,), ()) for thing in before.things)


def _added(before: Scene, world: World) -> Iterator[Edit]:
    places = _free(before) if len(before.things) < MOST_THINGS else []
    for place, shape, colour, size in product(places, world.shapes, world.colours, SIZES):
        yield Edit("add", (), (Thing(place, shape, colour, size, "plain"),))


def _copied(before: Scene, world: World) -> Iterator[Edit]:
    places = _free(before) if len(before.things) < MOST_THINGS else []
    for place, thing in product(places, before.things):
        yield Edit("copy", (), (replace(thing, place=place),))


def _replaced(before: Scene, world: World) -> Iterator[Edit]:
    for thing in before.things:
        for shape in _others(world.shapes, thing.shape):
            for colour in _others(world.colours, thing.colour):
                yield Edit("replace", (thing,), (replace(thing, shape=shape, colour=colour),))
            for texture in _others(TEXTURES[1:], thing.texture):
                yield Edit("replace", (thing,), (replace(thing, shape=shape, texture=texture),))


def _swapped_colours(before: Scene, world: World) -> Iterator[Edit]:
    for a, b in combinations(before.things, 2):
        if a.colour != b.colour:
            yield Edit("swap colours", (a, b), (replace(a, colour=b.colour), replace(b, colour=a.colour)))


def _swapped_places(before: Scene, world: World) -> Iterator[Edit]:
    for a, b in combinations(before.things, 2):
        if replace(a, place=b.place) != b:
            yield Edit("swap places", (a, b), (replace(a, place=b.place), replace(b, place=a.place)))


def _others(values: tuple[str, ...], own: str) -> list[str]:
    return [value for value in values if value != own]


def _free(before: Scene) -> list[int]:
    taken = {thing.place for thing in before.things}
    return [place for place in range(len(PLACES)) if place not in taken]


_PROPOSALS: dict[str, Callable[[Scene, World], Iterator[Edit]]] = {
    "colour": lambda before, world: _changed("colour", before, world.colours),
    "shape": lambda before, world: _changed("shape", before, world.shapes),
    "size": lambda before, world: _changed("size", before, SIZES),
    "texture": lambda before, world: _changed("texture", before, TEXTURES),
    "move": _moved,
    "remove": _removed,
    "add": _added,
    "copy": _copied,
    "replace": _replaced,
    "swap colours": _swapped_colours,
    "swap places": _swapped_places,
}
