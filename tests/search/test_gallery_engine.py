"""Search in a gallery: exact as evaluation, near enough when approximate, and what a query means."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.nn.functional import normalize

from triptych.errors import DataError, UsageError
from triptych.evaluation import rank
from triptych.search import Gallery, GalleryEngine, Query, Reference, Text
from triptych.search.embed_queries import embed_queries
from triptych.search.filters import FilterError
from triptych.search.gallery_engine import UnknownImageError
from triptych.search.indexing import pool
from triptych.training.evaluate import scorer
from triptych.triplets.decoding import ImageError

CIRCLE, SQUARE = "plain-large-red-circle", "plain-large-blue-square"


def ids(answer: Any) -> list[str]:
    return [hit.image_id for hit in answer.hits]


def vector(engine: GalleryEngine, query: Query) -> torch.Tensor:
    return engine.embed([engine.prepare(query)])[0]


def test_the_exact_scan_ranks_as_evaluation_does_on_the_stored_vectors(engine: GalleryEngine) -> None:
    gallery = engine.gallery
    rows = gallery.read(["id", "targets"])
    shape = gallery.info.shape
    flat = np.asarray(rows["targets"].combine_chunks().flatten())
    assert flat.dtype == np.float16
    targets = torch.from_numpy(flat.reshape(-1, shape.queries, shape.dim).copy())
    query = Query.of(image=CIRCLE, text="make it blue", top=48, keep_references=True)
    found = rank(scorer(vector(engine, query)[None], targets), 1, 48, top_k=48)
    answer = engine.search(query)
    names = rows["id"].to_pylist()
    assert ids(answer) == [names[place] for place in found.indices[0]]
    assert [hit.score for hit in answer.hits] == pytest.approx(found.scores[0].tolist(), abs=1e-6)
    assert (answer.method, answer.scored, answer.images) == ("exact", 48, 48)


def test_a_hit_says_which_vector_won_and_what_is_known_of_it(engine: GalleryEngine) -> None:
    query = Query.of(image=CIRCLE, text="make it blue", top=5)
    c = vector(engine, query)
    for hit in engine.search(query).hits:
        row = engine.gallery.take([hit.image_id], ["targets"])[hit.image_id]["targets"]
        scores = torch.tensor(row).reshape(engine.gallery.info.shape.queries, -1).float() @ c
        assert hit.vector == int(scores.argmax())
        assert hit.score == pytest.approx(float(scores.max()), abs=1e-5)
        assert hit.metadata["colour"] in hit.image_id
        assert (hit.width, hit.height, hit.source) == (64, 64, f"images/{hit.image_id}.png")


def test_an_answer_names_model_and_version(engine: GalleryEngine) -> None:
    answer = engine.search(Query.of(text="red"))
    assert answer.model == "tiny model"
    assert answer.fingerprint == engine.gallery.info.fingerprint
    assert answer.version == engine.gallery.version


@pytest.mark.parametrize("memory", [2**30, 0])
def test_the_approximate_path_finds_what_the_exact_scan_finds(
    memory: int, gallery_folder: Path, engine: GalleryEngine, engine_of: Callable[..., Any]
) -> None:
    approximate = engine_of(gallery_folder, mode="approximate", candidates=24, memory=memory)
    same = total = 0
    for image_id in engine.gallery.hashes():
        query = Query.of(image=image_id, text="make it green")
        exact, near = engine.search(query), approximate.search(query)
        assert near.method == "approximate"
        assert near.scored < 48
        by_id = {hit.image_id: hit.score for hit in exact.hits}
        for hit in near.hits:
            if hit.image_id in by_id:
                assert hit.score == pytest.approx(by_id[hit.image_id], abs=1e-5)
        same += len(set(ids(exact)) & set(ids(near)))
        total += len(exact.hits)
    assert same / total >= 0.99


@pytest.fixture(scope="module")
def crowd(lance: None, model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3,000 images around 60 centres, with an index, written without looking at a picture."""
    gallery = Gallery.create(tmp_path_factory.mktemp("crowd") / "g", model, "crowd", keep_tokens=False)
    shape, random = gallery.info.shape, torch.Generator().manual_seed(0)
    centres = torch.randn(60, 1, shape.dim, generator=random)
    centres = centres + 0.5 * torch.randn(60, shape.queries, shape.dim, generator=random)
    noise = torch.randn(3000, shape.queries, shape.dim, generator=random)
    targets = normalize(centres.repeat(50, 1, 1) + 0.5 * noise, dim=-1).half()

    def column(values: torch.Tensor) -> pa.Array:
        flat = values.flatten(1).numpy()
        return pa.FixedSizeListArray.from_arrays(pa.array(flat.reshape(-1)), flat.shape[1])

    rows = {
        "id": [f"i{number:04}" for number in range(3000)],
        "content_hash": [f"{number:064x}" for number in range(3000)],
        "source": ["made"] * 3000,
        "width": pa.array([1] * 3000, pa.int32()),
        "height": pa.array([1] * 3000, pa.int32()),
        "thumbnail": [b""] * 3000,
        "pooled": column(pool(targets.float())),
        "targets": column(targets),
    }
    with pytest.MonkeyPatch.context() as patch, gallery.writing():
        patch.setattr("triptych.search.lance_store.APPROXIMATE_FROM", 1000)
        gallery.put(pa.table(rows, schema=shape.schema()))
        gallery.compact()
    return gallery.folder


