"""The composer against the original Q-Former, and what must hold whatever its weights are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from triptych.backbones.composer import QFormerBackbone

TEXTS = ["0", "1", "2", "3"]


@pytest.fixture(scope="module")
def golden(shared: Path) -> dict[str, Tensor]:
    with np.load(shared / "golden" / "blip2_parity.npz") as file:
        return {name: torch.from_numpy(file[name]) for name in file.files}


@pytest.fixture(scope="module", params=["float64", "float32"])
def blip2(request: pytest.FixtureRequest, shared: Path, golden: dict[str, Tensor]) -> Any:
    """The random weights in the real depth; a text is the number of a stored row of word ids."""
    from triptych.backbones.registry import create_backbone

    backbone = create_backbone({"name": "blip2", "weights": str(shared / "golden" / "blip2_tiny")})
    backbone = backbone.to(getattr(torch, request.param)).eval().requires_grad_(False)
    backbone.ln_vision = nn.Identity()  # the stored image tokens are behind it
    rows = [golden["input_ids"], golden["attention_mask"]]
    backbone.tokenise = lambda texts: tuple(value[[int(text) for text in texts]] for value in rows)
    return backbone


def agree(found: Tensor, expected: Tensor) -> None:
    """To 1e-10 in float64, and to 1e-4 (absolute and relative) in float32."""
    atol, rtol = (1e-10, 0) if found.dtype == torch.float64 else (1e-4, 1e-4)
    torch.testing.assert_close(found.double(), expected, rtol=rtol, atol=atol)


def as_held(backbone: QFormerBackbone, value: Tensor) -> Tensor:
    """A stored input in the backbone's precision."""
    return value.to(backbone.query_tokens.dtype)


def test_image_pass(blip2: Any, golden: dict[str, Tensor]) -> None:
    agree(blip2.image_pass(as_held(blip2, golden["image_tokens"])), golden["image_hidden"])
    agree(blip2.targets(as_held(blip2, golden["image_tokens"])), golden["target"])


def test_fusion_pass(blip2: Any, golden: dict[str, Tensor]) -> None:
    composed = blip2.compose(as_held(blip2, golden["image_tokens"]), TEXTS)
    real = torch.cat([torch.ones(4, 32), golden["attention_mask"]], dim=1).bool()
    agree(composed.hidden[real], golden["fusion_hidden"][real])
    agree(composed.vector, golden["composed"])
    agree(composed.tokens, golden["composed_tokens"])


def test_query_tokens_can_be_replaced(blip2: Any, golden: dict[str, Tensor]) -> None:
    negative = as_held(blip2, golden["negative_tokens"])
    for tokens in (negative[0], negative):
        composed = blip2.compose(as_held(blip2, golden["image_tokens"]), TEXTS, query_tokens=tokens)
        agree(composed.vector, golden["negative_composed"])
    assert (golden["negative_composed"] - golden["composed"]).abs().max() > 0.01


def test_no_image_pass(blip2: Any, golden: dict[str, Tensor]) -> None:
    fused = as_held(blip2, golden["fusion_hidden"][:, :32])
    refined = blip2.refine(fused, TEXTS)
    real = torch.cat([torch.ones(4, 32), golden["attention_mask"]], dim=1).bool()
    agree(refined.hidden[real], golden["sprc_second_hidden"][real])
    agree(refined.vector, golden["sprc_query"])
    agree(blip2.refine(as_held(blip2, golden["image_hidden"]), TEXTS).vector, golden["tme_query"])


def test_prompt_pass(blip2: Any, golden: dict[str, Tensor]) -> None:
    agree(blip2.prompt(as_held(blip2, golden["prompt_tokens"]), TEXTS), golden["prompt_query"])
    agree(blip2.prompt(as_held(blip2, golden["prompt_tokens"][0]), TEXTS), golden["prompt_query"])
    states: list[Tensor] = []
    hook = blip2.qformer.register_forward_hook(
        lambda module, given, result: states.append(result.last_hidden_state)
    )
    blip2.prompt(as_held(blip2, golden["prompt_tokens"]), TEXTS)
    hook.remove()
    mask = golden["attention_mask"]
    real = torch.cat([mask[:, :1], torch.ones(4, 32), mask[:, 1:]], dim=1).bool()
    agree(states[0][real], golden["prompt_hidden"][real])


def test_difference_pass(blip2: Any, golden: dict[str, Tensor]) -> None:
    difference = blip2.look(as_held(blip2, golden["difference_tokens"]))
    agree(difference, golden["difference_word_embeddings"])
    composed = blip2.refine(as_held(blip2, golden["image_hidden"]), difference)
    agree(composed.hidden, golden["difference_hidden"])
    agree(composed.vector, golden["difference_query"])


def test_text_pass(blip2: Any, golden: dict[str, Tensor]) -> None:
    hidden, mask = blip2.text_pass(TEXTS)
    agree(hidden[mask.bool()], golden["text_hidden"][golden["attention_mask"].bool()])
    projected = blip2.text_projection(as_held(blip2, golden["text_hidden"][:, 0]))
    agree(blip2.text(TEXTS), normalize(projected, dim=-1).double())
    together = blip2.text_and_states(TEXTS)
    assert all(map(torch.equal, together, (blip2.text(TEXTS), hidden, mask)))


TOKENS = torch.randn(4, 25, 256, generator=torch.Generator().manual_seed(0))
WORDS = ["make it red", "", "the same but with a much longer text, so that the others are padded", "blue"]


