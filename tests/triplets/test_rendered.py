"""The rendered benchmark: the same bytes for a seed, disjoint splits, right answers, dense galleries."""

import csv
import json
import re
import zipfile
from collections import Counter
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from triptych.errors import UsageError
from triptych.triplets import read_benchmark
from triptych.triplets.check import check_data
from triptych.triplets.rendered import TRAIN_PLAN, VAL_PLAN, compose_split, render_benchmark
from triptych.triplets.rendered_picture import SIDE, Ground, centre_of, draw, random_ground
from triptych.triplets.rendered_scene import (
    COLOURS,
    SHAPES,
    SIZES,
    TEXTURES,
    WORLDS,
    Scene,
    Thing,
    apply,
    scene,
)

PLAIN = Ground("plain", ((236, 232, 222), (236, 232, 222)), 0.0)


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    """A small benchmark, its summary, and how far the progress was told."""
    out = tmp_path_factory.mktemp("rendered") / "benchmark"
    steps = []
    summary = render_benchmark(
        out, seed=5, train=48, val=7, progress=lambda done, total: steps.append((done, total))
    )
    return out, summary, steps


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def scenes(folder):
    listed = json.loads((folder / "scenes.json").read_text())
    return {item["image_id"]: (item["split"], item["category"], str(item["things"])) for item in listed}


def test_the_same_seed_gives_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr("triptych.triplets.rendered.VAL_PLAN", replace(VAL_PLAN, siblings=6))
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        render_benchmark(tmp_path / name, seed=seed, train=6, val=3)
    a, b, c = (contents(tmp_path / name) for name in "abc")
    assert a == b
    assert a.keys() == c.keys()
    for name in ("images.zip", "scenes.json", "captions.csv", "captions/cap.meadow.val.json", "README.md"):
        assert a[name] != c[name]


def test_the_layout_reads_and_checks_clean(rendered):
    out, summary, steps = rendered
    benchmark = read_benchmark(out)
    assert len(benchmark.train) == summary.triplets["train"] == 48
    assert sum(len(part.queries) for part in benchmark.splits["val"]) == summary.triplets["val"] == 7
    assert benchmark.train.categories == [world.name for world in WORLDS]
    assert len(benchmark.images) == sum(summary.images.values()) == len(steps)
    assert steps[-1] == (len(steps), len(steps))
    assert sum(len(part.gallery) for part in benchmark.splits["val"]) == summary.images["val"]
    assert "CC0" in benchmark.licence
    assert benchmark.warnings == ()
    report = check_data(out)
    assert not [finding for finding in report.findings if finding.severity == "error"]
    assert report.decoded == report.pictures == len(steps)


def test_answers_show_the_scene_of_the_target_and_nothing_else(rendered):
    out, summary, _ = rendered
    shown = scenes(out)
    sizes = []
    for part in read_benchmark(out).splits["val"]:
        for query in part.queries:
            answers = part.answers[query.triplet_id]
            assert answers[0] == query.target
            assert query.reference not in answers
            same = {i for i in part.gallery if shown[i][2] == shown[query.target][2]}
            assert set(answers) == same
            assert {query.reference, query.target} <= set(part.gallery)
            sizes.append(len(answers))
    assert np.mean(sizes) == summary.answers


def test_train_and_val_share_no_picture_and_no_scene(rendered):
    out, _, _ = rendered
    shown = scenes(out)
    train, val = ({row[2] for row in shown.values() if row[0] == split} for split in ("train", "val"))
    assert not train & val
    benchmark = read_benchmark(out)
    val_ids = {i for part in benchmark.splits["val"] for i in part.gallery}
    assert not val_ids & set(benchmark.train.image_ids())
    assert {i for i, row in shown.items() if row[0] == "val"} == val_ids


def test_pictures_are_square_and_all_different(rendered):
    out, _, _ = rendered
    with zipfile.ZipFile(out / "images.zip") as archive:
        data = [archive.read(name) for name in archive.namelist()]
        assert all(entry.compress_type == zipfile.ZIP_STORED for entry in archive.infolist())
    assert len(set(data)) == len(data)
    picture = Image.open(BytesIO(data[0]))
    assert (picture.size, picture.mode) == ((SIDE, SIDE), "RGB")
    assert 96 <= SIDE <= 160


