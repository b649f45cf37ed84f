"""Decoding: right colours and sides, or an ImageError."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from triptych.errors import DataError
from triptych.triplets.decoding import ImageError, decode_image

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL")

CORNERS = np.array([[[250, 10, 10], [10, 250, 10]], [[10, 10, 250], [240, 240, 30]]], dtype=np.uint8)
"""Red, green / blue, yellow: four corners that tell every turn and flip apart."""


def corners(size: tuple[int, int] = (64, 48)) -> Image.Image:
    return Image.fromarray(CORNERS).resize(size, Image.Resampling.NEAREST)


def encode(image: Image.Image, format: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def corner_colours(image: Image.Image) -> list[tuple[int, ...]]:
    w, h = image.size
    return [image.getpixel(at) for at in ((2, 2), (w - 3, 2), (2, h - 3), (w - 3, h - 3))]


def close(one: object, other: object, within: int) -> bool:
    return bool(np.abs(np.asarray(one, dtype=int) - np.asarray(other, dtype=int)).max() <= within)


@pytest.mark.parametrize(
    ("format", "options", "within"),
    [
        ("PNG", {}, 0),
        ("BMP", {}, 0),
        ("TIFF", {}, 0),
        ("TIFF", {"compression": "tiff_lzw"}, 0),
        ("GIF", {}, 0),
        ("WEBP", {"lossless": True}, 0),
        ("JPEG", {"quality": 95}, 12),
        ("JPEG", {"quality": 95, "progressive": True}, 12),
    ],
)
def test_every_format_gives_the_same_picture(format, options, within):
    image = decode_image(encode(corners(), format, **options), "x")
    assert image.mode == "RGB"
    assert image.size == (64, 48)
    assert close(corner_colours(image), CORNERS.reshape(4, 3), within)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_exif_orientation_is_undone(orientation, format):
    """Turn a picture the way a camera would have stored it; decoding must give the upright one."""
    stored = {
        1: None,
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }[orientation]
    image = corners() if stored is None else corners().transpose(stored)
    exif = Image.Exif()
    exif[0x0112] = orientation
    decoded = decode_image(encode(image, format, exif=exif), "x")
    assert decoded.size == (64, 48)
    assert close(corner_colours(decoded), CORNERS.reshape(4, 3), 60)


def test_broken_exif_does_not_refuse_the_picture():
    data = encode(corners(), "JPEG", exif=b"Exif\0\0garbage that is no directory")
    assert decode_image(data, "x").size == (64, 48)


@pytest.mark.parametrize("values", [[0, 257, 32896, 65535]])
@pytest.mark.parametrize("format", ["PNG", "TIFF"])
def test_16_bit_grey_is_scaled_not_clipped(values, format):
    """65535 / 257 = 255, so 257 -> 1 and 32896 -> 128."""
    image = Image.fromarray(np.array([values], dtype=np.uint16))
    decoded = np.asarray(decode_image(encode(image, format), "x"))
    assert decoded[0].tolist() == [[0] * 3, [1] * 3, [128] * 3, [255] * 3]


def test_transparency_becomes_white_whatever_hides_under_it():
    hidden = Image.new("RGBA", (2, 1), (0, 0, 0, 0))
    hidden.putpixel((1, 0), (200, 0, 0, 128))
    decoded = decode_image(encode(hidden, "PNG"), "x")
    assert decoded.getpixel((0, 0)) == (255, 255, 255)
    assert close(decoded.getpixel((1, 0)), (227, 127, 127), 1)  # half of 200 and half of 255


def test_palette_and_grey_transparency():
    palette = Image.new("P", (2, 1), 0)
    palette.putpalette([0, 0, 0, 10, 20, 30])
    palette.putpixel((1, 0), 1)
    decoded = decode_image(encode(palette, "PNG", transparency=0), "x")
    assert [decoded.getpixel((i, 0)) for i in (0, 1)] == [(255, 255, 255), (10, 20, 30)]
    grey = Image.fromarray(np.array([[7, 90]], dtype=np.uint8))
    decoded = decode_image(encode(grey, "PNG", transparency=7), "x")
    assert [decoded.getpixel((i, 0)) for i in (0, 1)] == [(255, 255, 255), (90, 90, 90)]


def test_grey_with_alpha_and_bilevel():
    grey = Image.new("LA", (1, 1), (100, 255))
    assert decode_image(encode(grey, "PNG"), "x").getpixel((0, 0)) == (100, 100, 100)
    bilevel = Image.new("1", (1, 1), 1)
    assert decode_image(encode(bilevel, "PNG"), "x").getpixel((0, 0)) == (255, 255, 255)


def test_cmyk_is_not_inverted():
    data = encode(corners().convert("CMYK"), "JPEG", quality=95)
    assert close(corner_colours(decode_image(data, "x")), CORNERS.reshape(4, 3), 25)


def test_first_frame_of_an_animation():
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "lime", "blue")]
    for format in ("GIF", "WEBP", "PNG"):
        data = encode(frames[0], format, save_all=True, append_images=frames[1:], duration=50, lossless=True)
        assert close(decode_image(data, "x").getpixel((4, 4)), (255, 0, 0), 2), format


def test_floating_point_and_32_bit_have_no_white():
    for array in (np.ones((2, 2), np.float32), np.full((2, 2), 70_000, np.int32)):
        with pytest.raises(ImageError, match="no stated white") as caught:
            decode_image(encode(Image.fromarray(array), "TIFF"), "x.tif")
        assert caught.value.kind == "unsupported"


def test_too_many_pixels_are_refused_by_name_and_size():
    data = encode(Image.new("1", (300, 200)), "PNG")
    with pytest.raises(ImageError, match=r"big\.png: 300 x 200 pixels are too many") as caught:
        decode_image(data, "big.png", max_pixels=59_999)
    assert caught.value.kind == "too_large"
    assert decode_image(data, "big.png", max_pixels=60_000).size == (300, 200)


def test_a_bomb_is_refused_from_its_header():
    """A PNG that claims 100,000 x 100,000: decoding it would take 30 GB."""
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"\0")),
    ]
    data = b"\x89PNG\r\n\x1a\n"
    for name, body in chunks:
        data += struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    with pytest.raises(ImageError, match=r"bomb\.png: .*10000000000 pixels") as caught:
        decode_image(data, "bomb.png")
    assert caught.value.kind == "too_large"


@pytest.mark.parametrize(
    ("data", "kind"),
    [(b"", "empty"), (b"hello", "not_an_image"), (b"\x89PNG\r\n\x1a\n", "not_an_image")],
)
def test_no_picture(data, kind):
    with pytest.raises(ImageError, match=r"^no\.jpg: ") as caught:
        decode_image(data, "no.jpg", image_id="no")
    assert isinstance(caught.value, DataError)
    assert (caught.value.kind, caught.value.image_id) == (kind, "no")


def test_other_formats_are_not_opened():
    """Pillow knows dozens of formats; only the six that photos come in are allowed."""
    with pytest.raises(ImageError) as caught:
        decode_image(encode(corners(), "PPM"), "x.ppm")
    assert caught.value.kind == "not_an_image"


def noise_picture() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8))


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("PNG", {}),
        ("BMP", {}),
        ("GIF", {}),
        ("WEBP", {}),
        ("JPEG", {}),
        ("JPEG", {"progressive": True}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
    ],
)
def test_a_cut_off_file_is_refused_or_whole(format, options):
    """Wherever a file is cut, decoding gives an error or the very same pixels, never a part of them."""
    data = encode(noise_picture(), format, **options)
    whole = decode_image(data, "x").tobytes()
    refused = 0
    for length in range(0, len(data), max(1, len(data) // 60)):
        try:
            assert decode_image(data[:length], "x").tobytes() == whole
        except ImageError as error:
            refused += error.kind in ("truncated", "not_an_image", "empty")
    assert refused > 50


@given(st.binary(max_size=200))
def test_random_bytes_give_nothing_but_an_image_error(data):
    with pytest.raises(ImageError):
        decode_image(data, "x")


@pytest.mark.parametrize("format", ["PNG", "GIF", "WEBP", "JPEG", "TIFF", "BMP"])
@given(changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=8))
def test_changed_bytes_give_a_picture_or_an_image_error(format, changes):
    data = bytearray(encode(noise_picture().resize((9, 7)), format))
    for position, value in changes:
        data[position % len(data)] = value
    try:
        image = decode_image(bytes(data), "x", max_pixels=1_000_000)
    except ImageError:
        return
    assert image.mode == "RGB"
    assert min(image.size) >= 1
