"""Find weights: a folder, the hub's cache on this machine, and only then the hub."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

from triptych.backbones.stored_weights import INDEX, WEIGHTS
from triptych.errors import UsageError

Progress = Callable[[int, int], None]
_MB = 1e6
PATTERNS = ("*.json", "*.safetensors", "*.txt", "*.model")
"""Configuration, weights and tokenizer; no weights in other formats."""


def find_weights(name: str, progress: Progress | None = None) -> Path:
    """Find the folder of weights.

    Args:
        name: a folder, or ``owner/model`` on the hub.
        progress: called with (megabytes done, megabytes in all) while they are fetched.

    Raises:
        UsageError: there is no such folder, or the hub has nothing of that name or cannot be reached; says which
            files to put where.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if name.startswith((".", "/", "~")) or name.count("/") != 1 or folder.exists():
        what = "is a file, not a folder" if folder.exists() else "there is no such folder"
        raise UsageError(
            f"weights {name}: {what}.\n  Give a folder with config.json and {WEIGHTS}, or a name on the hub "
            "such as Salesforce/blip2-itm-vit-g."
        )
    cached = in_cache(name)
    return cached if cached is not None else _fetch(name, progress)


def in_cache(name: str) -> Path | None:
    """Return the folder of weights in the hub's cache on this machine, where they are whole; None elsewhere."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, local_files_only=True, allow_patterns=list(PATTERNS)))
    except (LocalEntryNotFoundError, HFValidationError, HfHubHTTPError, OSError):
        return None
    whole = (folder / "config.json").is_file() and any((folder / file).is_file() for file in (WEIGHTS, INDEX))
    return folder if whole else None


def _fetch(name: str, progress: Progress | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        RepositoryNotFoundError,
    )

    try:
        return Path(snapshot_download(name, allow_patterns=list(PATTERNS), tqdm_class=_reporting(progress)))
    except (GatedRepoError, RepositoryNotFoundError, HFValidationError) as error:
        raise UsageError(
            f"weights {name}: the hub gives nothing of that name ({_first_line(error)}).\n  {_instead(name)}"
        ) from error
    except (HfHubHTTPError, OSError, RuntimeError) as error:
        # RuntimeError and OSError: offline mode, no network, a closed client; the disk is told by its own name
        raise UsageError(
            f"weights {name}: they are not on this machine and cannot be fetched ({_first_line(error)}).\n"
            f"  {_instead(name)}"
        ) from error


def _instead(name: str) -> str:
    from huggingface_hub.constants import HF_HUB_CACHE

    return (
        f"On a machine with a network, fetch from https://huggingface.co/{name}: config.json; {WEIGHTS}, or {INDEX} "
        "with the parts that it names; tokenizer.json or vocab.txt; tokenizer_config.json. Put them into a folder "
        "and give that folder as `--set backbone.weights=FOLDER`; or copy the hub's cache folder "
        f"models--{name.replace('/', '--')} into {HF_HUB_CACHE}."
    )


def _first_line(error: Exception) -> str:
    said = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return said if len(said) < 200 else f"{said[:200]} ..."


def _reporting(progress: Progress | None) -> type:
    """Make a class of bars that draw nothing; the one that counts the bytes of all files reports them."""
    from tqdm.auto import tqdm  # type: ignore[import-untyped]  # it has none

    class Reporting(tqdm):  # type: ignore[misc]  # tqdm has no types
        def __init__(self, *args: object, **named: object) -> None:
            self._reports = named.pop("name", None) == "huggingface_hub.snapshot_download"
            super().__init__(*args, **{**named, "file": io.StringIO()})

        def update(self, n: float | None = 1) -> bool | None:
            shown: bool | None = super().update(n)
            if self._reports and progress is not None:
                progress(int(self.n / _MB), int(max(self.n, self.total or 0) / _MB))
            return shown

    return Reporting
