"""From a model to its figures: the same scores, ranks and recalls as by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from triptych.backbones.token_cache import TokenCache
from triptych.errors import UsageError
from triptych.evaluation import FASHIONIQ
from triptych.objectives import similarity
from triptych.training.evaluate import CONTEXT_ROWS, SplitEvaluator, evaluate, scorer
from triptych.training.model import Model
from triptych.training.splits import find_split
from triptych.triplets import Benchmark, TripletTable
from triptych.triplets.text import join_captions


@pytest.fixture
def model(pristine: Any, sizes: dict[str, Any]) -> Model:
    return Model(pristine, None, {"backbone": sizes, "method": None}, {"epoch": 4})


@pytest.fixture
def evaluator(bench: Benchmark, model: Model) -> SplitEvaluator:
    return SplitEvaluator(bench, "val", model, TokenCache(model.backbone))


def tokens(bench: Benchmark, model: Model, names: list[str]) -> torch.Tensor:
    """Encode pictures without any cache, rounded as a cache rounds."""
    pixels = np.stack([model.backbone.preprocess(bench.images.load(name)) for name in names])
    return model.backbone.encode_images(torch.from_numpy(pixels)).half().float()


def scores_by_hand(bench: Benchmark, model: Model, part: Any) -> np.ndarray:
    """One query and one picture at a time."""
    rows = []
    with torch.no_grad():
        targets = [model.backbone.targets(tokens(bench, model, [name]))[0] for name in part.gallery]
        for query in part.queries:
            reference = tokens(bench, model, [query.reference])
            vector = model.backbone.compose(reference, [join_captions(query.captions)]).vector[0]
            rows.append([float((target @ vector).max()) for target in targets])
    return np.array(rows)


def test_figures_by_hand(bench: Benchmark, model: Model, evaluator: SplitEvaluator) -> None:
    result = evaluator.evaluate(model, protocol=FASHIONIQ)
    for part in bench.splits["val"]:
        scores = scores_by_hand(bench, model, part)
        for reference in ("kept", "removed"):
            ranks = []
            for row, query in zip(scores, part.queries, strict=True):
                order = [name for _, name in sorted(zip(-row, part.gallery, strict=True))]
                if reference == "removed":
                    order.remove(query.reference)
                ranks.append(order.index(str(query.target)))
            figures = result.row("composed", reference).categories[part.category]
            for k in (1, 5, 10):
                assert figures[f"R@{k}"] == pytest.approx(100 * np.mean(np.array(ranks) < k))
    assert result.gallery_hash == bench.gallery_hash("val")
    assert (result.model.method, result.model.backbone, result.model.epoch) == ("aligned only", "lite", 4)


def test_scores_are_the_one_score() -> None:
    draws = torch.Generator().manual_seed(0)
    vectors = normalize(torch.randn(5, 8, generator=draws), dim=-1)
    targets = normalize(torch.randn(7, 3, 8, generator=draws), dim=-1)
    block = scorer(vectors, targets)(slice(1, 4), slice(2, 7))
    assert block.dtype == np.float32
    np.testing.assert_array_equal(block, similarity(vectors[1:4], targets[2:7]).numpy())


def test_rows_for_context(bench: Benchmark, model: Model, evaluator: SplitEvaluator) -> None:
    """Image alone is the mean target vector of the reference, text alone the text pass."""
    result = evaluator.evaluate(model, context=True, samples=20)
    assert {row.name for row in result.rows} == {"composed", *CONTEXT_ROWS}
    assert all("R@10" in row.mean and "R@10" in row.intervals for row in result.rows)
    part = bench.splits["val"][0]
    references = part.queries.column("reference")
    with torch.no_grad():
        image = normalize(model.backbone.targets(tokens(bench, model, references)).mean(dim=1), dim=-1)
        text = model.backbone.text([join_captions(c) for c in part.queries.column("captions")])
        average = tokens(bench, model, list(part.gallery)).mean(dim=0).expand(len(references), -1, -1)
        mean = model.backbone.compose(
            average, [join_captions(c) for c in part.queries.column("captions")]
        ).vector
        empty = model.backbone.compose(tokens(bench, model, references), [""] * len(references)).vector
    rows = evaluator._context(model)
    for name, expected in zip(CONTEXT_ROWS, (image, text, empty, mean), strict=True):
        torch.testing.assert_close(rows[name][0], expected, atol=1e-5, rtol=0)


def test_the_queries_own_picture_leads_alone(model: Model, evaluator: SplitEvaluator) -> None:
    """Without a text the nearest picture is the reference itself: kept it is never the target at rank one."""
    result = evaluator.evaluate(model, context=True)
    assert result.row("image-only", "kept").mean["R@1"] == 0


def test_one_query_and_one_picture(bench: Benchmark, model: Model) -> None:
    part = bench.splits["val"][0]
    target = str(part.queries[0].target)
    lone = replace(
        part,
        queries=part.queries.take([0]),
        gallery=(target,),
        answers={part.queries[0].triplet_id: (target,)},
    )
    result = evaluate(model, replace(bench, splits={"val": (lone,)}), context=True, samples=10)
    assert result.gallery_sizes == {part.category: 1}
    for row in result.rows:
        assert row.mean["R@1"] == row.mean["R@50"] == 100
        assert row.mean["mAP@5"] == 100


def test_chunks_and_memory_do_not_change_the_figures(
    bench: Benchmark, model: Model, evaluator: SplitEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = evaluator.evaluate(model, context=True)
    monkeypatch.setattr("triptych.training.evaluate._CHUNK", 5)
    assert evaluator.evaluate(model, context=True, memory_budget_bytes=1).rows == whole.rows


def test_the_best_of_each_query(bench: Benchmark, model: Model, evaluator: SplitEvaluator) -> None:
    for part, ranking in zip(bench.splits["val"], evaluator.top(model, 3), strict=True):
        scores = scores_by_hand(bench, model, part)
        for row, query in enumerate(part.queries):
            scores[row, part.gallery.index(query.reference)] = -np.inf
            expected = np.argsort(-scores[row], kind="stable")[:3]
            np.testing.assert_array_equal(ranking.indices[row], expected)


def test_within_image_cosine(bench: Benchmark, model: Model, evaluator: SplitEvaluator) -> None:
    """The mean over pairs of different tokens of one image, over the first category's gallery."""
    gallery = list(bench.splits["val"][0].gallery)
    with torch.no_grad():
        targets = model.backbone.targets(tokens(bench, model, gallery))
    cosine = targets @ targets.mT
    expected = float(cosine[:, ~torch.eye(4, dtype=torch.bool)].mean())
    assert evaluator.within_image_cosine(model) == pytest.approx(expected, abs=1e-5)


def test_an_unknown_split(bench: Benchmark, model: Model) -> None:
    with pytest.raises(UsageError, match='tiny has no split "test"; it has: val'):
        evaluate(model, bench, split="test")
    with pytest.raises(UsageError, match="it has: none"):
        find_split(replace(bench, splits={}, train=TripletTable.from_triplets([])), "val")


def test_a_gallery_in_half_precision_scores_as_its_values_do() -> None:
    draws = torch.Generator().manual_seed(0)
    queries, gallery = torch.randn(3, 8, generator=draws), torch.randn(2500, 2, 8, generator=draws).half()
    narrow, wide = scorer(queries, gallery), scorer(queries, gallery.float())
    block = slice(1, 3), slice(100, 2400)
    np.testing.assert_allclose(narrow(*block), wide(*block), rtol=1e-6)
    assert narrow(*block).shape == (2, 2300)
