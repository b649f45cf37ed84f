"""Published checkpoints of BLIP-2, and of methods built on it: LAVIS' names to transformers', and their sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isqrt
from pathlib import Path

import torch
from torch import Tensor

from triptych.backbones.blip2_sizes import Blip2Sizes
from triptych.errors import DataError, UsageError

DROPPED = ("itm_head.", "Qformer.cls.")
"""What no retrieval pass reads: the matching head and the captioning head."""
_EVA_HEAD, _HEAD = 88, 64
_RENAMED = (
    (r"^visual_encoder\.cls_token$", "vision_model.embeddings.class_embedding"),
    (r"^visual_encoder\.pos_embed$", "vision_model.embeddings.position_embedding"),
    (r"^visual_encoder\.patch_embed\.proj\.", "vision_model.embeddings.patch_embedding."),
    (r"^visual_encoder\.blocks\.(\d+)\.norm([12])\.", r"vision_model.encoder.layers.\1.layer_norm\2."),
    (
        r"^visual_encoder\.blocks\.(\d+)\.attn\.proj\.",
        r"vision_model.encoder.layers.\1.self_attn.projection.",
    ),
    (r"^visual_encoder\.blocks\.(\d+)\.attn\.", r"vision_model.encoder.layers.\1.self_attn."),
    (r"^visual_encoder\.blocks\.(\d+)\.mlp\.", r"vision_model.encoder.layers.\1.mlp."),
    (r"^visual_encoder\.class_embedding$", "vision_model.embeddings.class_embedding"),
    (r"^visual_encoder\.positional_embedding$", "vision_model.embeddings.position_embedding.weight"),
    (r"^visual_encoder\.conv1\.", "vision_model.embeddings.patch_embedding."),
    (r"^visual_encoder\.ln_pre\.", "vision_model.pre_layrnorm."),
    (
        r"^visual_encoder\.transformer\.resblocks\.(\d+)\.ln_([12])\.",
        r"vision_model.encoder.layers.\1.layer_norm\2.",
    ),
    (
        r"^visual_encoder\.transformer\.resblocks\.(\d+)\.mlp\.c_fc\.",
        r"vision_model.encoder.layers.\1.mlp.fc1.",
    ),
    (
        r"^visual_encoder\.transformer\.resblocks\.(\d+)\.mlp\.c_proj\.",
        r"vision_model.encoder.layers.\1.mlp.fc2.",
    ),
    (r"^visual_encoder\.transformer\.resblocks\.(\d+)\.attn\.", r"vision_model.encoder.layers.\1.self_attn."),
    (r"^ln_vision\.", "vision_model.post_layernorm."),
    (r"^Qformer\.bert\.embeddings\.LayerNorm\.", "qformer.layernorm."),
    (r"^Qformer\.bert\.embeddings\.(word|position)_embeddings\.", r"embeddings.\1_embeddings."),
    (r"^Qformer\.bert\.encoder\.(.*attention)\.self\.", r"qformer.encoder.\1.attention."),
    (r"^Qformer\.bert\.encoder\.", "qformer.encoder."),
    (r"^vision_proj\.", "vision_projection."),
    (r"^text_proj\.", "text_projection."),
)


def to_transformers(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the tensors of a LAVIS checkpoint as transformers names them; other names stay as they are.

    The query and value biases of EVA's attention become one with zeros between them, and CLIP's joint projection is
    cut in three. Heads that retrieval does not read and the buffer ``position_ids`` are left out.
    """
    renamed: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if name.startswith(DROPPED) or name.endswith("position_ids"):
            continue
        for pattern, replacement in _RENAMED:
            new, count = re.subn(pattern, replacement, name)
            if count:
                name = new
                break
        renamed[name] = tensor
    for name in [name for name in renamed if name.endswith(".self_attn.q_bias")]:
        block = name.removesuffix("q_bias")
        if f"{block}v_bias" in renamed:
            query, value = renamed.pop(name), renamed.pop(f"{block}v_bias")
            renamed[f"{block}qkv.bias"] = torch.cat([query, torch.zeros_like(query), value])
    for name in [name for name in renamed if re.search(r"\.self_attn\.in_proj_(weight|bias)$", name)]:
        block, kind = name.rsplit("in_proj_", 1)
        for letter, part in zip("qkv", renamed.pop(name).chunk(3), strict=True):
            renamed[f"{block}{letter}_proj.{kind}"] = part
    return renamed


def has_tower(state: Mapping[str, Tensor]) -> bool:
    """Say whether tensors, renamed, include a vision tower: releases that store its tokens leave it out."""
    return "vision_model.embeddings.patch_embedding.weight" in state


def read_sizes(
    state: Mapping[str, Tensor], file: Path, *, heads: int | None = None, vision_heads: int | None = None
) -> Blip2Sizes:
    """Read the sizes of a model off its tensors, renamed.

    Args:
        state: what :func:`to_transformers` gives, with a vision tower.
        file: named in errors.
        heads: attention heads of the Q-Former, which no tensor shows; by default a head is 64 wide.
        vision_heads: of the tower; by default a head is 88 wide in EVA and 64 in CLIP.

    Raises:
        DataError: a tensor that shows a size is missing.
        UsageError: the heads have to be said.
    """

    def shape(name: str) -> tuple[int, ...]:
        if name not in state:
            raise DataError(
                f'this is no checkpoint of BLIP-2, stage 1: "{name}" is missing',
                file=file,
                mend="Such a file holds visual_encoder, ln_vision, Qformer, query_tokens, vision_proj and text_proj.",
            )
        return tuple(state[name].shape)

    clip = "vision_model.pre_layrnorm.weight" in state
    width, _, patch, _ = shape("vision_model.embeddings.patch_embedding.weight")
    places = "vision_model.embeddings.position_embedding"
    side = isqrt((shape(f"{places}.weight")[0] if clip else shape(places)[1]) - 1)
    queries, hidden = shape("query_tokens")[-2:]
    layers = _count(state, "qformer.encoder.layer")
    crossed = [
        layer
        for layer in range(layers)
        if f"qformer.encoder.layer.{layer}.crossattention.attention.query.weight" in state
    ]
    base = Blip2Sizes.vit_l() if clip else Blip2Sizes()
    update = {
        "image_size": side * patch,
        "patch_size": patch,
        "image_width": width,
        "vision_layers": _count(state, "vision_model.encoder.layers"),
        "vision_heads": vision_heads or _heads(width, _HEAD if clip else _EVA_HEAD, "vision-heads"),
        "vision_intermediate": shape("vision_model.encoder.layers.0.mlp.fc1.weight")[0],
        "queries": queries,
        "hidden": hidden,
        "layers": layers,
        "heads": heads or _heads(hidden, _HEAD, "heads"),
        "intermediate": shape("qformer.encoder.layer.0.intermediate.dense.weight")[0],
        "cross_attention_every": crossed[1] - crossed[0] if len(crossed) > 1 else max(layers, 1),
        "vocabulary": shape("embeddings.word_embeddings.weight")[0],
        "positions": shape("embeddings.position_embeddings.weight")[0],
        "dim": shape("vision_projection.weight")[0],
    }
    return base.model_copy(update=update)


def _count(state: Mapping[str, Tensor], prefix: str) -> int:
    numbers = [int(found[1]) for name in state if (found := re.match(rf"{re.escape(prefix)}\.(\d+)\.", name))]
    return max(numbers, default=-1) + 1


def _heads(width: int, head: int, option: str) -> int:
    if width % head:
        raise UsageError(
            f"no tensor shows how many attention heads a width of {width} has (usual is {head} values a head): "
            f"say --{option} N"
        )
    return width // head
