"""Search engines side by side on one gallery size after the other: time, recall, memory.

    python benchmarks/search.py                       # 1,000 and 10,000 images
    python benchmarks/search.py --images 1000 10000 100000 --queries 200

Vectors have the sizes of backbone lite (8 x 128). With ``--vectors FILE`` (an .npz with ``targets`` [N, Q, D] and
``queries`` [M, D]) they are real ones, repeated with noise until there are enough; else they are drawn around
centres. Every engine answers the same queries in this process; encoding is not part of it.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch.nn.functional import normalize

from triptych.search import Gallery, GalleryEngine, Query
from triptych.search.columns import Shape
from triptych.search.embed_queries import Ready
from triptych.search.first_stage import DIRECTIONS
from triptych.search.gallery import CONFIG
from triptych.search.indexing import pool
from triptych.search.lance_store import LanceStore
from triptych.search.store import STORE

QUERIES, DIM, TOP, NOISE = 8, 128, 10, 0.05
Search = Callable[[np.ndarray], list[str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--images", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--vectors", type=Path, help="an .npz of real vectors: targets, queries")
    parser.add_argument("--probes", type=int, help="partitions that the index search reads")
    parser.add_argument("--candidates", type=int, help="what the first stage hands on")
    parser.add_argument("--multivector", type=int, default=10_000, help="LanceDB's own up to so many images")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    print("| images | engine | p50 ms | p95 ms | recall@10 | resident MB | on disk MB |")
    print("|---|---|---|---|---|---|---|")
    for images in arguments.images:
        targets, queries = vectors(arguments.vectors, images, arguments.queries)
        with tempfile.TemporaryDirectory() as folder:
            compare(Path(folder), targets, queries, arguments)
    stored, kept = 2 * QUERIES * DIM + 4 * DIM, QUERIES * (2 * DIM + 4 * DIRECTIONS)
    print(f"\n1,000,000 images on paper: {stored} bytes an image of vectors on disk, {stored / 1000:.2f} GB;")
    print(f"  {kept} in memory, {kept / 1000:.2f} GB, above the default budget, so they are read from disk.")


def compare(folder: Path, targets: torch.Tensor, queries: np.ndarray, arguments: argparse.Namespace) -> None:
    """Time every engine on one gallery and print a line for each."""
    images = len(targets)
    gallery = write_gallery(folder / "gallery", targets)
    size = sum(path.stat().st_size for path in gallery.folder.rglob("*") if path.is_file()) / 1e6
    settings = {
        name: getattr(arguments, name) for name in ("probes", "candidates") if getattr(arguments, name)
    }
    auto = GalleryEngine(gallery, **settings)
    two_stage = GalleryEngine(gallery, mode="approximate", **settings)
    engines: list[tuple[str, Search]] = [
        ("NumPy exact scan", numpy_scan(targets)),
        (f"ours, chosen by size ({'exact' if auto.snapshot.exact else 'two-stage'})", searcher(auto)),
        ("ours, two-stage", searcher(two_stage)),
    ]
    if images <= arguments.multivector:
        engines.append(("LanceDB multivector, cosine", multivector(folder / "plain", targets)))
    truth: list[list[str]] | None = None
    for name, search in engines:
        search(queries[0])
        found, seconds = [], []
        for query in queries:
            started = time.perf_counter()
            found.append(search(query))
            seconds.append(time.perf_counter() - started)
        truth = truth or found
        recall = statistics.mean(len(set(a) & set(b)) / len(a) for a, b in zip(truth, found, strict=True))
        p50, p95 = np.percentile(np.array(seconds) * 1000, [50, 95])
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"| {images:,} | {name} | {p50:.1f} | {p95:.1f} | {recall:.3f} | {memory:,.0f} | {size:,.0f} |")


def vectors(path: Path | None, images: int, count: int) -> tuple[torch.Tensor, np.ndarray]:
    """Return targets ``[images, Q, D]`` in half precision and queries ``[count, D]``."""
    draw = torch.Generator().manual_seed(images)
    if path:
        with np.load(path) as file:
            known, asked = (
                torch.from_numpy(file["targets"]).float(),
                torch.from_numpy(file["queries"]).float(),
            )
    else:
        centres = torch.randn(500, 1, DIM, generator=draw)
        spread = 0.4 * torch.randn(500, QUERIES, DIM, generator=draw)
        known = normalize(centres + spread, dim=-1)
        picked = known[torch.randint(500, (1000,), generator=draw)].mean(dim=1)
        asked = normalize(picked + 0.3 * torch.randn(1000, DIM, generator=draw) / DIM**0.5, dim=-1)
    parts = []
    for start in range(0, images, 10_000):
        rows = torch.arange(start, min(start + 10_000, images)) % len(known)
        own = known[rows]
        noise = (
            NOISE
            * torch.randn(own.shape, generator=draw)
            * (torch.arange(start, start + len(rows)) >= len(known))[:, None, None].float()
        )
        parts.append(normalize(own + noise, dim=-1).half())
    return torch.cat(parts), asked[:count].numpy()


def write_gallery(folder: Path, targets: torch.Tensor) -> Gallery:
    """Write a gallery of vectors alone: no pictures, no tokens, no model."""
    import json

    shape = Shape(targets.shape[1], targets.shape[2], None)
    folder.mkdir(parents=True)
    LanceStore.create(folder / STORE, shape)
    info = {"format": "triptych-gallery-1", "model": {"name": "benchmark", "fingerprint": "0" * 64}}
    sizes = {"queries": shape.queries, "dim": shape.dim, "tokens": None, "thumbnail": 256}
    (folder / CONFIG).write_text(json.dumps({**info, **sizes}))
    gallery = Gallery.open(folder)
    with gallery.writing():
        for start in range(0, len(targets), 20_000):
            part = targets[start : start + 20_000]
            number = len(part)
            rows = {
                "id": [f"i{row}" for row in range(start, start + number)],
                "content_hash": [f"{row:064x}" for row in range(start, start + number)],
                "source": ["made"] * number,
                "width": pa.array([1] * number, pa.int32()),
                "height": pa.array([1] * number, pa.int32()),
                "thumbnail": [b""] * number,
                "pooled": column(pool(part.float())),
                "targets": column(part),
            }
            gallery.table.add(pa.table(rows, schema=shape.schema()))
        gallery.compact(forget=True)
    return gallery


def column(values: torch.Tensor) -> pa.Array:
    """Make a column of vectors."""
    flat = values.flatten(1).numpy()
    return pa.FixedSizeListArray.from_arrays(pa.array(flat.reshape(-1)), flat.shape[1])


def searcher(engine: GalleryEngine) -> Search:
    """Find with one of our engines."""
    ready = Ready(Query.of(text="x", top=TOP, keep_references=True))
    return lambda query: [hit.image_id for hit in engine.find(ready, torch.from_numpy(query)).hits]


def numpy_scan(targets: torch.Tensor) -> Search:
    """Score everything with NumPy in float32."""
    count, parts, dim = targets.shape
    flat = targets.float().numpy().reshape(-1, dim)

    def search(query: np.ndarray) -> list[str]:
        scores = (flat @ query).reshape(count, parts).max(axis=1)
        best = np.argpartition(-scores, TOP)[:TOP]
        return [f"i{row}" for row in best[np.argsort(-scores[best], kind="stable")]]

    return search


def multivector(folder: Path, targets: torch.Tensor) -> Search:
    """Search LanceDB's own column of several vectors an image, without an index."""
    import lancedb

    shutil.rmtree(folder, ignore_errors=True)
    count, parts, dim = targets.shape
    flat = pa.FixedSizeListArray.from_arrays(pa.array(targets.float().numpy().reshape(-1)), dim)
    lists = pa.ListArray.from_arrays(pa.array(np.arange(0, count * parts + 1, parts), pa.int32()), flat)
    rows = pa.table({"id": [f"i{row}" for row in range(count)], "vectors": lists})
    table = lancedb.connect(str(folder)).create_table("plain", rows)

    def search(query: np.ndarray) -> list[str]:
        asked = table.search(query[None], vector_column_name="vectors").distance_type("cosine").limit(TOP)
        return [str(name) for name in asked.select(["id", "_distance"]).to_arrow()["id"].to_pylist()]

    return search


if __name__ == "__main__":
    main()
