"""What int8 image tokens change: recall of image-only queries with fp16 and with int8 caches.

    python benchmarks/int8_tokens.py DATA [--run RUN] [--split val]

Without a run the frozen tokens themselves are compared: a picture is the unit mean of its tokens, the query is the
reference picture alone. With a run its model scores the split, composed and by image alone. The caches lie in a
temporary folder.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.functional import normalize

from triptych.backbones.registry import create_backbone
from triptych.backbones.token_cache import TokenCache
from triptych.evaluation import FASHIONIQ
from triptych.training.evaluate import SplitEvaluator, find_split
from triptych.training.source import open_model
from triptych.triplets import Benchmark, read_benchmark

K = (1, 10, 50)


def untrained(data: Benchmark, split: str, folder: Path, dtype: str) -> dict[str, float]:
    """Return the recall of image-only queries over frozen tokens, and the cache's bytes an image."""
    backbone = create_backbone({"name": "lite"})
    cache = TokenCache(backbone, folder / dtype, dtype)
    found: list[np.ndarray] = []
    for part in find_split(data, split):
        references, targets = part.queries.column("reference"), part.queries.column("target")
        keys = cache.add_images(data.images, sorted({*part.gallery, *references}), backbone)

        def mean(names: list[str], keys: dict[str, bytes] = keys) -> Tensor:
            return normalize(cache.gather(cache.rows([keys[name] for name in names])).mean(dim=1), dim=-1)

        scores = mean(list(references)) @ mean(list(part.gallery)).T
        place = {name: at for at, name in enumerate(part.gallery)}
        right = scores[torch.arange(len(targets)), [place[str(target)] for target in targets]]
        found.append((scores > right[:, None]).sum(dim=1).numpy())
    ranks = np.concatenate(found)
    return {f"R@{k}": 100 * float((ranks < k).mean()) for k in K} | {
        "bytes an image": float(cache.image_bytes)
    }


def trained(run: Path, data: Benchmark, split: str, folder: Path, dtype: str) -> dict[str, float]:
    """Return the recall of a run's model, composed and by image alone."""
    model = open_model(run).model
    cache = TokenCache(model.backbone, folder / dtype, dtype)
    result = SplitEvaluator(data, split, model, cache).evaluate(model, protocol=FASHIONIQ, context=True)
    rows = {row: result.row(row, "kept").mean for row in ("composed", "image-only")}
    return {f"{row} R@{k}": rows[row][f"R@{k}"] for row in rows for k in (10, 50)} | {
        "bytes an image": float(cache.image_bytes)
    }


def main() -> None:
    """Print both and their difference."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--split", default="val")
    options = parser.parse_args()
    data = read_benchmark(options.data)
    with tempfile.TemporaryDirectory() as name:
        results = {
            dtype: trained(options.run, data, options.split, Path(name), dtype)
            if options.run
            else untrained(data, options.split, Path(name), dtype)
            for dtype in ("float16", "int8")
        }
    table = Table("", "float16", "int8", "difference", title=f"{data.name}, {options.split}")
    for row, half in results["float16"].items():
        low = results["int8"][row]
        table.add_row(row, f"{half:.2f}", f"{low:.2f}", f"{low - half:+.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
