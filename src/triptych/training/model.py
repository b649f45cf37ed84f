"""Model: a backbone with a method, and the folder that holds them (config.json, model.safetensors, a card)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from triptych.backbones.base import Backbone
from triptych.backbones.registry import create_backbone
from triptych.errors import DataError
from triptych.files import atomic_path, atomic_write, write_json
from triptych.methods.base import Method
from triptych.methods.registry import create as create_method

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
FORMAT = "triptych-model-1"


@dataclass(frozen=True)
class Model:
    """What retrieves: a backbone, the method that it was trained by, and where it came from.

    Attributes:
        backbone: in eval mode when loaded.
        method: None for a model that was only aligned.
        settings: the ``backbone`` and ``method`` settings it was built from.
        info: what its folder says of its training: epoch, step, scores.
    """

    backbone: Backbone
    method: Method | None
    settings: Mapping[str, Any]
    info: Mapping[str, Any]

    @torch.inference_mode()
    def embed_queries(self, tokens: Tensor, texts: list[str]) -> Tensor:
        """Embed queries: reference tokens ``[B, P, V]`` and B texts to ``[B, D]``."""
        if self.method is None:
            return self.backbone.compose(tokens, texts).vector
        return self.method.query(tokens, texts, self.backbone)

    @torch.inference_mode()
    def embed_texts(self, texts: list[str]) -> Tensor:
        """Embed texts without a reference: ``[B, D]``."""
        if self.method is None:
            return self.backbone.text(texts)
        return self.method.text_query(texts, self.backbone)

    @torch.inference_mode()
    def embed_targets(self, tokens: Tensor) -> Tensor:
        """Embed images as targets: ``[B, P, V]`` to ``[B, Q, D]``."""
        if self.method is None:
            return self.backbone.targets(tokens)
        return self.method.targets(tokens, self.backbone)


def build_method(settings: Mapping[str, Any], backbone: Backbone, *, seed: int = 0) -> Method:
    """Build the method of ``{"name": ..., switches}`` for a backbone."""
    switches = {key: value for key, value in settings.items() if key != "name"}
    return create_method(str(settings["name"]), switches, backbone.shape, seed=seed)


def trained_tensors(backbone: Backbone, method: Method | None) -> dict[str, Tensor]:
    """Return every tensor that training can change, by name, detached."""
    state = {f"backbone.{name}": value for name, value in backbone.trained_state().items()}
    if method is not None:
        state |= {f"method.{name}": value for name, value in method.state_dict().items()}
    return {name: value.detach() for name, value in state.items()}


def load_tensors(backbone: Backbone, method: Method | None, tensors: Mapping[str, Tensor]) -> None:
    """Put :func:`trained_tensors` back; a missing, unknown or misshaped tensor is an error that names it."""
    groups: dict[str, dict[str, Tensor]] = {"backbone": {}, "method": {}}
    for name, value in tensors.items():
        group, _, rest = name.partition(".")
        groups[group][rest] = value
    backbone.load_trained_state(groups["backbone"])
    if method is not None:
        method.load_state_dict(groups["method"])


def save_model(
    folder: Path,
    backbone: Backbone,
    method: Method | None,
    settings: Mapping[str, Any],
    info: Mapping[str, Any],
) -> None:
    """Write a model folder; the weights appear last and whole, so a folder with weights is complete."""
    from safetensors.torch import save_file

    write_json(folder / CONFIG, {"format": FORMAT, **settings})
    with atomic_write(folder / CARD) as card:
        card.write(_card(settings, info))
    tensors = {name: value.cpu().contiguous() for name, value in trained_tensors(backbone, method).items()}
    with atomic_path(folder / WEIGHTS) as temporary:
        save_file(tensors, temporary, metadata={"info": json.dumps(info)})


def load_model(folder: str | Path, *, device: str = "cpu") -> Model:
    """Load a model folder, or the best model of a run folder.

    Raises:
        DataError: the folder holds no model, or its files are damaged or do not fit each other.
    """
    folder = model_folder(Path(folder))
    settings = read_settings(folder)
    tensors, info = read_weights(folder)
    backbone = create_backbone(settings["backbone"])
    method = build_method(settings["method"], backbone) if settings.get("method") else None
    try:
        load_tensors(backbone, method, tensors)
    except (KeyError, RuntimeError) as error:
        raise DataError(f"the weights do not fit {CONFIG}: {error}", file=folder / WEIGHTS) from error
    backbone.to(device).eval()
    if method is not None:
        method.to(device).eval()
    return Model(backbone, method, settings, info)


def model_folder(folder: Path) -> Path:
    """Return the folder itself, or the best model of a run folder."""
    best = folder / "best"
    return best if not (folder / WEIGHTS).is_file() and (best / WEIGHTS).is_file() else folder


def read_settings(folder: Path) -> dict[str, Any]:
    """Read a model folder's settings.

    Raises:
        DataError: there is no model.
    """
    path = folder / CONFIG
    if not path.is_file() or not (folder / WEIGHTS).is_file():
        raise DataError(
            "there is no model here",
            file=folder,
            mend=f"A model folder holds {CONFIG} and {WEIGHTS}; `triptych train` and `triptych align` write one.",
        )
    try:
        settings: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"is not valid JSON ({error})", file=path) from error
    if not isinstance(settings, dict) or settings.pop("format", None) != FORMAT:
        raise DataError(
            f'is not a model of this version; "format" should be "{FORMAT}"', file=path, field="format"
        )
    if not isinstance(settings.get("backbone"), dict):
        raise DataError(
            '"backbone" is missing: it should be {"name": ..., sizes}', file=path, field="backbone"
        )
    return {part: settings.get(part) for part in ("backbone", "method")} | {
        "backbone": _own_weights(settings["backbone"], folder)
    }


def _own_weights(backbone: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Say where the frozen weights are that a model folder carries itself, its ``weights`` being "."."""
    return {**backbone, "weights": str(folder.resolve())} if backbone.get("weights") == "." else backbone


def read_weights(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a model folder's tensors and what it says of its training.

    Raises:
        DataError: the file is damaged.
    """
    from safetensors import SafetensorError, safe_open

    path = folder / WEIGHTS
    try:
        with safe_open(path, framework="pt") as file:
            info = json.loads((file.metadata() or {}).get("info", "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, info  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise DataError(
            f"the weights cannot be read: {error}", file=path, mend="Copy or train it again."
        ) from error


def _card(settings: Mapping[str, Any], info: Mapping[str, Any]) -> str:
    method = settings.get("method")
    lines = [
        "# A Triptych model for composed image retrieval",
        "",
        f"- backbone: `{json.dumps(settings['backbone'])}`",
        f"- method: `{json.dumps(method)}`"
        if method
        else "- aligned on captions only, not trained on triplets",
        *(f"- {name}: {value}" for name, value in info.items()),
        "",
        "Load it with `triptych.load_model(folder)`. The frozen towers come from their packages and are not in it.",
    ]
    return "\n".join(lines) + "\n"
