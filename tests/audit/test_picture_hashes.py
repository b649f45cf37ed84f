"""The perceptual hash and what it finds."""

import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance

from triptych.audit.picture_hashes import Looks, alike, find_by_pictures, look_at, perceptual_hash
from triptych.triplets import ImageStore, Triplet, TripletTable


def scene(seed: int, side: int = 96) -> Image.Image:
    blocks = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(blocks).resize((side, side), Image.Resampling.BICUBIC)


def bits(first: Image.Image, second: Image.Image) -> int:
    return (perceptual_hash(first) ^ perceptual_hash(second)).bit_count()


def test_a_hash_survives_size_compression_and_brightness() -> None:
    picture = scene(0)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=60)
    assert bits(picture, Image.open(buffer)) <= 2
    assert bits(picture, picture.resize((200, 200))) <= 2
    assert bits(picture, ImageEnhance.Brightness(picture).enhance(0.9)) <= 2


def test_other_pictures_differ_in_many_bits() -> None:
    assert min(bits(scene(0), scene(seed)) for seed in range(1, 20)) > 10


def test_flat_pictures_have_a_hash() -> None:
    assert 0 <= perceptual_hash(Image.new("L", (5, 900), 7)) < 2**64


def test_looks_count_what_cannot_be_read(tmp_path: Path) -> None:
    scene(0).save(tmp_path / "a.png")
    scene(0, 120).save(tmp_path / "b.png")
    scene(1).save(tmp_path / "c.png")
    (tmp_path / "d.png").write_bytes(b"no picture")
    seen: list[tuple[int, int]] = []
    looks = look_at(
        ImageStore.open(tmp_path), ["a", "b", "c", "d", "e", "a"], lambda d, t: seen.append((d, t))
    )
    assert seen[-1] == (5, 5)
    assert set(looks.failures) == {"d", "e"}
    assert alike(looks) == [("a", "b")]
    rows = [
        Triplet("1", "a", ("x y",), "b"),
        Triplet("2", "a", ("x y",), "c"),
        Triplet("3", "d", ("x y",), "e"),
    ]
    found = find_by_pictures(TripletTable.from_triplets(rows), looks)
    assert [(f.triplet_id, f.rule) for f in found] == [
        ("1", "identical_pictures"),
        ("3", "unreadable_reference"),
        ("3", "unreadable_target"),
    ]


def test_alike_finds_every_pair_within_two_bits() -> None:
    thumbnail = np.zeros(192, dtype=np.uint8)
    base = 0x0123456789ABCDEF
    hashes = {
        "same": base,
        "two": base ^ (1 << 3) ^ (1 << 40),
        "three": base ^ 0b111,
        "far": ~base & (2**64 - 1),
    }
    looks = Looks({"base": base, **hashes}, dict.fromkeys(("base", *hashes), thumbnail), {})
    # "three" is 3 bits from base, but 2 + 3 bits from "two"
    assert alike(looks) == [("base", "same"), ("base", "two"), ("same", "two")]


def test_colour_tells_pictures_of_one_hash_apart() -> None:
    looks = Looks(
        {"red": 5, "blue": 5},
        {"red": np.full(192, 10, dtype=np.uint8), "blue": np.full(192, 15, dtype=np.uint8)},
        {},
    )
    assert alike(looks) == []