@pytest.mark.parametrize("memory", [2**30, 0])
def test_recall_in_memory_and_with_an_index(memory: int, crowd: Path, engine_of: Callable[..., Any]) -> None:
    exact = engine_of(crowd, mode="exact")
    near = engine_of(crowd, small=1000, memory=memory)
    assert (near.snapshot.resident is None) == (memory == 0)
    assert near.gallery.status().indexed == 3000
    assert near.snapshot.partitions == 54
    random = torch.Generator().manual_seed(1)
    ready = exact.prepare(Query.of(text="red"))
    found = 0
    for place in torch.randint(3000, (100,), generator=random).tolist():
        own = exact.snapshot.resident.targets[place].float().mean(dim=0)
        c = normalize(own + 0.02 * torch.randn(len(own), generator=random), dim=-1)
        true, answer = exact.find(ready, c), near.find(ready, c)
        assert (true.method, answer.method) == ("exact", "approximate")
        found += len(set(ids(true)) & set(ids(answer)))
    assert found / 1000 >= 0.99


def test_images_that_the_index_does_not_cover_are_found(
    crowd: Path, engine_of: Callable[..., Any], tmp_path: Path
) -> None:
    import shutil

    folder = Path(shutil.copytree(crowd, tmp_path / "g"))
    gallery = Gallery.open(folder)
    row = gallery.store.table.search().where("id = 'i0007'").to_arrow()
    with gallery.writing():
        gallery.put(row.set_column(0, row.schema.field("id"), pa.array(["fresh"])))
    engine = engine_of(folder, small=1000)
    assert engine.gallery.status().indexed == 3000
    own = normalize(torch.tensor(row["pooled"][0].as_py()), dim=0)
    assert {"i0007", "fresh"} <= set(ids(engine.find(engine.prepare(Query.of(text="red", top=100)), own)))


def test_a_filter_narrows_both_ways_of_searching(
    gallery_folder: Path, engine: GalleryEngine, engine_of: Callable[..., Any]
) -> None:
    query = Query.of(image=CIRCLE, text="make it blue", where="price > 15 AND large = true", top=48)
    exact = engine.search(query)
    assert len(exact.hits) == exact.scored == 16
    assert {hit.metadata["colour"] for hit in exact.hits} == {"green", "blue"}
    assert all("large" in hit.image_id for hit in exact.hits)
    near = engine_of(gallery_folder, mode="approximate", memory=0).search(query)
    assert ids(near) == ids(exact)
    assert near.method == "exact"  # so few pass that all of them were scored
    assert engine.search(Query.of(text="red", where="price > 1000")).hits == ()
    with pytest.raises(FilterError, match='no column "colr"'):
        engine.search(Query.of(text="red", where="colr = 'red'"))