@torch.no_grad()
def test_padding_does_not_change_a_vector(lite: QFormerBackbone) -> None:
    together = lite.compose(TOKENS, WORDS)
    refined = lite.refine(lite.image_pass(TOKENS), WORDS)
    texts = lite.text(WORDS)
    for row, text in enumerate(WORDS):
        alone = lite.compose(TOKENS[row : row + 1], [text])
        torch.testing.assert_close(together.vector[row], alone.vector[0], atol=1e-5, rtol=0)
        torch.testing.assert_close(together.tokens[row], alone.tokens[0], atol=1e-5, rtol=0)
        length = alone.hidden.shape[1]
        torch.testing.assert_close(together.hidden[row, :length], alone.hidden[0], atol=1e-4, rtol=0)
        once = lite.refine(lite.image_pass(TOKENS[row : row + 1]), [text])
        torch.testing.assert_close(refined.vector[row], once.vector[0], atol=1e-5, rtol=0)
        torch.testing.assert_close(texts[row], lite.text([text])[0], atol=1e-5, rtol=0)


@torch.no_grad()
def test_order_of_the_batch_does_not_matter(lite: QFormerBackbone) -> None:
    order = [2, 0, 3, 1]
    first = lite.compose(TOKENS, WORDS).vector
    second = lite.compose(TOKENS[order], [WORDS[i] for i in order]).vector
    torch.testing.assert_close(first[order], second, atol=1e-6, rtol=0)
    torch.testing.assert_close(lite.targets(TOKENS)[order], lite.targets(TOKENS[order]), atol=1e-6, rtol=0)


@torch.no_grad()
def test_shapes_and_unit_rows(lite: QFormerBackbone) -> None:
    composed, targets, text = lite.compose(TOKENS, WORDS), lite.targets(TOKENS), lite.text(WORDS)
    longest = composed.hidden.shape[1] - 8
    assert composed.hidden.shape == (4, 8 + longest, 192)
    assert (composed.vector.shape, composed.tokens.shape) == ((4, 128), (4, 8, 128))
    assert (targets.shape, text.shape) == ((4, 8, 128), (4, 128))
    for rows in (composed.vector, composed.tokens, targets, text):
        torch.testing.assert_close(rows.norm(dim=-1), torch.ones(rows.shape[:-1]), atol=1e-5, rtol=0)


@torch.no_grad()
def test_the_query_depends_on_picture_and_text(lite: QFormerBackbone) -> None:
    """Little before training, but far more than rounding."""
    first = lite.compose(TOKENS[:1], ["make it red"]).vector
    torch.testing.assert_close(first, lite.compose(TOKENS[:1], ["make it red"]).vector, atol=1e-6, rtol=0)
    assert (first - lite.compose(TOKENS[1:2], ["make it red"]).vector).norm() > 1e-4
    assert (first - lite.compose(TOKENS[:1], ["make it blue"]).vector).norm() > 1e-4


@torch.no_grad()
def test_learned_queries_start_apart(lite: QFormerBackbone) -> None:
    """The tokens of one image must differ: 0.998 between them wastes the max of the score."""
    tokens = lite.targets(TOKENS)
    cosine = tokens @ tokens.mT
    apart = ~torch.eye(8, dtype=torch.bool)
    assert cosine[:, apart].mean() < 0.8
    start = lite.query_tokens[0] / lite.query_tokens[0].norm(dim=1, keepdim=True)
    torch.testing.assert_close(start @ start.T, torch.eye(8), atol=1e-5, rtol=0)


def test_gradients_reach_every_trained_weight(small: QFormerBackbone) -> None:
    tokens = torch.randn(2, 1, 16)
    composed = small.compose(tokens, ["red", "blue"])
    loss = composed.hidden.sum() + composed.vector.sum() + small.targets(tokens).square()[..., 0].sum()
    loss.backward()
    without = [name for name, value in small.named_parameters() if value.requires_grad and value.grad is None]
    small.zero_grad()
    assert without == []


@torch.no_grad()
def test_attention_rows_are_shares_of_the_real_positions(lite: QFormerBackbone) -> None:
    composed = lite.compose(TOKENS, WORDS, attention=True)
    assert composed.attention is not None
    queries = lite.shape.queries
    for row, weights in enumerate(composed.attention):
        real = queries + int(composed.text_mask[row].sum())
        torch.testing.assert_close(weights[:real].sum(dim=1), torch.ones(real))
        assert weights[:, real:].abs().max() == 0 if real < weights.shape[1] else True
    hidden, attention = lite.look_attentively(lite.vision(TOKENS))
    torch.testing.assert_close(hidden, lite.image_pass(TOKENS))
    torch.testing.assert_close(lite.as_targets(hidden), lite.targets(TOKENS))
    torch.testing.assert_close(attention.sum(dim=2), torch.ones(len(TOKENS), queries))


@torch.no_grad()
def test_attention_is_what_the_layer_computes(
    blip2: Any, golden: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        blip2.qformer.config, "_attn_implementation", "eager"
    )  # the slow way gives its weights
    layer = blip2.qformer.encoder.layer[-1].attention.attention
    computed: list[Tensor] = []
    hook = layer.register_forward_hook(lambda module, given, result: computed.append(result[1]))
    composed = blip2.compose(as_held(blip2, golden["image_tokens"]), TEXTS, attention=True)
    hook.remove()
    assert composed.attention is not None
    assert len(computed) == 1
    order = golden["attention_mask"].sum(dim=1).argsort(stable=True)  # on a CPU texts are run by length
    expected = computed[0].mean(dim=1)
    longest = expected.shape[1]
    found = composed.attention[order][:, :longest, :longest]
    torch.testing.assert_close(found.double(), expected.double(), atol=1e-6, rtol=0)
