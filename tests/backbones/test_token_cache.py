"""Tokens of pictures: encoded once, found by their bytes, resumed after an interruption."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from triptych.backbones import token_cache
from triptych.backbones.token_cache import TokenCache
from triptych.errors import DataError, UsageError
from triptych.triplets import ImageStore


class Counting:
    """Stands for a backbone and counts what it encodes; ``stop_after`` makes it fail."""

    def __init__(self, backbone: Any, stop_after: int | None = None) -> None:
        self.shape, self.fingerprint, self.device = backbone.shape, backbone.fingerprint, backbone.device
        self.name = "counting"
        self.preprocess = backbone.preprocess
        self._backbone, self._stop_after, self.encoded = backbone, stop_after, 0

    def encode_images(self, pixels: Tensor) -> Tensor:
        self.encoded += len(pixels)
        if self._stop_after is not None and self.encoded > self._stop_after:
            raise KeyboardInterrupt
        tokens: Tensor = self._backbone.encode_images(pixels)
        return tokens


@pytest.fixture
def counting(small: Any) -> Any:
    return Counting(small)


@pytest.fixture(autouse=True)
def chunks_of_four(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_cache, "_CHUNK", 4)


def expected(small: Any, images: ImageStore, name: str) -> Tensor:
    pixels = torch.from_numpy(small.preprocess(images.load(name)))[None]
    tokens: Tensor = small.encode_images(pixels)[0].half().float()
    return tokens


def test_tokens_are_those_of_the_backbone(
    small: Any, counting: Any, photos: Callable[..., ImageStore], tmp_path: Path
) -> None:
    images = photos(10)
    cache = TokenCache(counting, tmp_path / "cache")
    seen: list[tuple[int, int]] = []
    keys = cache.add_images(images, images.ids, counting, lambda done, total: seen.append((done, total)))
    assert counting.encoded == len(cache) == 10
    assert seen == [(4, 10), (8, 10), (10, 10)]
    again = TokenCache(counting, tmp_path / "cache")
    assert again.add_images(images, images.ids, counting) == keys
    assert counting.encoded == 10
    names = ["p7", "p0", "p7", "p3"]
    tokens = again.gather(again.rows([keys[name] for name in names]))
    assert (tokens.shape, tokens.dtype) == ((4, 1, 16), torch.float32)
    for row, name in zip(tokens, names, strict=True):
        assert torch.equal(row, expected(small, images, name))


def test_keys_are_the_bytes_not_the_names(
    counting: Any, photos: Callable[..., ImageStore], tmp_path: Path
) -> None:
    """A copy under another name is encoded once; another picture under the same name is encoded again."""
    photos(2)
    shutil.copy(tmp_path / "photos" / "p0.png", tmp_path / "photos" / "twin.png")
    images = ImageStore.open(tmp_path / "photos")
    cache = TokenCache(counting, tmp_path / "cache")
    keys = cache.add_images(images, images.ids, counting)
    assert keys["p0"] == keys["twin"] == bytes.fromhex(images.digest("p0"))
    assert counting.encoded == len(cache) == 2
    others = photos(2, colour=99, name="others")
    assert cache.add_images(others, ["p1"], counting)["p1"] != keys["p1"]
    assert counting.encoded == len(cache) == 3


def test_an_interrupted_build_loses_one_chunk_at_most(
    small: Any, photos: Callable[..., ImageStore], tmp_path: Path
) -> None:
    images = photos(12)
    stopped: Any = Counting(small, stop_after=8)
    cache = TokenCache(stopped, tmp_path / "cache")
    with pytest.raises(KeyboardInterrupt):
        cache.add_images(images, images.ids, stopped)
    assert len(cache) == len(TokenCache(small, tmp_path / "cache")) == 8
    rest: Any = Counting(small)
    keys = cache.add_images(images, images.ids, rest)
    assert rest.encoded == 4
    for name in images.ids:
        assert torch.equal(cache.gather(cache.rows([keys[name]]))[0], expected(small, images, name))


def test_what_another_process_encoded_meanwhile_is_not_encoded_again(
    small: Any, counting: Any, photos: Callable[..., ImageStore], tmp_path: Path
) -> None:
    images = photos(5)
    waiting = TokenCache(counting, tmp_path / "cache")
    TokenCache(small, tmp_path / "cache").add_images(images, images.ids, small)
    keys = waiting.add_images(images, images.ids, counting)
    assert counting.encoded == 0
    assert len(waiting.rows(list(keys.values()))) == 5


def test_another_backbone_is_refused_by_name(
    small: Any, lite: Any, photos: Callable[..., ImageStore], tmp_path: Path
) -> None:
    images = photos(1)
    TokenCache(small, tmp_path / "cache").add_images(images, images.ids, small)
    with pytest.raises(DataError, match=r"32px:16.*160px:256"):
        TokenCache(lite, tmp_path / "cache")


def test_nothing_is_written_before_there_is_something_to_write(small: Any, tmp_path: Path) -> None:
    assert len(TokenCache(small, tmp_path / "cache")) == 0
    assert not (tmp_path / "cache").exists()


def test_int8_tokens_are_within_half_a_step(
    small: Any, counting: Any, photos: Callable[..., ImageStore], tmp_path: Path
) -> None:
    """A step is 1/127 of a channel's largest value in the image; whoever reads next finds the same."""
    images = photos(10)
    cache = TokenCache(counting, tmp_path / "cache", "int8")
    keys = cache.add_images(images, images.ids, counting)
    opened = TokenCache(small, tmp_path / "cache")
    assert (cache.dtype, opened.dtype) == ("int8", "int8")
    for name in images.ids:
        pixels = torch.from_numpy(small.preprocess(images.load(name)))[None]
        exact = small.encode_images(pixels)
        found = opened.gather(opened.rows([keys[name]]))
        step = exact.abs().amax(dim=1, keepdim=True) / 127
        assert ((found - exact).abs() <= 0.501 * step).all()
        assert torch.equal(found, cache.rounded(exact))
    with pytest.raises(DataError, match="dtype int8, not float16"):
        TokenCache(small, tmp_path / "cache", "float16")


