"""Attention flow: one layer by hand, shares that sum to 1, and the library's own attention."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from triptych.backbones.attention_flow import attention_flow, roll_out


def test_one_layer_by_hand() -> None:
    """A query and a word; the word reads half of the query, the query itself only; two regions."""
    attention = torch.tensor([[[1.0, 0.0], [0.5, 0.5]]])
    cross = torch.tensor([[[0.25, 0.75]]])
    flow, regions = roll_out([attention], [cross])
    assert_close(flow, torch.tensor([[[0.5, 0.0], [0.25, 0.75]]]))
    assert_close(regions, torch.tensor([[[0.125, 0.375], [0.0, 0.0]]]))
    flow, regions = roll_out([attention, attention], [cross, None])
    assert_close(regions[0, 1], torch.tensor([0.25 * 0.125, 0.25 * 0.375]))
    assert_close(flow[0, 1], torch.tensor([0.25 * 0.5 + 0.75 * 0.25, 0.75 * 0.75]))


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), st.integers(1, 5), st.integers(0, 2**31 - 1))
def test_the_shares_of_a_position_sum_to_one(
    layers: int, queries: int, words: int, regions: int, seed: int
) -> None:
    draws = torch.Generator().manual_seed(seed)
    size = queries + words
    own = [torch.rand(2, size, size, generator=draws).softmax(dim=-1) for _ in range(layers)]
    cross = [torch.rand(2, queries, regions, generator=draws).softmax(dim=-1) for _ in range(layers)]
    flow, found = roll_out(own, [x if at % 2 == 0 else None for at, x in enumerate(cross)])
    assert_close(flow.sum(dim=2) + found.sum(dim=2), torch.ones(2, size))
    assert flow.min() >= 0
    assert found.min() >= 0


def test_no_layer_or_no_cross_attention() -> None:
    with pytest.raises(ValueError, match="at least one layer"):
        roll_out([], [])
    with pytest.raises(ValueError, match="at least one layer"):
        roll_out([torch.eye(2)[None]], [None])


def test_it_rolls_out_the_librarys_own_attention(lite) -> None:
    """transformers gives the weights of its slow kernel: per layer the self-attention, then the cross-attention."""
    texts = ["make it red", "is blue and much larger than before"]
    tokens = torch.randn(2, 25, 256, generator=torch.Generator().manual_seed(0))
    found = attention_flow(lite, tokens, texts)
    kernel = lite.qformer.config._attn_implementation
    try:
        lite.qformer.config._attn_implementation = "eager"
        with torch.no_grad():
            words, mask = lite.word_embeddings(texts)
            queries = lite.query_tokens.expand(2, -1, -1)
            output = lite.qformer(
                query_embeds=torch.cat([queries, words], dim=1),
                query_length=lite.shape.queries,
                attention_mask=torch.cat([torch.ones(2, lite.shape.queries), mask.float()], dim=1),
                encoder_hidden_states=lite.vision(tokens),
                output_attentions=True,
            )
    finally:
        lite.qformer.config._attn_implementation = kernel
    size = lite.shape.queries + mask.shape[1]
    own = [each.mean(dim=1) for each in output.attentions if each.shape[-1] == size]
    cross = [each.mean(dim=1) for each in output.cross_attentions]
    flow, regions = roll_out(own, cross)
    real = torch.cat([torch.ones(2, lite.shape.queries), mask.float()], dim=1).bool()
    assert_close(found.regions[real], regions[real], atol=1e-5, rtol=1e-4)
    assert_close(found.positions[real], flow[real], atol=1e-5, rtol=1e-4)
    assert not found.positions[0, 0][~real[0]].any()  # nothing comes from padding


def test_the_pieces_name_the_positions(lite) -> None:
    texts = ["make it red", "unbelievably polka dotted"]
    _, mask = lite.word_embeddings(texts)
    pieces = lite.text_pieces(texts)
    assert [len(each) for each in pieces] == mask.sum(dim=1).tolist()
    assert pieces[0] == ["", "make", "it", "red"]
