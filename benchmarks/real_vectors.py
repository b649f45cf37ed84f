"""Vectors of a data set's pictures and queries by a model, as ``benchmarks/search.py --vectors`` reads them.

    python benchmarks/real_vectors.py MODEL DATA -o vectors.npz [--split val] [--queries 1000]

Targets are those of the pictures of training and of the galleries, queries the first of every category in turn.
"""

from __future__ import annotations

import argparse
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np
import torch

from triptych.backbones.token_cache import TokenCache
from triptych.training.evaluate import SplitEvaluator
from triptych.training.model import load_model
from triptych.training.splits import find_split
from triptych.triplets import Benchmark, read_benchmark

CHUNK = 256


def main() -> None:
    """Embed and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--split", default="val")
    parser.add_argument("--queries", type=int, default=1000)
    options = parser.parse_args()
    model, data = load_model(options.model), read_benchmark(options.data)
    cache = TokenCache(model.backbone)
    names = sorted(
        {*data.train.column("reference"), *data.train.column("target")} | galleries(data, options.split)
    )
    keys = cache.add_images(data.images, names, model.backbone)
    rows = cache.rows([keys[name] for name in names])
    with torch.inference_mode():
        targets = torch.cat(
            [model.embed_targets(cache.gather(rows[at : at + CHUNK])) for at in range(0, len(rows), CHUNK)]
        )
    by_category = SplitEvaluator(data, options.split, model, cache).queries(model)
    mixed = [row for row in chain(*zip_longest(*by_category)) if row is not None]
    np.savez(options.out, targets=targets.numpy(), queries=torch.stack(mixed[: options.queries]).numpy())
    print(f"{len(targets):,} pictures, {min(len(mixed), options.queries):,} queries: {options.out}")


def galleries(data: Benchmark, split: str) -> set[str]:
    """Name the pictures of all categories' galleries."""
    return {name for part in find_split(data, split) for name in part.gallery}


if __name__ == "__main__":
    main()