def test_an_unknown_dtype_is_named(small: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="int4.*float16, int8"):
        TokenCache(small, tmp_path / "cache", "int4")


def test_by_default_the_tokens_that_are_there_are_read(
    small: Any, photos: Callable[..., ImageStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIPTYCH_CACHE", str(tmp_path / "root"))
    images = photos(2)
    assert TokenCache(small).dtype == "float16"
    int8 = TokenCache(small, dtype="int8")
    int8.add_images(images, images.ids, small)
    assert TokenCache(small).folder == int8.folder
    half = TokenCache(small, dtype="float16")
    half.add_images(images, images.ids, small)
    assert TokenCache(small).folder == half.folder != int8.folder


def test_too_little_disk_is_said_before_anything_is_written(
    small: Any,
    counting: Any,
    photos: Callable[..., ImageStore],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three images of one token of 16 halves with 44 bytes of key: 228 bytes."""
    images = photos(3)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9 - 227, 227))
    with pytest.raises(DataError, match=r"3 images need 228 B, and the disk has 227 B free") as caught:
        TokenCache(counting, tmp_path / "cache").add_images(images, images.ids, counting)
    assert str(tmp_path / "cache") in str(caught.value)
    assert not (tmp_path / "cache").exists()
    assert counting.encoded == 0
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9 - 228, 228))
    TokenCache(counting, tmp_path / "cache").add_images(images, images.ids, counting)
    assert counting.encoded == 3


def test_two_processes_split_the_work(small: Any, photos: Callable[..., ImageStore], tmp_path: Path) -> None:
    """Each encodes some, none twice; both find all."""
    images = photos(64)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", BUILDER, str(tmp_path / "cache"), str(images.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    encoded = [int(text.split()[0]) for text in said]
    found = [int(text.split()[1]) for text in said]
    assert found == [64, 64]
    assert sum(encoded) == 64
    assert min(encoded) > 0


def test_a_killed_process_gives_up_what_it_claimed(photos: Callable[..., ImageStore], tmp_path: Path) -> None:
    """The first hangs in its first chunk and is killed while the second waits for it."""
    images = photos(8)
    words = [sys.executable, "-c", BUILDER, str(tmp_path / "cache"), str(images.path)]
    hangs = subprocess.Popen([*words, "hang"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert hangs.stdin is not None
    assert hangs.stdout is not None
    hangs.stdin.write("go\n")
    hangs.stdin.flush()
    assert [hangs.stdout.readline() for _ in range(2)] == ["ready\n", "hanging\n"]
    waits = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert waits.stdin is not None
    assert waits.stdout is not None
    waits.stdin.write("go\n")
    waits.stdin.flush()
    assert waits.stdout.readline() == "ready\n"
    with pytest.raises(subprocess.TimeoutExpired):
        waits.wait(1.5)
    hangs.kill()
    assert waits.communicate(timeout=60)[0].split() == ["8", "8"]
    hangs.communicate()


BUILDER = """
import sys, time
from pathlib import Path
import numpy as np
import torch
from triptych.backbones import token_cache
from triptych.backbones.base import BackboneShape
from triptych.triplets import ImageStore

token_cache._CHUNK = 4

class Stub:
    name, fingerprint, device = "stub", "stub", torch.device("cpu")
    shape = BackboneShape(1, 1, 1, image_tokens=2, image_width=3, image_size=4)
    encoded = 0
    def preprocess(self, image):
        return np.zeros((3, 4, 4), dtype=np.float32)
    def encode_images(self, pixels):
        if "hang" in sys.argv:
            print("hanging", flush=True)
            time.sleep(600)
        self.encoded += len(pixels)
        time.sleep(0.05)
        return torch.ones(len(pixels), 2, 3)

stub, images = Stub(), ImageStore.open(Path(sys.argv[2]))
cache = token_cache.TokenCache(stub, Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
keys = cache.add_images(images, images.ids, stub)
tokens = cache.gather(cache.rows(list(keys.values())))
print(stub.encoded, int(tokens[:, 0, 0].sum()))
"""


def test_each_backbone_has_its_own_folder_by_default(
    small: Any, lite: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIPTYCH_CACHE", str(tmp_path))
    first, second = TokenCache(small), TokenCache(lite)
    assert first.folder != second.folder
    assert first.folder.parent == second.folder.parent == tmp_path / "tokens"


def test_unreadable_pictures_are_counted_and_named(
    counting: Any, photos: Callable[..., ImageStore], tmp_path: Path
) -> None:
    """One missing, one that is no picture, one cut off; the good ones are kept for the next run."""
    photos(6)
    folder = tmp_path / "photos"
    (folder / "p1.png").write_text("not a picture")
    whole = (folder / "p2.png").read_bytes()
    (folder / "p2.png").write_bytes(whole[: len(whole) // 2])
    images = ImageStore.open(folder)
    cache = TokenCache(counting, tmp_path / "cache")
    with pytest.raises(DataError, match="3 of 7 images cannot be read") as caught:
        cache.add_images(images, [*images.ids, "absent"], counting)
    for name in ("p1", "p2", "absent"):
        assert name in str(caught.value)
    assert "triptych data check" in str(caught.value)
    assert len(cache) == 4


def test_an_encoder_that_gives_nan_is_refused(
    small: Any, photos: Callable[..., ImageStore], tmp_path: Path
) -> None:
    images = photos(3)
    broken: Any = Counting(small)
    broken.encode_images = lambda pixels: torch.full((len(pixels), 1, 16), torch.nan)
    cache = TokenCache(broken, tmp_path / "cache")
    with pytest.raises(DataError, match="not finite"):
        cache.add_images(images, images.ids, broken)
    assert len(TokenCache(small, tmp_path / "cache")) == 0


def test_derived_pictures_are_made_only_where_missing(small: Any, counting: Any, tmp_path: Path) -> None:
    cache = TokenCache(counting, tmp_path / "cache")
    made: list[int] = []

    def make(number: int) -> Callable[[], np.ndarray]:
        def draw() -> np.ndarray:
            made.append(number)
            return np.full((3, 32, 32), number / 10, dtype=np.float32)

        return draw

    jobs = {bytes([number]) * 32: make(number) for number in range(6)}
    cache.add_derived(jobs, counting)
    assert sorted(made) == list(range(6))
    cache.add_derived({**jobs, bytes([9]) * 32: make(9)}, counting)
    assert sorted(made) == [*range(6), 9]
    tokens = cache.gather(cache.rows([bytes([4]) * 32]))
    assert torch.equal(tokens, small.encode_images(torch.full((1, 3, 32, 32), 0.4)).half().float())


def test_a_key_that_is_not_cached(counting: Any, tmp_path: Path) -> None:
    cache = TokenCache(counting, tmp_path / "cache")
    with pytest.raises(KeyError):
        cache.rows([b"x" * 32])
    assert cache.gather(np.zeros(0, dtype=np.int64)).shape == (0, 1, 16)


def test_pictures_in_an_archive(
    small: Any, counting: Any, photos: Callable[..., ImageStore], tmp_path: Path
) -> None:
    """The same bytes have the same key wherever they lie."""
    images = photos(3)
    shutil.make_archive(str(tmp_path / "images"), "zip", tmp_path / "photos")
    packed = ImageStore.open(tmp_path / "images.zip")
    cache = TokenCache(counting, tmp_path / "cache")
    assert cache.add_images(images, images.ids, counting) == cache.add_images(packed, packed.ids, counting)
    assert counting.encoded == 3


def test_a_picture_of_another_size_is_another_key(counting: Any, tmp_path: Path) -> None:
    for name, size in (("a", 8), ("b", 9)):
        Image.new("RGB", (size, size)).save(tmp_path / f"{name}.png")
    images = ImageStore.open(tmp_path)
    keys = TokenCache(counting, tmp_path / "cache").add_images(images, images.ids, counting)
    assert keys["a"] != keys["b"]
