"""Published checkpoints: the numbers survive, what has no place is listed, what is no checkpoint is refused."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from triptych.backbones.registry import create_backbone
from triptych.errors import DataError, UsageError
from triptych.training.convert import convert
from triptych.training.model import load_model

QUERIES, WIDTH, VISION = 32, 48, 24
HEADS = {"heads": 4, "vision_heads": 4}


def released_names(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename transformers' tensors as LAVIS stores them: the table of `spec/checkpoints.md`, read backwards."""
    renamed: dict[str, Tensor] = {}
    for name, value in state.items():
        if name.endswith("self_attn.qkv.bias"):
            block = name.split(".")[3]
            query, _, own = value.chunk(3)
            renamed[f"visual_encoder.blocks.{block}.attn.q_bias"] = query
            renamed[f"visual_encoder.blocks.{block}.attn.v_bias"] = own
            continue
        for new, old in (
            ("vision_model.embeddings.class_embedding", "visual_encoder.cls_token"),
            ("vision_model.embeddings.position_embedding", "visual_encoder.pos_embed"),
            ("vision_model.embeddings.patch_embedding", "visual_encoder.patch_embed.proj"),
            ("vision_model.encoder.layers", "visual_encoder.blocks"),
            (".layer_norm", ".norm"),
            (".self_attn.projection", ".attn.proj"),
            (".self_attn.", ".attn."),
            ("vision_model.post_layernorm", "ln_vision"),
            ("qformer.layernorm", "Qformer.bert.embeddings.LayerNorm"),
            ("qformer.encoder", "Qformer.bert.encoder"),
            (".attention.attention.", ".attention.self."),
            (".crossattention.attention.", ".crossattention.self."),
            ("vision_projection", "vision_proj"),
            ("text_projection", "text_proj"),
        ):
            name = name.replace(new, old)
        renamed[f"Qformer.bert.{name}" if name.startswith("embeddings.") else name] = value
    extras = {"Qformer.cls.predictions.bias": torch.zeros(3), "temp": torch.tensor(0.05)}
    return renamed | extras | {"Qformer.bert.embeddings.position_ids": torch.arange(9)[None]}


@pytest.fixture(scope="module")
def folder(shared: Path) -> Path:
    return shared / "golden" / "blip2_tiny"


@pytest.fixture(scope="module")
def released(folder: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return released_names(load_file(folder / "model.safetensors"))


@pytest.fixture(scope="module")
def golden(shared: Path) -> dict[str, Tensor]:
    with np.load(shared / "golden" / "blip2_parity.npz") as file:
        return {name: torch.from_numpy(file[name]) for name in file.files}


def saved(path: Path, value: Any) -> Path:
    torch.save(value, path)
    return path


def with_ids(backbone: Any, golden: dict[str, Tensor]) -> list[str]:
    rows = [golden["input_ids"], golden["attention_mask"]]
    backbone.tokenise = lambda texts: tuple(value[[int(text) for text in texts]] for value in rows)
    backbone.ln_vision = nn.Identity()  # the stored tokens are behind it
    return ["0", "1", "2", "3"]


@torch.no_grad()
def test_a_first_stage(
    tmp_path: Path, folder: Path, released: dict[str, Tensor], golden: dict[str, Tensor]
) -> None:
    made = convert(saved(tmp_path / "blip2.pth", {"model": released}), tmp_path / "model", **HEADS)  # type: ignore[arg-type]
    assert made.method is None
    assert made.left_out == ("temp",)
    assert set(made.dropped) >= {"Qformer.cls.predictions.bias", "Qformer.bert.embeddings.position_ids"}
    assert not made.tokenizer  # 120 word embeddings are not BERT's
    model = load_model(tmp_path / "model")
    original = create_backbone({"name": "blip2", "weights": str(folder)}).eval()
    pixels = torch.rand(2, 3, 28, 28)
    # the original's key bias, which LAVIS has not, moves no attention: only rounding differs
    assert_close(model.backbone.encode_images(pixels), original.encode_images(pixels), atol=1e-4, rtol=1e-4)
    tokens = model.backbone.encode_images(pixels)
    assert_close(
        model.backbone.vision(tokens), original.vision(tokens), atol=1e-4, rtol=1e-4
    )  # eps 1e-5, not 1e-6
    backbone: Any = model.backbone.double()
    texts = with_ids(backbone, golden)
    assert_close(
        backbone.compose(golden["image_tokens"], texts).vector, golden["composed"], atol=1e-10, rtol=0
    )
    again = create_backbone({"name": "blip2", "weights": str(tmp_path / "model"), "trained_blocks": 1})
    assert len(again.blocks) == 1
    assert "DataError" not in (tmp_path / "model" / "README.md").read_text()


@torch.no_grad()
def test_sprc_keeps_its_prompt_and_temperature(
    tmp_path: Path, released: dict[str, Tensor], golden: dict[str, Tensor]
) -> None:
    state = released | {"prompt_tokens": golden["prompt_tokens"].float()}
    file = saved(tmp_path / "sprc.pt", {"epoch": 3, "Blip2QformerCirAlignPrompt": state})
    made = convert(file, tmp_path / "model", **HEADS)  # type: ignore[arg-type]
    assert (made.method, made.left_out, made.started) == ("sprc", (), ())
    model: Any = load_model(tmp_path / "model")
    model.backbone.double()
    texts = with_ids(model.backbone, golden)
    found = model.method.query(golden["image_tokens"], texts, model.backbone)
    assert_close(found, golden["sprc_query"], atol=1e-10, rtol=0)
    prompted = model.backbone.prompt(model.method.prompt.double(), texts)
    assert_close(prompted, golden["prompt_query"], atol=1e-6, rtol=0)
    assert float(model.method.temperature()) == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("extra", "method", "said", "left_out"),
    [
        (
            {"d2t_proj.weight": (VISION, VISION), "d2t_proj.bias": (VISION,), "prompt_tokens": (1, 32, 48)},
            "tme",
            None,
            (),
        ),
        (
            {"text_proj_cau.weight": (32, 48), "text_proj_cau.bias": (32,), "loss_T": (1,)},
            "intent",
            None,
            ("temp",),
        ),
        ({"negative_tokens": (1, 32, 48)}, "conesep", None, ("temp",)),
        ({"prompt_tokens": (1, 32, 48)}, "habit", "habit", ("prompt_tokens", "temp")),
    ],
)
@torch.no_grad()
def test_what_a_release_learned_beside_blip2(
    tmp_path: Path,
    released: dict[str, Tensor],
    extra: dict[str, tuple[int, ...]],
    method: str,
    said: str | None,
    left_out: tuple[str, ...],
) -> None:
    values = {name: torch.randn(shape) for name, shape in extra.items()}
    file = saved(tmp_path / "release.pt", {f"module.{name}": v for name, v in (released | values).items()})
    made = convert(file, tmp_path / "model", method=said, **HEADS)  # type: ignore[arg-type]
    assert (made.method, made.left_out) == (method, left_out)
    model = load_model(tmp_path / "model")
    assert model.method is not None
    state = model.method.state_dict()
    for theirs, ours in made.parts.items():
        expected = (released | values)[theirs]
        assert_close(state[ours].flatten(), expected.flatten(), atol=0, rtol=0)
    assert set(made.parts) == set(values | released) - set(released) - set(left_out) | (
        {"temp"} if method == "tme" else set()
    )


