"""Convert: a published checkpoint to a model folder that training, evaluation and search can load."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from triptych.backbones.blip2 import (
    Blip2Backbone,
    Blip2Config,
    Blip2VitLBackbone,
    Blip2VitLConfig,
    stored_name,
)
from triptych.backbones.blip2_sizes import Blip2Sizes
from triptych.backbones.official import DROPPED, has_tower, read_sizes, to_transformers
from triptych.backbones.registry import create_backbone, settled
from triptych.backbones.stored_weights import TOWER, differences, refuse_not_finite
from triptych.backbones.torch_files import load_tensors
from triptych.backbones.word_pieces import BERT_PIECES, WordPieces, bert_with_dec, find_word_pieces
from triptych.errors import DataError, UsageError
from triptych.files import explain_full_disk, write_json
from triptych.methods import registry as methods
from triptych.methods.base import Method
from triptych.training.model import CARD, CONFIG, FORMAT, WEIGHTS

Stages = Callable[[str, int, int], None]
_SHOWN = 20
PARTS: Mapping[str, Mapping[str, str]] = {
    "sprc": {"prompt_tokens": "prompt", "temp": "temperature.learned"},
    "tme": {
        "prompt_tokens": "prompt",
        "temp": "temperature.learned",
        "d2t_proj.weight": "difference.weight",
        "d2t_proj.bias": "difference.bias",
    },
    "habit": {},
    "intent": {
        "text_proj_cau.weight": "causal.weight",
        "text_proj_cau.bias": "causal.bias",
        "loss_T": "scale",
    },
    "conesep": {"negative_tokens": "negative_tokens"},
}
"""What a release keeps beside BLIP-2, and the name that it has in our method."""


@dataclass(frozen=True)
class Conversion:
    """What came of a checkpoint.

    Attributes:
        folder: the model folder.
        sizes: of the backbone.
        method: whose release it is; None for a first stage of BLIP-2.
        tensors: how many went into the backbone.
        parts: those that went into the method: their name there by their name in the file.
        started: parameters of the method that the file does not hold, so that they have their start.
        left_out: names in the file that have no place.
        dropped: names left out on purpose, as heads that retrieval does not read.
        tokenizer: whether the folder has one.
    """

    folder: Path
    sizes: Blip2Sizes
    method: str | None
    tensors: int
    parts: Mapping[str, str] = field(default_factory=dict)
    started: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    tokenizer: bool = True


def convert(
    checkpoint: str | Path,
    folder: str | Path,
    *,
    method: str | None = None,
    tower: str | None = None,
    tokenizer: str | Path | None = None,
    heads: int | None = None,
    vision_heads: int | None = None,
    stages: Stages | None = None,
) -> Conversion:
    """Turn a checkpoint of BLIP-2, stage 1, or of SPRC, TME, HABIT, INTENT or ConeSep into a model folder.

    Args:
        checkpoint: a file of torch that holds tensors only, or safetensors; names of LAVIS or of transformers.
        folder: the model folder; must be new or empty.
        method: whose release it is; found by its parameters where they tell. ``none`` = a first stage.
        tower: weights that the frozen tower is taken from, for a file without one; they stay where they are.
        tokenizer: a folder with the tokenizer; by default BERT's with [DEC].
        heads: attention heads of the Q-Former; by default a head is 64 wide.
        vision_heads: of the vision tower; by default a head is 88 wide in EVA and 64 in CLIP.
        stages: called with (what is being done, done, total).

    Raises:
        UsageError: the folder is in use, or the method or the heads have to be said.
        DataError: the file cannot be read or runs code, tensors are missing, misshaped or not finite.
    """
    checkpoint, folder = Path(checkpoint), Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already and not empty: choose another folder with -o")
    report = stages or (lambda what, done, total: None)
    report("reading", 0, 1)
    raw, keys = load_tensors(checkpoint)
    state = to_transformers(raw)
    report("reading", 1, 1)
    name = _method_of(state, keys, method)
    backbone_settings, backbone = _backbone(state, checkpoint, tower, heads, vision_heads, report)
    expected = {stored_name(key, len(backbone.tower.layers)): key for key in backbone.state_dict()}
    if tower is not None:
        expected = {theirs: ours for theirs, ours in expected.items() if not ours.startswith("tower.")}
    needed = {theirs: tuple(backbone.state_dict()[ours].shape) for theirs, ours in expected.items()}
    problems = differences(
        needed, {key: tuple(v.shape) for key, v in state.items() if key in needed}, shown=_SHOWN
    )
    if problems:
        raise DataError(
            "this checkpoint does not make a whole BLIP-2; nothing was written:\n  " + "\n  ".join(problems),
            file=checkpoint,
            mend="Take the whole file; for one without a vision tower, say where that is with --tower WEIGHTS.",
        )
    rest = {key: tensor for key, tensor in state.items() if key not in expected}
    made = None if name is None else methods.create(name, {}, backbone.shape)
    parts, method_state = _method_parts(made, rest, checkpoint)
    pieces = _pieces(tokenizer, backbone.sizes.vocabulary)
    result = Conversion(
        folder=folder,
        sizes=backbone.sizes,
        method=name,
        tensors=len(expected),
        parts=parts,
        started=tuple(sorted(set(method_state) - set(parts.values()))),
        left_out=tuple(sorted(set(rest) - set(parts))),
        dropped=tuple(sorted(key for key in raw if key.startswith(DROPPED) or key.endswith("position_ids"))),
        tokenizer=pieces is not None,
    )
    settings = {
        "backbone": backbone_settings,
        "method": None if made is None else {"name": name, **made.config.model_dump(mode="json")},
    }
    tensors = {ours: state[theirs] for theirs, ours in expected.items()}
    for count, (key, tensor) in enumerate(tensors.items()):
        refuse_not_finite(key, tensor, checkpoint)
        report("checking", count + 1, len(tensors))
    _write(folder, settings, tensors, method_state, pieces, result, checkpoint.name, report)
    return result


def _method_of(state: Mapping[str, Tensor], keys: tuple[str, ...], said: str | None) -> str | None:
    if said is not None:
        if said != "none" and said not in PARTS:
            raise UsageError(f'unknown release "{said}"; there are: {", ".join(PARTS)}, and none')
        return None if said == "none" else said
    if "d2t_proj.weight" in state:
        return "tme"
    if "negative_tokens" in state:
        return "conesep"
    if "text_proj_cau.weight" in state or "loss_T" in state:
        return "intent"
    if "prompt_tokens" not in state:
        return None
    if any("prompt" in key.lower() for key in keys):  # SPRC names its dictionary by its class
        return "sprc"
    raise UsageError(
        "prompt_tokens is what the releases of SPRC and HABIT both hold: say which it is, "
        "--method sprc or --method habit"
    )


def _backbone(
    state: Mapping[str, Tensor],
    file: Path,
    tower: str | None,
    heads: int | None,
    vision_heads: int | None,
    report: Stages,
) -> tuple[dict[str, Any], Blip2Backbone]:
    """Return the settings of the model folder's backbone, and the backbone without its weights."""
    if tower is not None:
        settings = settled({"name": "blip2", "weights": tower})
        backbone = create_backbone(settings, progress=lambda done, total: report("tower, MB", done, total))
        assert isinstance(backbone, Blip2Backbone)
        return settings, backbone
    if not has_tower(state) and "query_tokens" in state:
        raise DataError(
            "this checkpoint has no vision tower (its release stores the tower's tokens)",
            file=file,
            mend="Say where the tower is: --tower Salesforce/blip2-itm-vit-g, or a folder.",
        )
    sizes = read_sizes(state, file, heads=heads, vision_heads=vision_heads)
    with torch.device("meta"):
        if sizes.tower == "clip":
            return {"name": "blip2-vitl", "weights": "."}, Blip2VitLBackbone(
                Blip2VitLConfig(weights=None, sizes=sizes)
            )
        return {"name": "blip2", "weights": "."}, Blip2Backbone(Blip2Config(weights=None, sizes=sizes))


