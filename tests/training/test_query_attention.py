"""Which words and regions made a query: the account is closed, and others than plain compositions are refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from triptych.errors import UsageError
from triptych.methods.registry import create
from triptych.training.model import Model
from triptych.training.query_attention import join_pieces, query_attention


def test_pieces_become_words() -> None:
    assert join_pieces(["", "un", "##real", "[", "red", "]"]) == [
        ("unreal", [1, 2]),
        ("[", [3]),
        ("red", [4]),
        ("]", [5]),
    ]
    assert join_pieces(["[CLS]", "[SEP]"]) == []


def test_the_shares_of_a_query_sum_to_one(pristine) -> None:
    model = Model(pristine, None, {}, {})
    shape = pristine.shape
    draws = torch.Generator().manual_seed(0)
    tokens = torch.randn(2, shape.image_tokens, shape.image_width, generator=draws)
    texts = ["make it red", "unbelievably large"]
    first, second = query_attention(model, tokens, texts)
    assert first.words == ("make", "it", "red")
    assert second.words == ("unbelievably", "large")
    side = int(shape.image_tokens**0.5)
    for each in (first, second):
        assert each.regions.shape == (side, side)
        assert each.by_word.shape == (len(each.words), side, side)
        total = each.word_shares.sum() + each.regions.sum() + each.rest
        assert total == pytest.approx(1, abs=1e-5)
        assert min(each.word_shares.min(), each.regions.min(), each.rest) >= 0
    (alone,) = query_attention(model, tokens[:1], texts[:1])
    np.testing.assert_allclose(alone.regions, first.regions, atol=1e-5)


def test_a_method_that_composes_in_steps_is_refused(pristine) -> None:
    model = Model(pristine, create("sprc", {}, pristine.shape), {}, {})
    tokens = torch.zeros(1, pristine.shape.image_tokens, pristine.shape.image_width)
    with pytest.raises(UsageError, match="sprc composes its queries in steps of its own"):
        query_attention(model, tokens, ["red"])
    with pytest.raises(UsageError, match="without a Q-Former"):
        query_attention(replace(model, backbone=NoQFormer()), tokens, ["red"])


class NoQFormer:
    name = "clip"