def test_every_picture_is_described(rendered):
    out, _, _ = rendered
    listed = json.loads((out / "scenes.json").read_text())
    with (out / "captions.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["image_id"], row["split"]) for row in rows] == [(i["image_id"], i["split"]) for i in listed]
    for row, item in zip(rows, listed, strict=True):
        for _, shape, colour, size, texture in item["things"]:
            looks = " ".join(word for word in (size, texture, colour, shape) if word != "plain")
            assert looks in row["caption"]


def test_changes_are_written_down(rendered):
    out, _, _ = rendered
    changed = json.loads((out / "changed_fields.train.json").read_text())
    assert Counter(item["category"] for item in changed) == {world.name: 16 for world in WORLDS}
    assert all(1 <= len(item["changed"]) <= 2 for item in changed)
    truth = json.loads((out / "ground_truth_multi.json").read_text())
    assert [item["id"] for item in truth] == list(range(7))


@given(st.integers(0, 10**6))
@settings(max_examples=5)
def test_edits_lead_from_reference_to_target(seed):
    for split, plan in (("val", VAL_PLAN), ("train", TRAIN_PLAN)):
        renderings, triplets = compose_split(split, 40, plan, seed, forbidden=frozenset(), first_id=0)
        assert len(triplets) == 40
        assert len({r.image_id for r in renderings}) == len(renderings)
        for triplet in triplets:
            assert apply(triplet.edits, triplet.reference.scene) == triplet.target.scene
            assert triplet.reference.scene != triplet.target.scene
            assert 1 <= len(triplet.edits) <= 2
            assert all(3 <= len(caption) <= 200 for caption in triplet.captions)
        pairs = Counter((t.reference.scene, t.target.scene) for t in triplets)
        assert max(pairs.values()) == 1


def test_forbidden_scenes_do_not_occur():
    first, _ = compose_split("train", 60, TRAIN_PLAN, 0, forbidden=frozenset(), first_id=0)
    forbidden = frozenset(rendering.scene for rendering in first)
    second, _ = compose_split("train", 60, TRAIN_PLAN, 0, forbidden=forbidden, first_id=0)
    assert not forbidden & {rendering.scene for rendering in second}


def test_galleries_are_dense():
    """Near each reference lie many pictures; and many pictures elsewhere have what the text asks for."""
    renderings, triplets = compose_split("val", 800, VAL_PLAN, 0, forbidden=frozenset(), first_id=0)
    near, fitting = [], []
    for triplet in triplets:
        gallery = [r for r in renderings if r.category == triplet.category and r is not triplet.reference]
        own = set(triplet.reference.scene.things)
        near.append(sum(len(own ^ set(r.scene.things)) <= 2 for r in gallery))
        if len(triplet.edits) == 1 and triplet.edits[0].kind == "colour":
            new = triplet.edits[0].after[0]
            looks = (new.shape, new.colour)
            fitting.append(sum(any((t.shape, t.colour) == looks for t in r.scene.things) for r in gallery))
    assert np.median(near) >= 15
    assert np.median(fitting) >= 30


def test_captions_have_many_wordings():
    _, triplets = compose_split("train", 900, TRAIN_PLAN, 0, forbidden=frozenset(), first_id=0)
    captions = [caption for triplet in triplets for caption in triplet.captions]
    assert len(set(captions)) > 0.8 * len(captions)
    assert len({re.sub(r"\s+", " ", caption).split(" ")[0] for caption in captions}) > 25
    assert sum(a == b for a, b in (triplet.captions for triplet in triplets)) < 0.01 * len(triplets)


@given(
    place=st.integers(0, 8),
    shape=st.sampled_from([shape for shape in SHAPES if shape not in ("ring", "crescent")]),
    colour=st.sampled_from(list(COLOURS)),
    size=st.sampled_from(SIZES),
    seed=st.integers(0, 10**6),
)
def test_a_plain_thing_has_its_colour_at_its_place(place, shape, colour, size, seed):
    rng = np.random.default_rng(seed)
    picture = np.asarray(
        draw(scene([Thing(place, shape, colour, size, "plain")]), random_ground(rng), rng), float
    )
    x, y = (round(value) for value in centre_of(place))
    found = np.median(picture[y - 3 : y + 4, x - 3 : x + 4].reshape(-1, 3), axis=0)
    assert np.abs(found - COLOURS[colour]).max() < 30


def test_the_rest_of_the_picture_is_ground():
    picture = np.asarray(
        draw(scene([Thing(0, "circle", "red", "large", "plain")]), PLAIN, np.random.default_rng(0)), float
    )
    corner = picture[64:, 64:].reshape(-1, 3)
    assert np.abs(corner - PLAIN.tones[0]).max() < 40
    assert corner.std(axis=0).max() < 4


def test_edges_are_smooth():
    """Between ink and ground lie pixels of neither: a jagged edge has none."""
    picture = np.asarray(
        draw(scene([Thing(4, "circle", "black", "large", "plain")]), PLAIN, np.random.default_rng(0)), float
    )
    grey = picture.mean(axis=2)
    assert ((grey > 140) & (grey < 215)).sum() > 40


def test_bigger_things_cover_more():
    def ink(size):
        rng = np.random.default_rng(0)
        picture = np.asarray(draw(scene([Thing(4, "square", "blue", size, "plain")]), PLAIN, rng), float)
        return int((np.abs(picture - COLOURS["blue"]).max(axis=2) < 40).sum())

    small, medium, large = (ink(size) for size in SIZES)
    assert small * 1.6 < medium
    assert medium * 1.5 < large


def test_textures_look_different():
    def pixels(texture):
        rng = np.random.default_rng(0)
        picture = draw(scene([Thing(4, "square", "green", "large", texture)]), PLAIN, rng)
        return np.asarray(picture, float)[48:80, 48:80].std(axis=(0, 1)).max()

    plain, *others = (pixels(texture) for texture in TEXTURES)
    assert plain < 5
    assert min(others) > 5 * plain


def test_two_pictures_of_a_scene_differ():
    thing = scene([Thing(4, "star", "pink", "medium", "dotted")])
    rng = np.random.default_rng(0)
    assert draw(thing, PLAIN, rng).tobytes() != draw(thing, PLAIN, rng).tobytes()


@pytest.mark.parametrize(
    ("things", "fits"),
    [
        ([], False),
        ([(0, "large"), (1, "large")], False),
        ([(0, "large"), (1, "medium")], False),
        ([(0, "large"), (3, "large")], False),
        ([(0, "large"), (1, "small")], True),
        ([(0, "large"), (4, "large")], True),
        ([(2, "large"), (3, "large")], True),
        ([(0, "small"), (0, "small")], False),
        ([(place, "small") for place in range(5)], False),
    ],
)
def test_what_fits_into_a_picture(things, fits):
    placed = Scene(tuple(Thing(place, "star", "red", size, "plain") for place, size in things))
    assert placed.is_valid() == fits


@pytest.mark.parametrize("arguments", [{"train": 2}, {"val": 0}, {"seed": -1}])
def test_wrong_counts_are_refused(tmp_path, arguments):
    with pytest.raises(UsageError):
        render_benchmark(tmp_path / "out", **arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_is_refused_and_an_empty_one_taken(tmp_path):
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        render_benchmark(tmp_path / "used", train=3, val=3)
    assert (tmp_path / "used" / "notes.txt").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    render_benchmark(tmp_path / "empty", train=3, val=3)
    assert (tmp_path / "empty" / "images.zip").exists()


def test_an_interrupted_run_leaves_nothing(tmp_path):
    def stop(done, total):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        render_benchmark(tmp_path / "out", train=3, val=3, progress=stop)
    assert list(tmp_path.iterdir()) == []
