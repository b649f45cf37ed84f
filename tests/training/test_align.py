"""Alignment: captions find their pictures afterwards; and every way that a captions file can be wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from triptych.backbones.token_cache import TokenCache
from triptych.errors import DataError, UsageError
from triptych.objectives import similarity
from triptych.training import align as module
from triptych.training.align import AlignConfig, align, read_captions
from triptych.training.model import Model, load_model, read_weights
from triptych.triplets import Benchmark


def recall_at_1(model: Model, bench: Benchmark) -> float:
    """Share of captions whose own picture scores best among 24."""
    images = sorted(bench.train.image_ids())
    cache = TokenCache(model.backbone)
    keys = cache.add_images(bench.images, images, model.backbone)
    with torch.no_grad():
        texts = model.backbone.text([image.replace("-", " ") for image in images])
        targets = model.backbone.targets(cache.gather(cache.rows([keys[image] for image in images])))
    return float((similarity(texts, targets).argmax(dim=1) == torch.arange(len(images))).float().mean())


def test_captions_find_their_pictures(aligned: Path, bench: Benchmark, pristine: Any) -> None:
    """By chance one of 24 would; without training it is not many more."""
    assert recall_at_1(Model(pristine, None, {}, {}), bench) <= 6 / 24
    assert recall_at_1(load_model(aligned), bench) >= 14 / 24


def test_what_is_written(aligned: Path, sizes: dict[str, Any]) -> None:
    model = load_model(aligned)
    assert model.method is None
    assert model.settings["backbone"] == sizes
    assert model.info["stage"] == "alignment"
    assert (model.info["pairs"], model.info["epochs"]) == (24, 40)
    assert 0 < model.info["loss"] < 2  # guessing among 24 costs ln 24 = 3.2


@pytest.fixture
def pairs(bench: Benchmark) -> list[tuple[str, str]]:
    return [(image, image.replace("-", " ")) for image in bench.train.image_ids()]


def test_the_same_seed_gives_the_same_model(
    bench: Benchmark, pairs: list[tuple[str, str]], sizes: dict[str, Any], tmp_path: Path
) -> None:
    settings = {"epochs": 2, "batch_size": 12}
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        torch.rand(3)
        align(bench.images, pairs, tmp_path / name, backbone=sizes, settings={**settings, "seed": seed})
    first, second, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert first == second != other


def test_identity_adds_that_a_picture_with_an_empty_text_finds_itself(
    bench: Benchmark, pairs: list[tuple[str, str]], pristine: Any
) -> None:
    cache = TokenCache(pristine)
    keys = cache.add_images(bench.images, [image for image, _ in pairs], pristine)
    tokens = cache.gather(cache.rows([keys[image] for image, _ in pairs]))
    texts = [text for _, text in pairs]
    with torch.no_grad():
        plain, both = (
            module._contrast(pristine, tokens, texts, AlignConfig(temperature=0.1, identity=weight))
            for weight in (0.0, 0.5)
        )
        composed = pristine.compose(tokens, [""] * len(texts)).vector
        scores = similarity(composed, pristine.targets(tokens)) / 0.1
        places = torch.arange(len(texts))
        itself = (cross_entropy(scores, places) + cross_entropy(scores.T, places)) / 2
    torch.testing.assert_close(both, plain + 0.5 * itself)


def test_progress_is_told(
    bench: Benchmark, pairs: list[tuple[str, str]], sizes: dict[str, Any], tmp_path: Path
) -> None:
    told: list[tuple[str, int, int]] = []
    align(
        bench.images,
        [*pairs[:9], (pairs[0][0], "seen for the first time")],
        tmp_path / "model",
        backbone=sizes,
        settings={"epochs": 2, "batch_size": 4},
        cache=tmp_path / "cache",
        stages=lambda *what: told.append(what),
    )
    assert ("image tokens", 9, 9) in told
    assert ("captions", 1, 1) in told
    assert told[-4:] == [("alignment", step, 4) for step in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"epoch": 3}, 'align: unknown setting "epoch"; known here: epochs'),
        ({"epochs": 0}, '"epochs"'),
        ({"temperature": 0}, '"temperature"'),
        ({"batch_size": 25}, r"a batch of 25 is larger than the data \(24 pairs\)"),
    ],
)
def test_wrong_settings_are_named(
    bench: Benchmark, pairs: list[tuple[str, str]], tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        align(bench.images, pairs, tmp_path / "model", settings=settings)


def test_missing_pictures_are_counted(
    bench: Benchmark, pairs: list[tuple[str, str]], sizes: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="2 of 26 images cannot be read") as caught:
        align(
            bench.images,
            [*pairs, ("gone-1", "a"), ("gone-2", "b")],
            tmp_path / "model",
            backbone=sizes,
            settings={"batch_size": 8},
        )
    assert "gone-1" in str(caught.value)
    assert not (tmp_path / "model").exists()


def test_nan_stops_and_writes_nothing(
    bench: Benchmark,
    pairs: list[tuple[str, str]],
    sizes: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    contrast, calls = module._contrast, []

    def broken(*given: Any) -> torch.Tensor:
        calls.append(given)
        return contrast(*given) * (torch.nan if len(calls) == 3 else 1)

    monkeypatch.setattr(module, "_contrast", broken)
    with pytest.raises(DataError, match="the loss is not finite in epoch 2, step 1"):
        align(
            bench.images,
            pairs,
            tmp_path / "model",
            backbone=sizes,
            settings={"epochs": 2, "batch_size": 12},
        )
    assert not (tmp_path / "model").exists()


Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(text: str) -> Path:
        path = tmp_path / "captions.csv"
        path.write_bytes(text.encode())
        return path

    return to_file


def test_captions_of_validation_are_left_out(write: Write) -> None:
    path = write("image_id,split,caption\n1,train,A red DRESS.\n2,val,a leak\n3,train,blue\n")
    assert read_captions(path) == [("1", "a red dress"), ("3", "blue")]
    assert read_captions(path, split="val") == [("2", "a leak")]
    assert len(read_captions(path, split=None)) == 3
    with pytest.raises(DataError, match='no \\(image, caption\\) pair of split "test"'):
        read_captions(path, split="test")


@pytest.mark.parametrize("header", ["image_id,caption", "image,text", "id,title", "id,name", "\ufeffid,name"])
def test_usual_columns_are_found(write: Write, header: str) -> None:
    assert read_captions(write(f"{header}\r\n7,red\r\n")) == [("7", "red")]


def test_columns_can_be_named(write: Write) -> None:
    path = write('sku,words,name\n7,"is ""red"", long",no\n')
    found = read_captions(path, image_column="sku", caption_column="words")
    assert found == [("7", "is red , long")]
    for given, said in (
        ({"image_column": "sku", "caption_column": "wrds"}, 'no column "wrds".*--caption-column'),
        ({"image_column": "number"}, 'no column "number".*sku, words, name.*--image-column'),
        ({}, "none of the columns image_id, image, id.*--image-column"),
    ):
        with pytest.raises(DataError, match=f"(?s){said}") as caught:
            read_captions(path, **given)
        assert str(path) in str(caught.value)


def test_rows_without_image_or_caption_are_counted(write: Write) -> None:
    told: list[str] = []
    path = write("id,name\n1,red\n2,\n,blue\n4\n5, ! \n")
    assert read_captions(path, warn=told.append) == [("1", "red")]
    assert told == ["4 of 5 rows of captions.csv have no image or no caption"]
    told.clear()
    read_captions(write("id,name\n1,red\n"), warn=told.append)
    assert told == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there is no such file"),
        (b"id,name\n1,caf\xe9\n", "is not UTF-8 text"),
        (b"id,name\n", "no .image, caption. pair"),
        (b"", "none of the columns"),
        (b"id,name\n1,red\n2,bl\x00ue\n3," + b"x" * 200_000 + b"\n", "is not CSV"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "captions.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=said) as caught:
        read_captions(path)
    assert str(path) in str(caught.value)


def test_a_folder_is_no_captions_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_captions(tmp_path)


def test_the_weights_are_whole(aligned: Path) -> None:
    tensors, info = read_weights(aligned)
    assert all(torch.isfinite(value).all() for value in tensors.values())
    assert info["epochs"] == 40
