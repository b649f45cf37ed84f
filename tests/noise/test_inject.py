"""Noise is drawn as published, deterministically, and never changes more than it says."""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from triptych.errors import DataError, UsageError
from triptych.noise import KINDS, inject, mix_sources, permuted_sources
from triptych.noise.lookalike import pair_lookalikes, thumbnails
from triptych.triplets.table import Triplet, TripletTable

SHUFFLES = ("mix", "reference", "text", "target")


class Pictures:
    """A store of plain colours: the id says which."""

    def __init__(self):
        self.loaded = []

    def load(self, image_id):
        self.loaded.append(image_id)
        level = int(image_id.removeprefix("t")) % 256
        return Image.new("RGB", (20, 12), (level, level, level))


def table_of(n, *, categories=("a",), distinct=True):
    return TripletTable.from_triplets(
        Triplet(
            triplet_id=f"id{i}",
            reference=f"r{i if distinct else i % 3}",
            captions=(f"text {i if distinct else i % 2}",),
            target=f"t{i if distinct else i % 4}",
            category=categories[i % len(categories)],
        )
        for i in range(n)
    )


@st.composite
def tables(draw):
    return table_of(
        draw(st.integers(0, 40)),
        categories=draw(st.sampled_from([("a",), ("a", "b"), ("a", "b", "c")])),
        distinct=draw(st.booleans()),
    )


ratios = st.floats(0, 1, allow_nan=False)


def test_mix_equals_every_golden_key(shared):
    golden = np.load(shared / "golden" / "noise_injection.npz")
    compared = set()
    for key in golden.files:
        if key.endswith("_values"):
            continue
        n, sigma, seed, order = key.removeprefix("N").split("_", 3)
        order, _, rows_only = order.removeprefix("tme_cirr_").partition("_")
        sources = mix_sources(
            int(n), float(sigma.removeprefix("sigma")), int(seed.removeprefix("seed")), order
        )
        if rows_only:
            changed = np.flatnonzero((sources != np.arange(int(n))[:, None]).any(axis=1))
            np.testing.assert_array_equal(changed, golden[key])
            np.testing.assert_array_equal(sources[changed], golden[key.replace("_rows", "_values")])
            compared.add(key.replace("_rows", "_values"))
        else:
            np.testing.assert_array_equal(sources, golden[key])
        compared.add(key)
    assert compared == set(golden.files)


def test_mix_by_hand():
    """The same steps written out with Python's generator, in the order reference, text, target."""
    rng = random.Random(5)
    rows = rng.sample(range(12), 6)
    expected = np.tile(np.arange(12)[:, None], 3)
    for column, third in enumerate((rows[:2], rows[2:4], rows[4:])):
        values = list(third)
        rng.shuffle(values)
        for row in third:
            expected[row, column] = values.pop()
    np.testing.assert_array_equal(mix_sources(12, 0.5, 5), expected)


@given(st.integers(0, 200), ratios, st.integers(0, 2**40), st.sampled_from(["pop", "indexed"]))
def test_mix_permutes_each_field_and_touches_one_field_a_row(n, ratio, seed, order):
    sources = mix_sources(n, ratio, seed, order)
    changed = sources != np.arange(n)[:, None]
    for column in sources.T:
        assert sorted(column) == list(range(n))
    assert changed.sum(axis=1).max(initial=0) <= 1
    assert changed.any(axis=1).sum() <= int(ratio * n)


@given(tables(), ratios, st.integers(0, 1000), st.sampled_from(list(KINDS)))
def test_apply_changes_what_the_manifest_lists_and_nothing_else(table, ratio, seed, kind):
    manifest = inject(table, kind=kind, ratio=ratio, seed=seed, images=Pictures())
    noisy = manifest.apply(table)

    assert noisy.triplet_ids == table.triplet_ids
    assert noisy.column("category") == table.column("category")
    assert {a.triplet_id for a, b in zip(table, noisy, strict=True) if a != b} == manifest.noisy_ids
    for before, after in zip(table, noisy, strict=True):
        fields = {"reference": "reference", "text": "captions", "target": "target"}
        wrong = [name for name, column in fields.items() if getattr(before, column) != getattr(after, column)]
        assert wrong == [f for f in [manifest.field_of(before.triplet_id)] if f]
    for column in ("reference", "captions", "target"):
        assert Counter(noisy.column(column)) == Counter(table.column(column))
    assert manifest.ratio_real <= ratio
    if len(manifest.corruptions):
        with pytest.raises(DataError, match="other data"):
            manifest.apply(noisy)


@given(tables(), ratios, st.integers(0, 1000), st.sampled_from(list(KINDS)))
def test_same_seed_same_noise(table, ratio, seed, kind):
    first, second = (inject(table, kind=kind, ratio=ratio, seed=seed, images=Pictures()) for _ in range(2))
    assert first == second
    assert first.fingerprint() == second.fingerprint()


@pytest.mark.parametrize("kind", KINDS)
def test_another_seed_is_other_noise(kind):
    table = table_of(90)
    first, second = (inject(table, kind=kind, ratio=0.5, seed=s, images=Pictures()) for s in (0, 1))
    assert first.corruptions != second.corruptions
    assert first.fingerprint() != second.fingerprint()