def test_an_ambiguous_release_has_to_be_named(tmp_path: Path, released: dict[str, Tensor]) -> None:
    file = saved(tmp_path / "x.pt", released | {"prompt_tokens": torch.zeros(1, 32, 48)})
    with pytest.raises(UsageError, match="--method sprc or --method habit"):
        convert(file, tmp_path / "model", **HEADS)  # type: ignore[arg-type]


class Whole(nn.Module):
    """What the releases of INTENT, HABIT and ConeSep save."""


def test_a_pickled_module_is_refused_with_the_lines_that_export_it(tmp_path: Path) -> None:
    file = saved(tmp_path / "best_model.pt", Whole())
    with pytest.raises(
        DataError, match=r"(?s)whole pickled.*Whole.*torch\.load.*state_dict\(\), \"best_model"
    ):
        convert(file, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_what_is_missing_or_misshaped_is_listed_and_nothing_is_written(
    tmp_path: Path, released: dict[str, Tensor]
) -> None:
    state = dict(released)
    del state["Qformer.bert.encoder.layer.3.output.dense.weight"]
    state["text_proj.weight"] = torch.zeros(32, 47)
    file = saved(tmp_path / "x.pt", state)
    with pytest.raises(DataError) as caught:
        convert(file, tmp_path / "model", **HEADS)  # type: ignore[arg-type]
    assert "1 missing: qformer.encoder.layer.3.output.dense.weight" in str(caught.value)
    assert "1 of another shape: text_projection.weight is [32, 47], not [32, 48]" in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["x.pt"]


def test_nan_truncation_and_other_files(tmp_path: Path, released: dict[str, Tensor]) -> None:
    broken = {name: value.clone() for name, value in released.items()}
    broken["vision_proj.weight"].flatten()[5] = torch.nan
    with pytest.raises(
        DataError, match=r'"vision_projection.weight" hold 1 of 1536 values that are not finite'
    ):
        convert(saved(tmp_path / "nan.pt", broken), tmp_path / "model", **HEADS)  # type: ignore[arg-type]
    whole = saved(tmp_path / "whole.pt", released).read_bytes()
    (tmp_path / "cut.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="may be cut off"):
        convert(tmp_path / "cut.pt", tmp_path / "model")
    with pytest.raises(DataError, match="query_tokens"):
        convert(saved(tmp_path / "lavis.pt", {"a": torch.zeros(1)}), tmp_path / "model")
    (tmp_path / "evil.pt").write_bytes(pickle.dumps({"a": json.JSONDecoder}))
    with pytest.raises(DataError, match=r"pickled|cannot be read"):
        convert(tmp_path / "evil.pt", tmp_path / "model")
    with pytest.raises(DataError, match="no such file"):
        convert(tmp_path / "absent.pt", tmp_path / "model")
    assert not (tmp_path / "model").exists()
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "x").touch()
    with pytest.raises(UsageError, match="not empty"):
        convert(tmp_path / "whole.pt", tmp_path / "used")


def test_a_release_without_its_tower_says_where_it_is(
    tmp_path: Path, folder: Path, released: dict[str, Tensor]
) -> None:
    state = {name: value for name, value in released.items() if not name.startswith("visual_encoder")}
    file = saved(tmp_path / "tme.pt", state)
    with pytest.raises(DataError, match="--tower"):
        convert(file, tmp_path / "model")
    made = convert(file, tmp_path / "model", tower=str(folder))
    assert not (tmp_path / "model" / "tower.safetensors").exists()
    assert made.tensors == len(load_model(tmp_path / "model").backbone.trained_state())