def test_the_reference_and_its_copies_are_no_hits(engine: GalleryEngine, tiny_benchmark: Path) -> None:
    query = Query.of(image=CIRCLE, text="make it blue", top=48)
    assert CIRCLE not in ids(engine.search(query))
    assert len(engine.search(query).hits) == 47
    by_file = Query.of(image=tiny_benchmark / "images" / f"{CIRCLE}.png", text="make it blue", top=48)
    assert ids(engine.search(by_file)) == ids(engine.search(query))
    kept = engine.search(query.model_copy(update={"keep_references": True}))
    assert CIRCLE in ids(kept)


def test_a_file_and_an_id_are_one_query_vector(engine: GalleryEngine, tiny_benchmark: Path) -> None:
    by_id = vector(engine, Query.of(image=CIRCLE, text="blue"))
    by_file = vector(engine, Query.of(image=tiny_benchmark / "images" / f"{CIRCLE}.png", text="blue"))
    torch.testing.assert_close(by_id, by_file, atol=2e-3, rtol=0)


def test_a_picture_alone_and_a_text_alone(engine: GalleryEngine, model: Any) -> None:
    alone = vector(engine, Query.of(image=CIRCLE))
    stored = engine.gallery.take([CIRCLE], ["pooled"])[CIRCLE]["pooled"]
    torch.testing.assert_close(alone, torch.tensor(stored), atol=2e-3, rtol=0)
    text = vector(engine, Query.of(text="A red circle."))
    torch.testing.assert_close(text, model.embed_texts(["a red circle"])[0].float(), atol=1e-5, rtol=0)


def test_weights_mix_the_parts(engine: GalleryEngine) -> None:
    def mixed(*weights: float) -> torch.Tensor:
        texts = tuple(
            Text(text=text, weight=weight) for text, weight in zip(("red", "blue"), weights, strict=True)
        )
        return vector(engine, Query(images=(Reference(id=CIRCLE),), texts=texts))

    red, blue = (vector(engine, Query.of(image=CIRCLE, text=text)) for text in ("red", "blue"))
    torch.testing.assert_close(mixed(1, 1), normalize(red + blue, dim=0), atol=1e-5, rtol=0)
    torch.testing.assert_close(mixed(3, 1), normalize(3 * red + blue, dim=0), atol=1e-5, rtol=0)
    torch.testing.assert_close(mixed(30, 10), mixed(3, 1), atol=1e-6, rtol=0)
    two = Query(images=(Reference(id=CIRCLE, weight=2), Reference(id=SQUARE)), texts=(Text(text="green"),))
    parts = [vector(engine, Query.of(image=image, text="green")) for image in (CIRCLE, SQUARE)]
    torch.testing.assert_close(
        vector(engine, two), normalize(2 * parts[0] + parts[1], dim=0), atol=1e-5, rtol=0
    )


def test_what_is_not_wanted_is_pushed_away(engine: GalleryEngine) -> None:
    plain, minus = Query.of(text="red circle"), Query.of(text="red circle", minus="blue")
    wanted, unwanted = vector(engine, plain), vector(engine, Query.of(text="blue"))
    expected = normalize(wanted - 0.5 * unwanted, dim=0)
    torch.testing.assert_close(vector(engine, minus), expected, atol=1e-5, rtol=0)
    nothing_left = Query.of(text="red", minus="red", minus_weight=1.0)
    torch.testing.assert_close(vector(engine, nothing_left), vector(engine, Query.of(text="red")))


