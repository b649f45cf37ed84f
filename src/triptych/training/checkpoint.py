"""A checkpoint: one safetensors file with weights, optimiser state and position, whole or not there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from triptych.errors import DataError
from triptych.files import atomic_path


@dataclass
class Progress:
    """Where a run stands: everything but tensors that the next step depends on.

    No generator state is kept: every draw is named by seed, epoch and step (see :mod:`triptych.randomness`).
    """

    epoch: int = 0
    step: int = 0
    """Steps done in this epoch."""
    best_score: float | None = None
    best_epoch: int | None = None
    epochs_without_gain: int = 0
    metrics_lines: int = 0
    """Lines of metrics.jsonl that this checkpoint vouches for; later ones are written again."""
    finished: bool = False
    data: str = ""
    """Fingerprint of the triplets and pictures that were trained on."""
    scaler: dict[str, Any] = field(default_factory=dict)


def save_checkpoint(
    path: Path,
    tensors: dict[str, Tensor],
    optimizer: torch.optim.Optimizer,
    names: list[str],
    progress: Progress,
    remembered: Mapping[str, Tensor] | None = None,
) -> None:
    """Write a checkpoint.

    Args:
        path: the file; replaced in one step.
        tensors: the trained tensors by name.
        optimizer: AdamW over the parameters ``names``, in that order.
        names: the parameters' names.
        progress: the position.
        remembered: what is kept of each triplet.
    """
    from safetensors.torch import save_file

    state = {f"model.{name}": value.cpu().contiguous() for name, value in tensors.items()}
    for index, entry in optimizer.state_dict()["state"].items():
        for key, value in entry.items():
            state[f"optimizer.{names[index]}.{key}"] = torch.as_tensor(value).detach().cpu().contiguous()
    state |= {f"triplets.{name}": value.contiguous() for name, value in (remembered or {}).items()}
    with atomic_path(path) as temporary:
        save_file(state, temporary, metadata={"progress": json.dumps(asdict(progress))})


def load_checkpoint(
    path: Path, optimizer: torch.optim.Optimizer, parameters: dict[str, nn.Parameter]
) -> tuple[dict[str, Tensor], dict[str, Tensor], Progress]:
    """Read a checkpoint and put the optimiser's state back.

    Returns:
        The trained tensors, what is kept of each triplet, and the position.

    Raises:
        DataError: the file is damaged.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            progress = Progress(**json.loads(file.metadata()["progress"]))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"the checkpoint cannot be read: {error}", file=path, mend="Start the run anew."
        ) from error
    for name, parameter in parameters.items():
        prefix = f"optimizer.{name}."
        entry = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
        entry = {key: value for key, value in entry.items() if "." not in key}
        if entry:
            optimizer.state[parameter] = {
                key: value if key == "step" else value.to(parameter.device) for key, value in entry.items()
            }
    return _under("model.", tensors), _under("triplets.", tensors), progress


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
