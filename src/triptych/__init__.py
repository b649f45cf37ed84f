"""Triptych: composed image retrieval that stays strong when the training triplets are wrong.

Load a benchmark, inject noise, train, evaluate and search; each name below is imported when it is first used,
so that ``import triptych`` is quick and does not import torch.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Before torch starts its threads: where cores are shared, OpenMP threads that spin while they wait cost a
# factor of ten. Whoever has set the variable knows better.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

if TYPE_CHECKING:
    __version__: str
    from triptych import errors as errors
    from triptych.audit import Audit as Audit
    from triptych.audit import audit as audit
    from triptych.evaluation import Evaluation as Evaluation
    from triptych.noise import NoiseManifest as NoiseManifest
    from triptych.noise import inject as inject
    from triptych.search import Hit as Hit
    from triptych.search import SearchEngine as SearchEngine
    from triptych.search import search as search
    from triptych.training.align import align as align
    from triptych.training.evaluate import evaluate as evaluate
    from triptych.training.model import Model as Model
    from triptych.training.model import load_model as load_model
    from triptych.training.run import Run as Run
    from triptych.training.train import resume as resume
    from triptych.training.train import train as train
    from triptych.triplets import Benchmark as Benchmark
    from triptych.triplets import ImageStore as ImageStore
    from triptych.triplets import Triplet as Triplet
    from triptych.triplets import TripletTable as TripletTable
    from triptych.triplets import read_benchmark as load_benchmark
    from triptych.triplets.rendered import render_benchmark as render_benchmark

_HOME = {
    "Audit": "triptych.audit:Audit",
    "Benchmark": "triptych.triplets:Benchmark",
    "Evaluation": "triptych.evaluation:Evaluation",
    "Hit": "triptych.search:Hit",
    "ImageStore": "triptych.triplets:ImageStore",
    "Model": "triptych.training.model:Model",
    "NoiseManifest": "triptych.noise:NoiseManifest",
    "Run": "triptych.training.run:Run",
    "SearchEngine": "triptych.search:SearchEngine",
    "Triplet": "triptych.triplets:Triplet",
    "TripletTable": "triptych.triplets:TripletTable",
    "align": "triptych.training.align:align",
    "audit": "triptych.audit",  # a package that can be called, see there
    "errors": "triptych.errors",
    "evaluate": "triptych.training.evaluate:evaluate",
    "inject": "triptych.noise:inject",
    "load_benchmark": "triptych.triplets:read_benchmark",
    "load_model": "triptych.training.model:load_model",
    "render_benchmark": "triptych.triplets.rendered:render_benchmark",
    "resume": "triptych.training.train:resume",
    "search": "triptych.search",  # a package that can be called, see there
    "train": "triptych.training.train:train",
}

__all__ = [
    "Audit",
    "Benchmark",
    "Evaluation",
    "Hit",
    "ImageStore",
    "Model",
    "NoiseManifest",
    "Run",
    "SearchEngine",
    "Triplet",
    "TripletTable",
    "__version__",
    "align",
    "audit",
    "errors",
    "evaluate",
    "inject",
    "load_benchmark",
    "load_model",
    "render_benchmark",
    "resume",
    "search",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    if name == "__version__":
        value: Any = _version()
    elif name in _HOME:
        module, _, attribute = _HOME[name].partition(":")
        value = import_module(module)
        value = getattr(value, attribute) if attribute else value
    else:
        raise AttributeError(f"module 'triptych' has no attribute {name!r}")
    return globals().setdefault(name, value)


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("triptych")
    except PackageNotFoundError:  # run from the source folder without an installation
        return "0.1.0"
