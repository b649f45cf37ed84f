"""StoredWeights: the tensors of a folder of safetensors, by name and read one at a time; each is checked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from triptych.errors import DataError

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
TOWER = "tower.safetensors"
"""Where a Triptych model folder carries the frozen tower, under transformers' names."""
_SHOWN = 8


class StoredWeights:
    """Tensors of a folder: ``model.safetensors`` or the parts that its index names, and ``tower.safetensors``.

    Args:
        folder: the folder.

    Raises:
        DataError: there are no weights, a file is missing or damaged, or the index is not one.
    """

    def __init__(self, folder: Path) -> None:
        from safetensors import SafetensorError, safe_open

        self.folder = folder
        self._file_of: dict[str, Path] = {}
        self._open: dict[Path, Any] = {}
        for path in _files(folder):
            try:
                self._open[path] = handle = safe_open(path, framework="pt")
                names: list[str] = handle.keys()  # type: ignore[no-untyped-call]  # safetensors has no types
                self._file_of |= dict.fromkeys(names, path)
            except (SafetensorError, OSError) as error:
                raise _unreadable(path, error) from error

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    @property
    def names(self) -> tuple[str, ...]:
        """Every tensor's name."""
        return tuple(self._file_of)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's shape without reading it."""
        return tuple(self._open[self._file_of[name]].get_slice(name).get_shape())

    def read(self, name: str) -> Tensor:
        """Read a tensor as it is stored.

        Raises:
            DataError: it cannot be read, or holds a value that is not finite.
        """
        from safetensors import SafetensorError

        path = self._file_of[name]
        try:
            tensor: Tensor = self._open[path].get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise _unreadable(path, error) from error
        refuse_not_finite(name, tensor, path)
        return (
            tensor.clone()
        )  # in memory of its own: the last bits of a product depend on where its factors lie


def refuse_not_finite(name: str, tensor: Tensor, file: Path) -> None:
    """Refuse a tensor that holds NaN or infinity.

    Raises:
        DataError: names the tensor and how many of its values are not finite.
    """
    if not tensor.is_floating_point():
        return
    finite = torch.isfinite(tensor)
    if not bool(finite.all()):
        count = int((~finite).sum())
        raise DataError(
            f'the weights "{name}" hold {count} of {tensor.numel()} values that are not finite',
            file=file,
            mend="Fetch or train them again; what comes from them would not be finite either.",
        )


def fill(
    module: nn.Module,
    stored: StoredWeights,
    name_of: Callable[[str], str],
    *,
    unused: Iterable[str] = (),
    dtype_of: Callable[[str], torch.dtype] = lambda name: torch.float32,
) -> None:
    """Fill a module that was built on the meta device; nothing is loaded in part.

    Args:
        module: its state is replaced.
        stored: where from.
        name_of: a name in the module to its name in the file.
        unused: starts of names that the file may hold and the module has no use for.
        dtype_of: a name in the module to the precision it is kept in.

    Raises:
        DataError: names are missing or unknown, or shapes differ: all are counted, the first are listed.
    """
    expected = {name_of(name): (name, tuple(value.shape)) for name, value in module.state_dict().items()}
    problems = differences(
        {theirs: shape for theirs, (_, shape) in expected.items()},
        {name: stored.shape(name) for name in stored.names},
        unused=unused,
    )
    if problems:
        raise DataError(
            "these weights are not of this architecture or these sizes:\n  " + "\n  ".join(problems),
            file=stored.folder,
            mend="Give the folder that belongs to this backbone, whole.",
        )
    state = {
        ours: stored.read(theirs).to(dtype_of(ours)) if not theirs.endswith("_ids") else stored.read(theirs)
        for theirs, (ours, _) in expected.items()
    }
    module.load_state_dict(state, assign=True)


def differences(
    expected: Mapping[str, tuple[int, ...]],
    found: Mapping[str, tuple[int, ...]],
    *,
    unused: Iterable[str] = (),
    shown: int = _SHOWN,
) -> list[str]:
    """Say how the tensors found differ from those expected: a line each for missing, unknown and misshaped ones."""
    passed_over = tuple(unused)
    missing = [name for name in expected if name not in found]
    unknown = [name for name in found if name not in expected and not name.startswith(passed_over or ("\0",))]
    shapes = [
        f"{name} is {list(found[name])}, not {list(shape)}"
        for name, shape in expected.items()
        if name in found and found[name] != shape
    ]
    kinds = {"missing": missing, "unknown": unknown, "of another shape": shapes}
    return [f"{len(names)} {kind}: {listed(names, shown)}" for kind, names in kinds.items() if names]


def listed(names: list[str], shown: int = _SHOWN) -> str:
    """Join names to a list, the first ``shown`` of them."""
    rest = len(names) - shown
    return ", ".join(names[:shown]) + (f", and {rest} more" if rest > 0 else "")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        DataError: the file is missing or holds none.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError("the file is missing", file=path) from error
    except (OSError, ValueError) as error:
        raise DataError(f"is not valid JSON ({error})", file=path, mend="Fetch it again.") from error
    if not isinstance(value, dict):
        raise DataError("holds no JSON object", file=path)
    return value


def _files(folder: Path) -> list[Path]:
    whole, index, tower = folder / WEIGHTS, folder / INDEX, folder / TOWER
    if whole.is_file():
        return [whole, *([tower] if tower.is_file() else [])]
    if not index.is_file():
        older = sorted(path.name for path in folder.glob("*.bin")) + sorted(
            path.name for path in folder.glob("*.pt*")
        )
        mend = (
            f"It holds {listed(older)}: `triptych convert` turns such a file into a model folder."
            if older
            else f"It should hold {WEIGHTS}, or {INDEX} and the parts that it names."
        )
        raise DataError("there are no weights here", file=folder, mend=mend)
    parts = read_json(index).get("weight_map")
    if not isinstance(parts, dict):
        raise DataError('"weight_map" is missing', file=index, field="weight_map")
    paths = [folder / str(name) for name in dict.fromkeys(parts.values())]
    if absent := [path.name for path in paths if not path.is_file()]:
        raise DataError(
            f"{len(absent)} of {len(paths)} files that it names are missing: {listed(absent)}", file=index
        )
    return paths


def _unreadable(path: Path, error: Exception) -> DataError:
    size = path.stat().st_size if path.is_file() else 0
    return DataError(
        f"the weights cannot be read ({error}); the file has {size:,} bytes and may be cut off",
        file=path,
        mend="Copy or fetch it again.",
    )
