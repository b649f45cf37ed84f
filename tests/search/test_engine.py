"""Search: the same scores as evaluation, whatever the reference is given as."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from triptych.errors import DataError, UsageError
from triptych.objectives.similarity import similarity
from triptych.search import SearchEngine, search
from triptych.search.engine import gallery_of
from triptych.training.model import Model, load_model
from triptych.triplets import Benchmark, ImageStore, read_benchmark
from triptych.triplets.text import join_captions

REFERENCE = "plain-large-red-circle"
TEXT = "make it blue"


@pytest.fixture(scope="module")
def data(tiny_benchmark: Path) -> Benchmark:
    return read_benchmark(tiny_benchmark)


@pytest.fixture(scope="module")
def model(tiny_run: Path) -> Model:
    return load_model(tiny_run)


@pytest.fixture(scope="module")
def engine(model: Model, data: Benchmark) -> SearchEngine:
    return SearchEngine(model, data, gallery_of(data, split="val"))


def test_hits_are_the_exact_order_of_the_scores(engine: SearchEngine, model: Model, data: Benchmark) -> None:
    def tokens(names: list[str]) -> torch.Tensor:
        pixels = np.stack([model.backbone.preprocess(data.images.load(name)) for name in names])
        return model.backbone.encode_images(torch.from_numpy(pixels)).half().float()

    query = model.embed_queries(tokens([REFERENCE]), [join_captions([TEXT])])
    gallery = [name for name in engine.gallery if name != REFERENCE]
    scores = similarity(query, model.embed_targets(tokens(gallery)))[0]
    hits = engine.search(reference=REFERENCE, text=TEXT, top=5)
    best = scores.topk(5)
    assert [hit.image_id for hit in hits] == [gallery[index] for index in best.indices]
    assert [hit.score for hit in hits] == pytest.approx(best.values.tolist(), abs=2e-3)
    assert [hit.rank for hit in hits] == [1, 2, 3, 4, 5]


def test_the_whole_gallery_comes_each_once_in_falling_order(engine: SearchEngine) -> None:
    hits = engine.search(reference=REFERENCE, text=TEXT, top=1000)
    assert {hit.image_id for hit in hits} == set(engine.gallery) - {REFERENCE}
    assert len(hits) == 23
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert engine.search(reference=REFERENCE, text=TEXT, top=3) == hits[:3]


def test_id_file_and_picture_are_one_reference(engine: SearchEngine, tiny_benchmark: Path) -> None:
    path = tiny_benchmark / "images" / f"{REFERENCE}.png"
    by_id = engine.search(reference=REFERENCE, text=TEXT)
    assert engine.search(reference=path, text=TEXT) == by_id
    assert engine.search(reference=str(path), text=TEXT) == by_id
    with Image.open(path) as picture:
        by_picture = engine.search(reference=picture, text=TEXT, top=24)
    assert REFERENCE in [hit.image_id for hit in by_picture]  # nothing tells that it is the same picture
    assert [(hit.image_id, hit.score) for hit in by_picture if hit.image_id != REFERENCE][:10] == [
        (hit.image_id, hit.score) for hit in by_id
    ]


def test_the_reference_can_be_kept(engine: SearchEngine) -> None:
    kept = engine.search(reference=REFERENCE, text=TEXT, exclude_reference=False, top=24)
    assert {hit.image_id for hit in kept} == set(engine.gallery)
    without = [(hit.image_id, hit.score) for hit in kept if hit.image_id != REFERENCE]
    left_out = engine.search(reference=REFERENCE, text=TEXT, top=24)
    assert [(hit.image_id, hit.score) for hit in left_out] == without


def test_a_copy_of_the_reference_is_left_out_too(model: Model, tiny_benchmark: Path, tmp_path: Path) -> None:
    picture = (tiny_benchmark / "images" / f"{REFERENCE}.png").read_bytes()
    for name in ("a", "b"):
        (tmp_path / f"{name}.png").write_bytes(picture)
    (tmp_path / "c.png").write_bytes((tiny_benchmark / "images" / "plain-large-blue-square.png").read_bytes())
    train = read_benchmark(tiny_benchmark).train
    data = Benchmark("copies", tmp_path, train, {}, ImageStore.open(tmp_path))
    hits = SearchEngine(model, data, data.images.ids).search(reference="a", text=TEXT)
    assert [hit.image_id for hit in hits] == ["c"]


def test_a_text_alone_searches_by_text(engine: SearchEngine, model: Model) -> None:
    hits = engine.search(text="Blue!", top=24)
    with torch.inference_mode():
        scores = similarity(model.backbone.text(["blue"]), engine._targets)[0]
    assert hits[0].score == pytest.approx(float(scores.max()), abs=1e-6)
    assert len(hits) == 24


def test_an_empty_text_is_a_search_by_picture(engine: SearchEngine) -> None:
    assert engine.search(reference=REFERENCE, text=" ...") == engine.search(reference=REFERENCE)
    assert engine.search(reference=REFERENCE) != engine.search(reference=REFERENCE, text=TEXT)


def test_what_cannot_be_searched_is_said(engine: SearchEngine, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs a reference picture, a text, or both"):
        engine.search(text=" !")
    with pytest.raises(UsageError, match="at least 1, not 0"):
        engine.search(text="red", top=0)
    with pytest.raises(UsageError, match='"gone" is neither an image id of tiny nor a file'):
        engine.search(reference="gone")
    (tmp_path / "note.txt").write_text("no picture")
    with pytest.raises(DataError, match=r"note\.txt"):
        engine.search(reference=tmp_path / "note.txt")


def test_an_empty_gallery_is_an_error(model: Model, data: Benchmark) -> None:
    with pytest.raises(DataError, match="there is no picture to search"):
        SearchEngine(model, data, ())


def test_the_gallery_of_splits_and_categories(data: Benchmark) -> None:
    assert gallery_of(data) == data.images.ids
    assert len(gallery_of(data, split="val")) == 24
    plain = gallery_of(data, split="val", category="plain")
    assert plain == data.splits["val"][0].gallery
    both = gallery_of(data, category="plain")
    assert len(both) == len(set(both)) == 24
    assert set(plain) < set(both)
    with pytest.raises(UsageError, match='split val of tiny has no category "dress"; it has: plain, tinted'):
        gallery_of(data, split="val", category="dress")


def test_the_function_does_all_at_once(tiny_run: Path, tiny_benchmark: Path, engine: SearchEngine) -> None:
    hits = search(tiny_run, tiny_benchmark, reference=REFERENCE, text=TEXT, split="val", top=4)
    assert hits == engine.search(reference=REFERENCE, text=TEXT, top=4)
