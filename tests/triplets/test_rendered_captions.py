"""Captions of rendered scenes: each points at one thing, and tells one edit from all others."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.triplets.rendered_captions import (
    AT,
    WORDINGS,
    Page,
    describe_edit,
    describe_scene,
    refer,
    relative_captions,
)
from triptych.triplets.rendered_scene import (
    COLOURS,
    KIND_WEIGHTS,
    SHAPES,
    SIZES,
    TEXTURES,
    WORLDS,
    Edit,
    Thing,
    apply,
    between,
    random_edits,
    random_scene,
    scene,
)

STAR = Thing(0, "star", "red", "small", "plain")
SQUARE = Thing(4, "square", "red", "large", "striped")
RING = Thing(8, "ring", "blue", "large", "plain")

PHRASE = re.compile(
    rf"the (?:({'|'.join(SIZES)}) )?(?:({'|'.join(TEXTURES)}) )?(?:({'|'.join(COLOURS)}) )?(one|{'|'.join(SHAPES)})\b"
    rf"(?: ({'|'.join(way for ways in AT for way in ways)}))?"
)


def page_of(reference, edits=(), seed=0):
    changed = {thing for edit in edits for thing in edit.before}
    steady = tuple(thing for thing in reference.things if thing not in changed)
    return Page(reference, steady, np.random.default_rng(seed))


def texts(edit, reference, tries=60):
    page = page_of(reference, [edit])
    return {describe_edit(edit, page) for _ in range(tries)}


def meant(match, reference):
    """The things of the reference that a phrase such as "the small red one" fits; read without the generator.

    A place counts where the rest is not enough: in "place the star in the centre" it is where the star goes.
    """
    size, texture, colour, shape, at = match.groups()
    fitting = [
        thing
        for thing in reference.things
        if size in (None, thing.size)
        and texture in (None, thing.texture)
        and colour in (None, thing.colour)
        and shape in ("one", thing.shape)
    ]
    return fitting if len(fitting) < 2 else [thing for thing in fitting if at in AT[thing.place]]


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (Edit("colour", (STAR,), (Thing(0, "star", "green", "small", "plain"),)), "make the star green"),
        (
            Edit("colour", (STAR,), (Thing(0, "star", "blue", "small", "plain"),)),
            "give the star the colour of the ring",
        ),
        (
            Edit("shape", (STAR,), (Thing(0, "ring", "red", "small", "plain"),)),
            "swap the small one for a ring",
        ),
        (Edit("size", (STAR,), (Thing(0, "star", "red", "medium", "plain"),)), "make the star a bit bigger"),
        (Edit("size", (STAR,), (Thing(0, "star", "red", "large", "plain"),)), "make the star much bigger"),
        (
            Edit("size", (SQUARE,), (Thing(4, "square", "red", "medium", "striped"),)),
            "shrink the square a little",
        ),
        (Edit("texture", (STAR,), (Thing(0, "star", "red", "small", "dotted"),)), "put dots on the star"),
        (
            Edit("texture", (SQUARE,), (Thing(4, "square", "red", "large", "plain"),)),
            "no stripes on the square",
        ),
        (
            Edit("move", (STAR,), (Thing(1, "star", "red", "small", "plain"),)),
            "move the star one step to the right",
        ),
        (
            Edit("move", (STAR,), (Thing(6, "star", "red", "small", "plain"),)),
            "move the star all the way down",
        ),
        (
            Edit("move", (STAR,), (Thing(7, "star", "red", "small", "plain"),)),
            "move the star to the bottom centre",
        ),
        (Edit("remove", (STAR,), ()), "same, without the star"),
        (Edit("remove", (RING,), ()), "remove the blue one"),
        (
            Edit("add", (), (Thing(2, "cross", "red", "large", "plain"),)),
            "add a large red cross at the top right",
        ),
        (Edit("copy", (), (Thing(2, "ring", "blue", "large", "plain"),)), "copy the ring at the top right"),
        (
            Edit("replace", (STAR,), (Thing(0, "square", "red", "small", "striped"),)),
            "swap the star for a striped square",
        ),
        (
            Edit(
                "swap colours",
                (STAR, RING),
                (Thing(0, "star", "blue", "small", "plain"), Thing(8, "ring", "red", "large", "plain")),
            ),
            "swap the colours of the red star and the blue ring",
        ),
        (
            Edit(
                "swap places",
                (STAR, RING),
                (Thing(8, "star", "red", "small", "plain"), Thing(0, "ring", "blue", "large", "plain")),
            ),
            "swap the places of the red star and the blue ring",
        ),
    ],
)
def test_wordings_by_hand(edit, expected):
    assert expected in texts(edit, scene([STAR, SQUARE, RING]), tries=600)


def test_the_parts_of_two_edits_name_both():
    edits = [Edit("remove", (RING,), ()), Edit("size", (STAR,), (Thing(0, "star", "red", "large", "plain"),))]
    rng = np.random.default_rng(0)
    seen = {relative_captions(edits, scene([STAR, SQUARE, RING]), rng) for _ in range(200)}
    one_each = [
        pair for pair in seen if " and " not in pair[0] and ", " not in pair[1].removeprefix("same, ")
    ]
    joined = [pair for pair in seen if " and " in pair[0]]
    assert len(one_each) > 20
    assert len(joined) > 20
    for first, second in joined:
        assert not re.search("(and|, ) ?(same|everything)", f"{first} {second}")


def test_a_lone_thing_is_sometimes_it():
    lone = scene([STAR])
    page = page_of(lone)
    said = [refer(STAR, page) for _ in range(200)]
    assert 20 < said.count("it") < 60


@given(st.integers(0, 10**6), st.sampled_from(WORLDS))
def test_every_phrase_points_at_one_thing_that_the_edit_is_about(seed, world):
    rng = np.random.default_rng(seed)
    reference = random_scene(world, rng)
    for edit in random_edits(reference, world, 12, rng):
        page = page_of(reference, [edit], seed)
        for _ in range(3):
            caption = describe_edit(edit, page)
            found = [meant(match, reference) for match in PHRASE.finditer(caption)]
            assert all(len(things) == 1 for things in found), caption
            about = {things[0] for things in found}
            if edit.before and found:
                assert about & set(edit.before), caption
            if edit.kind not in ("colour", "copy"):
                assert about <= set(edit.before), caption


@given(st.integers(0, 10**6), st.sampled_from(WORLDS))
def test_no_caption_fits_two_edits(seed, world):
    rng = np.random.default_rng(seed)
    reference = random_scene(world, rng)
    owner = {}
    for edit in random_edits(reference, world, 60, rng):
        for caption in texts(edit, reference, tries=6):
            assert owner.setdefault(caption, edit) == edit, caption


@given(st.integers(0, 10**6), st.sampled_from(WORLDS))
def test_a_caption_says_the_new_value(seed, world):
    """Or it says how to find it: bigger, a direction, the colour of another thing, a swap."""
    rng = np.random.default_rng(seed)
    reference = random_scene(world, rng)
    for edit in random_edits(reference, world, 12, rng):
        caption = describe_edit(edit, page_of(reference, [edit], seed))
        if edit.kind in ("shape", "replace"):
            assert f" {edit.after[0].shape}" in caption
        elif edit.kind == "colour" and edit.after[0].colour not in caption:
            others = [thing for thing in reference.things if thing not in edit.before]
            pointed = [meant(match, reference)[0] for match in PHRASE.finditer(caption)]
            assert any(thing.colour == edit.after[0].colour for thing in pointed if thing in others), caption
        elif edit.kind == "size" and edit.after[0].size not in caption:
            grows = SIZES.index(edit.after[0].size) > SIZES.index(edit.before[0].size)
            words = "bigger|up|larger|enlarge" if grows else "smaller|down|shrink"
            assert re.search(rf"\b({words})\b", caption), caption
        elif edit.kind == "add":
            new = edit.after[0]
            assert all(word in caption for word in (new.size, new.colour, new.shape))
            assert any(way in caption for way in AT[new.place])


@given(st.integers(0, 10**6), st.sampled_from(WORLDS))
def test_between_leads_from_one_sibling_to_the_other(seed, world):
    rng = np.random.default_rng(seed)
    hub = random_scene(world, rng)
    edits = random_edits(hub, world, 10, rng)
    for first in edits:
        assert apply([first.undone()], apply([first], hub)) == hub
        for second in edits:
            path = between(first, second) if first is not second else None
            if path is not None:
                assert apply(path, apply([first], hub)) == apply([second], hub)


@given(st.integers(0, 10**6), st.sampled_from(WORLDS))
def test_scenes_stay_valid_and_edits_change_them(seed, world):
    rng = np.random.default_rng(seed)
    hub = random_scene(world, rng)
    edits = random_edits(hub, world, 40, rng)
    results = [apply([edit], hub) for edit in edits]
    assert len(set(results) | {hub}) == len(edits) + 1
    for result in (hub, *results):
        assert result.is_valid()
        assert 1 <= len(result.things) <= 4
        assert {thing.shape for thing in result.things} <= set(world.shapes)
        assert {thing.colour for thing in result.things} <= set(world.colours)


def test_an_edit_of_what_is_not_there_is_refused():
    with pytest.raises(ValueError, match="not in list"):
        apply([Edit("remove", (RING,), ())], scene([STAR]))


def test_a_description_names_everything():
    rng = np.random.default_rng(0)
    for _ in range(50):
        text = describe_scene(scene([STAR, SQUARE, RING]), rng)
        for words in ("small red star", "large striped red square", "large blue ring"):
            assert words in text


def test_every_wording_is_used():
    """A template that no edit leads to would be dead text."""
    rng = np.random.default_rng(0)
    starts = {
        (key, wording): wording.split("{")[0] for key, wordings in WORDINGS.items() for wording in wordings
    }
    captions = []
    kinds = set()
    for number in range(150):
        world = WORLDS[number % 3]
        reference = random_scene(world, rng)
        for edit in random_edits(reference, world, 20, rng):
            kinds.add(edit.kind)
            captions.append(describe_edit(edit, page_of(reference, [edit], number)))
    for (key, wording), start in starts.items():
        last = wording.split("}")[-1]
        assert any(c.startswith(start) and c.endswith(last) for c in captions), (key, wording)
    assert kinds == set(KIND_WEIGHTS)
    assert len(set(captions)) > 1200