def test_turns_carry_what_was_said(engine: GalleryEngine) -> None:
    first = Query.of(text="red circle", where="large = true")
    second = first.then(image=CIRCLE, text="blue")
    now, before = vector(engine, Query.of(image=CIRCLE, text="blue")), vector(engine, first)
    torch.testing.assert_close(
        vector(engine, second), normalize(now + 0.3 * before, dim=0), atol=1e-5, rtol=0
    )
    assert second.where == "large = true"
    fresh = second.model_copy(update={"carry": 0.0})
    torch.testing.assert_close(vector(engine, fresh), now, atol=1e-5, rtol=0)
    third = second.then(text="green")
    assert [len(third.turns), len(third.references)] == [3, 1]
    assert Query.model_validate_json(third.model_dump_json()) == third


def test_many_queries_at_once_are_what_each_is_alone(engine: GalleryEngine) -> None:
    queries = [
        Query.of(image=CIRCLE, text="make it blue"),
        Query.of(text="green"),
        Query.of(image=SQUARE),
        Query.of(image=SQUARE, text="a much longer sentence about red", minus="circle"),
    ]
    together = embed_queries([engine.prepare(query) for query in queries], engine.model)
    for query, found in zip(queries, together, strict=True):
        torch.testing.assert_close(found, vector(engine, query), atol=1e-5, rtol=0)
    assert [ids(answer) for answer in engine.search_many(queries)] == [ids(engine.search(q)) for q in queries]


def test_without_tokens_a_query_by_id_reads_the_thumbnail(
    lance: None, model: Any, tiny_benchmark: Path, tmp_path: Path, engine: GalleryEngine
) -> None:
    from triptych.search import find_pictures, index_images

    gallery = Gallery.create(tmp_path / "g", model, "m", keep_tokens=False)
    index_images(gallery, model, find_pictures(tiny_benchmark / "images").items[:24])
    small = GalleryEngine(gallery, model=model)
    query = Query.of(image=gallery.read(["id"])["id"][0].as_py(), text="make it blue")
    assert float(vector(small, query) @ vector(engine, query)) > 0.98
    assert "tokens" not in gallery.schema.names


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        (Query(), UsageError, "needs a reference picture, a text, or both"),
        (Query.of(text=" .!"), UsageError, "needs a reference picture"),
        (Query.of(minus="red"), UsageError, "needs a reference picture"),
        (Query.of(text="red").then(), UsageError, r"\(turn 2 has neither\)"),
        (Query.of(image="gone", text="red"), UnknownImageError, 'no image "gone" in the gallery'),
        (Query(images=(Reference(upload=0),)), UsageError, "there is no file 0"),
        (Query(images=(Reference(),)), UsageError, "either the id of an image or a file"),
        (Query.of(image=b"no picture", text="red"), ImageError, "not a picture"),
    ],
)
def test_what_cannot_be_searched_is_said(
    query: Query, error: type[Exception], message: str, engine: GalleryEngine
) -> None:
    with pytest.raises(error, match=message):
        engine.search(query)


def test_a_search_follows_the_gallery_when_told(own_gallery: Path, engine_of: Callable[..., Any]) -> None:
    engine = engine_of(own_gallery)
    gallery = Gallery.open(own_gallery)
    with gallery.writing():
        gallery.remove([CIRCLE])
        gallery.compact()
    query = Query.of(image=SQUARE, top=100)
    assert CIRCLE in ids(engine.search(query))
    assert engine.refresh()
    assert CIRCLE not in ids(engine.search(query))
    assert not engine.refresh()


def test_an_empty_gallery_gives_no_hits(lance: None, model: Any, tmp_path: Path) -> None:
    gallery = Gallery.create(tmp_path / "g", model, "m")
    for mode in ("exact", "approximate"):
        answer = GalleryEngine(gallery, model=model, mode=mode).search(Query.of(text="red"))
        assert (answer.hits, answer.images) == ((), 0)


def test_another_models_engine_is_refused(gallery_folder: Path) -> None:
    from triptych.backbones.registry import create_backbone
    from triptych.training.model import Model

    other = Model(create_backbone({"name": "lite"}, seed=5).eval(), None, {"backbone": {"name": "lite"}}, {})
    with pytest.raises(DataError, match="cannot be compared"):
        GalleryEngine(gallery_folder, model=other)
