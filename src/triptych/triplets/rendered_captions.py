"""Captions of a rendered benchmark: what a scene shows, and what to change in it, in many wordings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from triptych.triplets.rendered_scene import SIZES, Edit, Scene, Thing

AT: tuple[tuple[str, ...], ...] = (
    ("at the top left", "in the top left corner"),
    ("at the top centre", "in the middle of the top row"),
    ("at the top right", "in the top right corner"),
    ("at the middle left", "in the middle of the left side"),
    ("in the centre", "in the very centre"),
    ("at the middle right", "in the middle of the right side"),
    ("at the bottom left", "in the bottom left corner"),
    ("at the bottom centre", "in the middle of the bottom row"),
    ("at the bottom right", "in the bottom right corner"),
)
"""Ways to say each cell of the grid."""

WORDINGS: dict[str, tuple[str, ...]] = {
    "colour": (
        "make {it} {colour}",
        "turn {it} {colour}",
        "paint {it} {colour}",
        "{it} should be {colour}",
        "i want {it} in {colour}",
        "same, but with {it} in {colour}",
        "change the colour of {it} to {colour}",
        "{it} is now {colour}",
        "{colour} instead of {old} for {it}",
    ),
    "same colour": (
        "same colour for {it} as for {other}",
        "give {it} the colour of {other}",
        "{it} in the same colour as {other}",
        "paint {it} in the colour of {other}",
        "match the colour of {it} to {other}",
    ),
    "shape": (
        "turn {it} into {a_shape}",
        "replace {it} by {a_shape}",
        "swap {it} for {a_shape}",
        "{a_shape} instead of {it}",
        "{it} becomes {a_shape}",
        "same, with {a_shape} in place of {it}",
        "i want {a_shape} where {it} is",
    ),
    "bigger": (
        "make {it} a bit bigger",
        "{it} goes one size up",
        "{it} should be slightly larger",
        "enlarge {it} a little",
        "same, but {it} a little bigger",
    ),
    "smaller": (
        "make {it} a bit smaller",
        "{it} goes one size down",
        "{it} should be slightly smaller",
        "shrink {it} a little",
        "same, but {it} a little smaller",
    ),
    "much bigger": (
        "make {it} much bigger",
        "{it} goes two sizes up",
        "blow {it} up a lot",
        "{it} is far larger",
    ),
    "much smaller": (
        "make {it} much smaller",
        "{it} goes two sizes down",
        "shrink {it} a lot",
        "{it} is far smaller",
    ),
    "size": ("make {it} {size}", "{it} should be {size}", "i want {it} {size}", "change {it} to {size} size"),
    "texture": (
        "make {it} {texture}",
        "{it} should be {texture}",
        "i want {it} {texture}",
        "same, but {it} is {texture}",
        "give {it} a {texture} look",
        "{texture} instead of {old_texture} for {it}",
    ),
    "plain": (
        "make {it} plain",
        "remove the pattern from {it}",
        "{it} without its {old_noun}",
        "no {old_noun} on {it}",
    ),
    "patterned": ("put {noun} on {it}", "add {noun} to {it}", "{it} with {noun}", "cover {it} with {noun}"),
    "place": (
        "move {it} {to}",
        "{it} goes {to}",
        "{it} should be {at}",
        "same, but {it} is {at}",
        "place {it} {at}",
        "i want {it} {at}",
    ),
    "step": (
        "move {it} one step {way}",
        "shift {it} a little {way}",
        "{it} is one step further {way}",
        "nudge {it} {way}",
    ),
    "leap": (
        "move {it} all the way {way}",
        "push {it} two steps {way}",
        "{it} goes {way} as far as possible",
    ),
    "remove": (
        "same, without {it}",
        "remove {it}",
        "take {it} away",
        "leave out {it}",
        "{it} is gone",
        "everything except {it}",
        "get rid of {it}",
    ),
    "add": (
        "add {a_thing} {at}",
        "put {a_thing} {at}",
        "with {a_thing} {at} as well",
        "one more: {a_thing} {at}",
        "same, plus {a_thing} {at}",
        "there is also {a_thing} {at}",
    ),
    "copy": (
        "copy {it} {at}",
        "another one like {it} {at}",
        "repeat {it} {at}",
        "add a twin of {it} {at}",
    ),
    "replace": (
        "swap {it} for {a_new}",
        "replace {it} by {a_new}",
        "{a_new} instead of {it}",
        "turn {it} into {a_new}",
        "same, with {a_new} in place of {it}",
    ),
    "swap colours": (
        "swap the colours of {both}",
        "{both} trade colours",
        "exchange the colours of {both}",
        "let {both} switch colours",
    ),
    "swap places": (
        "swap the places of {both}",
        "{both} trade places",
        "exchange {both}, each where the other was",
        "let {both} switch positions",
    ),
}
"""Templates; ``{it}`` and ``{other}`` are filled by a phrase that fits one thing of the reference only."""

WHOLE = ("same", "everything", "one more", "there is")
NOUNS = {"striped": "stripes", "dotted": "dots", "checked": "checks", "plain": "pattern"}
WAYS = {(0, -1): "to the left", (0, 1): "to the right", (-1, 0): "up", (1, 0): "down"}

PHRASES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("shape",), "the {shape}"),
    (("colour",), "the {colour} one"),
    (("size",), "the {size} one"),
    (("texture",), "the {texture} one"),
    (("colour", "shape"), "the {colour} {shape}"),
    (("size", "shape"), "the {size} {shape}"),
    (("texture", "shape"), "the {texture} {shape}"),
    (("size", "colour"), "the {size} {colour} one"),
)
"""Ways to point at a thing, with the fields that must be its own."""

BRIEF = 0.2
"""Chance that a thing is named by one word, as "the small one" or "it", where that tells it apart."""

Words = dict[str, str]


@dataclass(frozen=True)
class Page:
    """What a caption is about: the reference, those of its things that no edit changes, and the dice."""

    reference: Scene
    steady: tuple[Thing, ...]
    rng: np.random.Generator

    def choose(self, wordings: Sequence[str]) -> str:
        """Draw one of several wordings."""
        return wordings[int(self.rng.integers(len(wordings)))]


def relative_captions(edits: Sequence[Edit], reference: Scene, rng: np.random.Generator) -> tuple[str, str]:
    """Write two captions that together name every edit; unchanged things are not described.

    Two edits are told one each, or both in each caption.
    """
    changed = {thing for edit in edits for thing in edit.before}
    page = Page(reference, tuple(thing for thing in reference.things if thing not in changed), rng)
    if len(edits) == 1:
        first = second = describe_edit(edits[0], page)
        for _ in range(8):
            if second != first:
                break
            second = describe_edit(edits[0], page)
        return first, second
    if rng.random() < 0.5:
        first, second = (describe_edit(edit, page) for edit in edits)
        return first, second
    parts = [describe_edit(edit, page, joined=True) for edit in (*edits, *reversed(edits))]
    return f"{parts[0]} and {parts[1]}", f"{parts[2]}, {parts[3]}"


def describe_edit(edit: Edit, page: Page, *, joined: bool = False) -> str:
    """Write one caption of one edit; ``joined`` leaves out wordings that speak of the whole picture."""
    key, words = _WRITERS[edit.kind](edit, page)
    return page.choose([w for w in WORDINGS[key] if not joined or not w.startswith(WHOLE)]).format(**words)


def describe_scene(scene: Scene, rng: np.random.Generator) -> str:
    """Write a full description of a scene, things in random order."""
    with_places = rng.random() < 0.75
    parts = [
        _with_article(_looks(scene.things[i]))
        + (f" {_at(scene.things[i].place, rng)}" if with_places else "")
        for i in rng.permutation(len(scene.things))
    ]
    listed = parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + f" and {parts[-1]}"
    count = ("one shape", "two shapes", "three shapes", "four shapes")[len(parts) - 1]
    openings = ("", "", "a picture of ", "there is ", f"{count}: ", "a drawing with ")
    return openings[rng.integers(len(openings))] + listed


def refer(thing: Thing, page: Page) -> str:
    """Name a thing so that it is told apart from all others of the reference: as a rule by colour and shape."""
    things = page.reference.things
    brief = page.rng.random() < BRIEF
    if len(things) == 1 and brief:
        return "it"
    alone = [
        phrase
        for fields, phrase in PHRASES
        if sum(all(getattr(other, f) == getattr(thing, f) for f in fields) for other in things) == 1
    ]
    if not alone:
        return f"the {thing.shape} {_at(thing.place, page.rng)}"
    full = [phrase for phrase in alone if phrase == PHRASES[4][1]]
    short = [phrase for phrase in alone if phrase.count("{") == 1]
    phrase = page.choose((short if brief else full) or alone)
    return phrase.format(shape=thing.shape, colour=thing.colour, size=thing.size, texture=thing.texture)


def _with_article(noun: str) -> str:
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def _looks(thing: Thing) -> str:
    texture = "" if thing.texture == "plain" else f"{thing.texture} "
    return f"{thing.size} {texture}{thing.colour} {thing.shape}"


def _at(place: int, rng: np.random.Generator) -> str:
    return AT[place][rng.integers(len(AT[place]))]


def _colour(edit: Edit, page: Page) -> tuple[str, Words]:
    (old,), (new,) = edit.before, edit.after
    words = {"it": refer(old, page), "colour": new.colour, "old": old.colour}
    others = [thing for thing in page.steady if thing.colour == new.colour]
    if len(others) == 1 and page.rng.random() < 0.5:
        return "same colour", words | {"other": refer(others[0], page)}
    return "colour", words


def _shape(edit: Edit, page: Page) -> tuple[str, Words]:
    return "shape", {
        "it": refer(edit.before[0], page),
        "a_shape": _with_article(edit.after[0].shape),
    }


def _size(edit: Edit, page: Page) -> tuple[str, Words]:
    (old,), (new,) = edit.before, edit.after
    steps = SIZES.index(new.size) - SIZES.index(old.size)
    key = ("much " if abs(steps) == 2 else "") + ("bigger" if steps > 0 else "smaller")
    words = {"it": refer(old, page), "size": new.size}
    return ("size" if page.rng.random() < 0.35 else key), words


def _texture(edit: Edit, page: Page) -> tuple[str, Words]:
    (old,), (new,) = edit.before, edit.after
    words = {"it": refer(old, page), "texture": new.texture, "old_texture": old.texture}
    words |= {"noun": NOUNS[new.texture], "old_noun": NOUNS[old.texture]}
    if "plain" not in (old.texture, new.texture) or page.rng.random() < 0.5:
        return "texture", words
    return ("plain" if new.texture == "plain" else "patterned"), words


def _move(edit: Edit, page: Page) -> tuple[str, Words]:
    (old,), (new,) = edit.before, edit.after
    words = {"it": refer(old, page), "at": _at(new.place, page.rng)}
    words["to"] = "to " + words["at"].split(" ", 1)[1]
    rows, columns = new.place // 3 - old.place // 3, new.place % 3 - old.place % 3
    if (rows and columns) or page.rng.random() < 0.2:
        return "place", words
    words["way"] = WAYS[int(np.sign(rows)), int(np.sign(columns))]
    return ("step" if abs(rows + columns) == 1 else "leap"), words


def _remove(edit: Edit, page: Page) -> tuple[str, Words]:
    return "remove", {"it": refer(edit.before[0], page)}


def _add(edit: Edit, page: Page) -> tuple[str, Words]:
    (new,) = edit.after
    return "add", {"a_thing": _with_article(_looks(new)), "at": _at(new.place, page.rng)}


def _copy(edit: Edit, page: Page) -> tuple[str, Words]:
    (new,) = edit.after
    originals = [thing for thing in page.steady if _looks(thing) == _looks(new)]
    if not originals:
        return _add(edit, page)
    return "copy", {"it": refer(originals[0], page), "at": _at(new.place, page.rng)}


def _replace(edit: Edit, page: Page) -> tuple[str, Words]:
    (old,), (new,) = edit.before, edit.after
    look = new.colour if new.colour != old.colour else new.texture
    return "replace", {"it": refer(old, page), "a_new": _with_article(f"{look} {new.shape}")}


def _swap(edit: Edit, page: Page) -> tuple[str, Words]:
    a, b = (edit.before[i] for i in page.rng.permutation(2))
    both = f"{refer(a, page)} and {refer(b, page)}"
    if len(page.reference.things) == 2 and page.rng.random() < 0.6:
        both = page.choose(["the two", "both shapes"])
    return edit.kind, {"both": both}


_WRITERS: dict[str, Callable[[Edit, Page], tuple[str, Words]]] = {
    "colour": _colour,
    "shape": _shape,
    "size": _size,
    "texture": _texture,
    "move": _move,
    "remove": _remove,
    "add": _add,
    "copy": _copy,
    "replace": _replace,
    "swap colours": _swap,
    "swap places": _swap,
}
