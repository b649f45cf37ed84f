"""The one place where files of torch are read: tensors only, nothing in them is run."""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from triptych.errors import DataError

_EXPORT = """\
import torch
module = torch.load("{name}", map_location="cpu", weights_only=False)
torch.save(module.state_dict(), "{stem}.state_dict.pt")"""


def load_torch_file(path: Path) -> Any:
    """Read a ``.pt``, ``.pth`` or ``.bin`` file with ``weights_only=True``, on the CPU.

    Raises:
        DataError: it is missing or damaged, or holds more than tensors, as a pickled module does.
    """
    if not path.is_file():
        raise DataError("there is no such file", file=path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        if "nsupported" not in str(error):  # else a global or an operation that is not of tensors
            raise _damaged(path, error) from error
        named = re.search(r"GLOBAL (\S+)", str(error))
        what = named[1] if named else "of a kind that is not named"
        lines = _EXPORT.format(name=path.name, stem=path.stem).replace("\n", "\n    ")
        raise DataError(
            f"this is a whole pickled object ({what}), not a dictionary of tensors; to read it would run code from it",
            file=path,
            mend="Whoever has the environment that it was trained in exports the weights by these lines:\n"
            f"    {lines}",
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, zipfile.BadZipFile) as error:
        raise _damaged(path, error) from error


def load_tensors(path: Path) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Read a dictionary of tensors, also one that lies in a dictionary, as ``{"model": ...}``.

    Returns:
        The tensors by name, without the prefix ``module.`` of a model on several GPUs; and the keys under which
        they lay.

    Raises:
        DataError: the file cannot be read or holds no such dictionary, or several.
    """
    if path.suffix == ".safetensors":
        return _safetensors(path), ()
    value, keys = load_torch_file(path), list[str]()
    while isinstance(value, Mapping) and not _is_state(value):
        inner = [key for key, item in value.items() if isinstance(item, Mapping) and _holds_tensors(item)]
        if len(inner) != 1:
            found = f"several: {', '.join(map(str, inner))}" if inner else f"none, only {_listed(value)}"
            raise DataError(f"it should hold one dictionary of tensors and holds {found}", file=path)
        keys.append(str(inner[0]))
        value = value[inner[0]]
    if not isinstance(value, Mapping):
        raise DataError(
            f"it should hold a dictionary of tensors and holds a {type(value).__name__}", file=path
        )
    prefix = "module." if all(name.startswith("module.") for name in value) else ""
    return {name.removeprefix(prefix): tensor.detach() for name, tensor in value.items()}, tuple(keys)


def _safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise DataError("there is no such file", file=path)
    try:
        tensors: dict[str, Tensor] = load_file(path)
        return tensors
    except (SafetensorError, OSError) as error:
        raise _damaged(path, error) from error


def _is_state(value: Mapping[Any, Any]) -> bool:
    return bool(value) and all(isinstance(k, str) and isinstance(v, Tensor) for k, v in value.items())


def _holds_tensors(value: Mapping[Any, Any]) -> bool:
    return _is_state(value) or any(isinstance(item, Mapping) and _is_state(item) for item in value.values())


def _listed(value: Mapping[Any, Any]) -> str:
    names = [f'"{key}"' for key in value][:8]
    return ", ".join(names) or "nothing"


def _damaged(path: Path, error: Exception) -> DataError:
    said = (str(error).strip().splitlines() or [type(error).__name__])[0]
    size = path.stat().st_size
    return DataError(
        f"the checkpoint cannot be read ({said[:160]}); the file has {size:,} bytes and may be cut off",
        file=path,
        mend="Copy or fetch it again.",
    )