@pytest.mark.parametrize("kind", ["reference", "text", "target"])
def test_one_field_moves(kind):
    manifest = inject(table_of(60), kind=kind, ratio=0.5, seed=3)
    assert {c.field for c in manifest.corruptions} == {kind}
    assert len(manifest.corruptions) + manifest.fixed_points == 30
    assert len(manifest.corruptions) > 20


def test_mix_has_all_three_fields_in_thirds():
    manifest = inject(table_of(300), kind="mix", ratio=0.5, seed=3)
    fields = Counter(c.field for c in manifest.corruptions)
    assert set(fields) == {"reference", "text", "target"}
    assert min(fields.values()) >= 45
    assert len(manifest.corruptions) + manifest.fixed_points == 150


def test_noise_is_counted_by_value():
    """All texts are equal, so shuffling them makes nothing wrong."""
    table = TripletTable.from_triplets(Triplet(str(i), f"r{i}", ("same",), f"t{i}") for i in range(20))
    manifest = inject(table, kind="text", ratio=1.0, seed=0)
    assert manifest.corruptions == ()
    assert (manifest.fixed_points, manifest.ratio_real) == (20, 0.0)


def test_permuted_rows_by_hand():
    rng = random.Random(1)
    rows = rng.sample(range(10), 4)
    values = list(rows)
    rng.shuffle(values)
    expected = list(range(10))
    for row in rows:
        expected[row] = values.pop()
    assert permuted_sources(10, 0.4, 1).tolist() == expected


@pytest.mark.parametrize("ratio", [-0.1, 1.5, float("nan"), float("inf")])
def test_a_ratio_out_of_range_is_refused(ratio):
    with pytest.raises(UsageError, match="between 0 and 1"):
        inject(table_of(5), kind="mix", ratio=ratio, seed=0)


def test_wrong_calls_are_refused():
    with pytest.raises(UsageError, match="seed"):
        inject(table_of(5), kind="mix", ratio=0.5, seed=-1)
    with pytest.raises(UsageError, match="choose one of mix, hard"):
        inject(table_of(5), kind="salt", ratio=0.5, seed=0)
    with pytest.raises(UsageError, match="give the images"):
        inject(table_of(5), kind="hard", ratio=0.5, seed=0)
    with pytest.raises(UsageError, match="write-back"):
        mix_sources(5, 0.5, 0, "sideways")


def test_a_table_without_targets_is_refused():
    table = TripletTable.from_triplets([Triplet("q0", "a", ("x",), "b"), Triplet("q1", "a", ("x",), None)])
    with pytest.raises(DataError, match="q1 has no target"):
        inject(table, kind="mix", ratio=0.5, seed=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [0, 1, 2])
def test_tiny_tables(kind, n):
    manifest = inject(table_of(n), kind=kind, ratio=1.0, seed=0, images=Pictures())
    assert manifest.num_triplets == n
    assert len(manifest.corruptions) <= n


def test_hard_swaps_texts_inside_a_category_between_look_alikes():
    table = table_of(200, categories=("a", "b"))
    manifest = inject(table, kind="hard", ratio=0.5, seed=0, images=Pictures())
    assert len(manifest.corruptions) == 100
    owner = {triplet.captions: triplet for triplet in table}
    gaps = []
    for corruption in manifest.corruptions:
        own, other = owner[corruption.old], owner[corruption.new]
        assert corruption.field == "text"
        assert own.category == other.category
        assert own.target != other.target
        gaps.append(abs(int(own.target[1:]) - int(other.target[1:])))
    assert np.median(gaps) <= 4


def test_hard_takes_the_nearest_partner():
    """Targets 0, 10, 12, 200: whoever begins, 10 and 12 are paired before 200 gets its rest."""
    levels = (0, 10, 12, 200)
    table = TripletTable.from_triplets(Triplet(f"q{v}", "r", (f"text {v}",), f"t{v}") for v in levels)
    look = thumbnails(table.column("target"), Pictures())
    assert pair_lookalikes(table, look, [1, 0, 2, 3], 2) == [(1, 2), (0, 3)]
    assert pair_lookalikes(table, look, [1, 0, 2, 3], 1) == [(1, 2)]


def test_hard_never_pairs_equal_texts_or_equal_targets():
    table = TripletTable.from_triplets(
        [
            Triplet("a", "r1", ("is red",), "t1"),
            Triplet("b", "r2", ("is red",), "t2"),
            Triplet("c", "r3", ("is blue",), "t1"),
        ]
    )
    manifest = inject(table, kind="hard", ratio=1.0, seed=0, images=Pictures())
    assert manifest.noisy_ids == {"b", "c"}


def test_hard_leaves_a_category_of_one_alone():
    table = TripletTable.from_triplets(
        [Triplet("a", "r", ("x",), "t1", "one"), Triplet("b", "r", ("y",), "t2", "two")]
    )
    manifest = inject(table, kind="hard", ratio=1.0, seed=0, images=Pictures())
    assert (manifest.corruptions, manifest.fixed_points) == ((), 2)


def test_thumbnails_read_a_picture_once_and_tell_how_far():
    pictures, steps = Pictures(), []
    look = thumbnails(["t0", "t255", "t0"], pictures, lambda done, total: steps.append((done, total)))
    assert pictures.loaded == ["t0", "t255"]
    assert steps == [(1, 2), (2, 2)]
    np.testing.assert_array_equal(look, np.array([0, 1, 0])[:, None] * np.ones((3, 192)))
