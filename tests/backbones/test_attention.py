"""Attention followed back: by hand on two layers, and what must hold for any."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from triptych.backbones.attention import Attention, read_composition, roll_out
from triptych.backbones.composer import QFormerBackbone


def test_two_layers_by_hand() -> None:
    """One query token, two text positions, two image tokens; the vector is read from position 1.

    Last layer: r = (0, 1, 0) reads (1, 0, 0), so r = (1/2, 1/2, 0). First layer: half of the query's 1/2 goes to the
    image, all of it to the second token; r = (1/4, 1/2, 0) and position 1 reads position 2: r = (1/4, 1/4, 1/4).
    """
    last = Attention(torch.tensor([[1.0, 0, 0], [1, 0, 0], [0, 0, 1]]), None)
    first = Attention(torch.tensor([[1.0, 0, 0], [0, 0, 1], [0, 0, 1]]), torch.tensor([[0.0, 1.0]]))
    reading = roll_out([first, last], queries=1)
    assert_close(reading.image, torch.tensor([0.0, 0.25]).double())
    assert_close(reading.text, torch.tensor([0.25, 0.25]).double())


@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.integers(1, 3))
def test_nothing_is_lost_or_made_up(seed: int, queries: int, words: int, tokens: int, depth: int) -> None:
    """Shares of image and text are not negative and do not pass 1; the rest stayed with the query tokens."""
    generator = torch.Generator().manual_seed(seed)

    def rows(*size: int) -> torch.Tensor:
        return torch.rand(*size, generator=generator).softmax(dim=-1)

    n = queries + words
    layers = [Attention(rows(n, n), rows(queries, tokens)) for _ in range(depth)]
    reading = roll_out(layers, queries)
    assert float(reading.image.min()) >= 0
    assert float(reading.text.min()) >= 0
    assert float(reading.image.sum() + reading.text.sum()) < 1
    blind = roll_out([Attention(layer.own, None) for layer in layers], queries)
    assert not len(blind.image)
    assert_close(blind.text.sum() - reading.text.sum() >= 0, torch.tensor(True))


def test_recording_changes_nothing_and_sees_what_composes(small: QFormerBackbone) -> None:
    shape = small.shape
    tokens = torch.randn(1, shape.image_tokens, shape.image_width, generator=torch.Generator().manual_seed(1))
    text = "make it redder"
    before = small.compose(tokens, [text], attention=True)
    implementation = small.qformer.config._attn_implementation
    reading = read_composition(small, tokens[0], text)
    assert small.qformer.config._attn_implementation == implementation
    assert not any(module._forward_hooks for module in small.qformer.modules())
    assert_close(small.compose(tokens, [text]).vector, before.vector)
    positions = int(before.text_mask.sum())
    assert len(reading.text) == positions == len(small.pieces(text))
    assert len(reading.image) == shape.image_tokens
    assert small.pieces(text)[:3] == ["", "make", "it"]
    assert "".join(piece.removeprefix("##") for piece in small.pieces(text)[3:]) == "redder"


def test_the_recorded_self_attention_is_that_of_compose(small: QFormerBackbone) -> None:
    """The last layer's row of the text position, which :meth:`compose` gives too."""
    from triptych.backbones.attention import _recording

    shape = small.shape
    tokens = torch.randn(1, shape.image_tokens, shape.image_width, generator=torch.Generator().manual_seed(2))
    composed = small.compose(tokens, ["is blue"], attention=True)
    with _recording(small.qformer) as recorded:
        small.compose(tokens, ["is blue"])
    own, image = recorded()[-1]
    assert composed.attention is not None
    assert_close(own, composed.attention[0], atol=1e-5, rtol=1e-4)
    assert image is not None
    assert_close(image.sum(dim=1), torch.ones(shape.queries))


def test_blip2_names_its_word_pieces(lite_weights: None) -> None:
    """Its Q-Former has cross-attention in every other layer only; [CLS] and [SEP] have no name."""
    from triptych.backbones.registry import create_backbone
    from triptych.search.explain import _words

    sizes = {
        "image_size": 28,
        "image_width": 24,
        "vision_layers": 3,
        "vision_heads": 4,
        "vision_intermediate": 48,
        "queries": 5,
        "hidden": 24,
        "layers": 2,
        "heads": 4,
        "intermediate": 32,
        "dim": 16,
    }
    blip2 = create_backbone({"name": "blip2", "weights": None, "sizes": sizes}, seed=1).eval()
    assert isinstance(blip2, QFormerBackbone)
    assert blip2.pieces("is bluer") == ["", "is", "blue", "##r", ""]
    tokens = torch.randn(blip2.shape.image_tokens, 24, generator=torch.Generator().manual_seed(1))
    reading = read_composition(blip2, tokens, "is bluer")
    assert len(reading.image) == blip2.shape.image_tokens
    assert float(reading.image.sum()) > 0
    words = _words(blip2.pieces("is bluer"), reading)
    assert [word for word, _ in words] == ["is", "bluer"]
    assert abs(sum(share for _, share in words) - 1) < 1e-9