def _method_parts(
    method: Method | None, rest: Mapping[str, Tensor], file: Path
) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Put what a release holds beside BLIP-2 into our method's state; name what went where."""
    if method is None:
        return {}, {}
    state = {key: value.detach() for key, value in method.state_dict().items()}
    places = {theirs: ours for theirs, ours in PARTS[method.name].items() if theirs in rest}
    for theirs, ours in places.items():
        value = rest[theirs]
        if value.numel() != state[ours].numel() or value.squeeze().shape != state[ours].squeeze().shape:
            raise DataError(
                f'"{theirs}" is {list(value.shape)}, and method {method.name} has {list(state[ours].shape)} '
                f'for it ("{ours}")',
                file=file,
            )
        refuse_not_finite(theirs, value, file)
        state[ours] = value.reshape(state[ours].shape).to(state[ours].dtype)
    return places, state


def _pieces(folder: str | Path | None, rows: int) -> WordPieces | None:
    if folder is None:
        return bert_with_dec() if rows == BERT_PIECES + 1 else None
    if not Path(folder).is_dir():
        raise UsageError(f"tokenizer {folder}: there is no such folder")
    return find_word_pieces(Path(folder), rows, 32)


def _write(
    folder: Path,
    settings: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    method_state: Mapping[str, Tensor],
    pieces: WordPieces | None,
    result: Conversion,
    source: str,
    report: Stages,
) -> None:
    """Write everything to a folder beside, and rename it: the model folder is whole or not there."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    frozen = {stored_name(key, 0): value for key, value in tensors.items() if key.startswith("tower.")}
    trained = {f"backbone.{key}": value for key, value in tensors.items() if not key.startswith("tower.")}
    trained |= {f"method.{key}": value for key, value in method_state.items()}
    files = {WEIGHTS: trained, **({TOWER: frozen} if frozen else {})}
    with explain_full_disk(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".tmp"))
        try:
            temporary.chmod(0o755)
            for count, (name, group) in enumerate(files.items()):
                report("writing", count, len(files))
                own = {key: value.contiguous().clone() for key, value in group.items()}
                try:
                    save_file(own, temporary / name, metadata={"info": "{}"})
                except SafetensorError as error:  # it wraps what the system says, as of a full disk
                    raise DataError(f"the weights cannot be written ({error})", file=folder) from error
            if pieces is not None:
                pieces.save(temporary)
            config = {"format": FORMAT, **settings, **result.sizes.transformers_config()}
            write_json(temporary / CONFIG, config)
            (temporary / CARD).write_text(_card(result, settings, source), encoding="utf-8")
            os.replace(temporary, folder)
            report("writing", len(files), len(files))
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _card(result: Conversion, settings: Mapping[str, Any], source: str) -> str:
    def names(values: Any) -> str:
        return ", ".join(f"`{value}`" for value in values) or "nothing"

    sizes = result.sizes
    return "\n".join(
        [
            "# A Triptych model for composed image retrieval",
            "",
            f"Converted from `{source}` by `triptych convert`. The licence is that of the checkpoint.",
            "",
            f"- backbone: {settings['backbone']['name']}, {sizes.vision_layers} blocks of {sizes.image_width} at "
            f"{sizes.image_size} px; Q-Former of {sizes.layers} layers, {sizes.queries} queries, {sizes.dim} wide",
            f"- method: {result.method or 'none, a first stage'}",
            f"- into the method: {names(result.parts)}; at their start: {names(result.started)}",
            f"- had no place: {names(result.left_out)}",
            f"- left out on purpose: {len(result.dropped)} tensors (matching and captioning heads, buffers)",
            "",
            "`triptych train --init FOLDER`, `triptych evaluate FOLDER` and `triptych search FOLDER` read it;",
            "`--set backbone.weights=FOLDER` takes its tower and Q-Former as they are.",
            "",
        ]
    )
