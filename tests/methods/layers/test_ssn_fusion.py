"""SSN's fusion: what must always hold, and the extremes."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from triptych.methods.layers.ssn_fusion import SsnFusion

RAW, WIDTH = 6, 16


def module(**options: object) -> SsnFusion:
    generator = torch.Generator().manual_seed(0)
    return SsnFusion(RAW, WIDTH, generator=generator, feedforward=32, **options).double().eval()


def parts(batch: int = 3, words: int = 4) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int) -> Tensor:
        return torch.randn(batch, *shape, generator=generator, dtype=torch.float64)

    return {
        "image": draw(5, RAW),
        "image_embedding": draw(WIDTH),
        "text_embedding": draw(WIDTH),
        "text": draw(words, WIDTH),
        "text_mask": (torch.arange(words) < words - 1).expand(batch, -1),
    }


def test_all_three_are_unit_rows_and_query_alone_is_the_same() -> None:
    fusion, inputs = module(), parts()
    query, anti_query = fusion(**inputs)
    target = fusion.target(inputs["image"], inputs["image_embedding"])
    for rows in (query, anti_query, target):
        assert rows.shape == (3, WIDTH)
        assert_close(rows.norm(dim=1), torch.ones(3, dtype=torch.float64))
    assert_close(fusion.query(**inputs), query)
    assert not torch.allclose(query, anti_query)


def test_a_shut_gate_leaves_nothing_of_the_text() -> None:
    """Text gate at 0 and image gate at 1: the query sees zeros for words, the anti-query zeros for patches."""
    fusion, inputs = module(), parts()
    for gate, bias in ((fusion.text_gate, -1e3), (fusion.image_gate, 1e3)):
        torch.nn.init.zeros_(gate.weight)
        torch.nn.init.constant_(gate.bias, bias)
    query, anti_query = fusion(**inputs)
    other = parts() | {"text": 3 * inputs["text"].flip(1)}
    assert_close(fusion(**other)[0], query)
    assert not torch.allclose(fusion(**other)[1], anti_query)
    unlike = parts() | {"image": 3 * inputs["image"].flip(1)}
    assert_close(fusion(**unlike)[1], anti_query)
    assert not torch.allclose(fusion(**unlike)[0], query)


def test_with_nothing_fused_the_query_mixes_the_two_embeddings() -> None:
    fusion, inputs = module(), parts()
    for layer in (fusion.output, fusion.share[2]):  # no residual, and a share of one half
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    expected = functional.normalize(inputs["text_embedding"] + inputs["image_embedding"], dim=1)
    for rows in fusion(**inputs):
        assert_close(rows, expected)


def test_order_of_the_batch_does_not_matter() -> None:
    fusion, inputs = module(), parts()
    query, anti_query = fusion(**inputs)
    flipped = fusion(**{name: value.flip(0) for name, value in inputs.items()})
    assert_close(flipped, (query.flip(0), anti_query.flip(0)))


def test_padding_counts_in_the_attention_unless_it_is_masked() -> None:
    inputs = parts()
    trimmed = inputs | {name: inputs[name][:, :3] for name in ("text", "text_mask")}
    assert not torch.allclose(module().query(**inputs), module().query(**trimmed))
    masked = module(mask_padding=True)
    assert_close(masked.query(**inputs), masked.query(**trimmed))
    assert_close(masked(**inputs), masked(**trimmed))
    with torch.no_grad():
        assert_close(masked.query(**inputs), masked.query(**trimmed))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("scale", [0.0, 1.0])
@pytest.mark.parametrize("mask_padding", [True, False])
def test_finite_at_the_extremes(mask_padding: bool, scale: float, batch: int, dtype: torch.dtype) -> None:
    fusion = module(mask_padding=mask_padding).float()
    inputs = {name: (scale * value).to(dtype).requires_grad_() for name, value in parts(batch).items()}
    inputs["text_mask"] = torch.zeros(batch, 4)  # an empty text
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        outputs = (*fusion(**inputs), fusion.target(inputs["image"], inputs["image_embedding"]))
    for output in outputs:
        assert output.dtype == torch.float32
        assert output.isfinite().all()
    for gradient in torch.autograd.grad(sum(outputs).sum(), [inputs["image"], inputs["text_embedding"]]):
        assert gradient.isfinite().all()
