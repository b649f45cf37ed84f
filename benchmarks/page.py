"""The page on a made-up gallery of 20,000 images: first results, scrolling, weight, in a real Chromium.

    python benchmarks/page.py                  # 20,000 images
    python benchmarks/page.py --images 2000 --searches 5

Vectors, tokens and thumbnails are made up, at the sizes of backbone lite; texts and references are encoded by a real
(untrained) model, and everything goes over HTTP as for a user. Chromium draws without a GPU, on the same cores as the
server. Needs the extras search and serve, playwright and Chromium.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import torch
import uvicorn
from PIL import Image
from playwright.sync_api import sync_playwright
from torch.nn.functional import normalize

from triptych.backbones.registry import create_backbone
from triptych.search import Gallery, GalleryEngine
from triptych.search.columns import HASH, ID, POOLED, SOURCE, TARGETS, THUMBNAIL, TOKENS
from triptych.search.indexing import pool
from triptych.server.app import create_app
from triptych.training.model import Model

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
]
PICTURES, CHUNK = 300, 2_000
KINDS = ("shoes", "shirts", "dresses", "bags", "watches")

OPENED = """() => new Promise((done) => { const look = () => {
    const first = document.querySelector('#grid .take img');
    if (first?.complete && first.naturalWidth) done(performance.now()); else requestAnimationFrame(look); };
    look(); })"""

SEARCH = """(text) => new Promise((done) => {
    const field = document.querySelector('#text');
    field.value = text;
    field.dispatchEvent(new Event('input', { bubbles: true }));
    const old = document.querySelector('#grid .tile');
    const start = performance.now();
    let shown = 0;
    document.querySelector('#go').click();
    const look = () => {
        const tile = document.querySelector('#grid .tile');
        if (tile && tile !== old && tile.querySelector('.score')) {
            shown ||= performance.now() - start;
            const image = tile.querySelector('img');
            if (image?.complete && image.naturalWidth) { done([shown, performance.now() - start]); return; }
        }
        requestAnimationFrame(look);
    };
    look();
})"""

FRAMES = """() => { window.frames_seen = []; let last = performance.now(); const tick = (now) => {
    window.frames_seen.push(now - last); last = now; window.ticking = requestAnimationFrame(tick); };
    window.ticking = requestAnimationFrame(tick); }"""

STOP = "() => { cancelAnimationFrame(window.ticking); return window.frames_seen; }"

SEEN = """() => { const tiles = [...document.querySelectorAll('.tile')].filter((tile) => {
    const box = tile.getBoundingClientRect(); return box.bottom > 0 && box.top < innerHeight; });
    return tiles.length > 1 && tiles.every((tile) => tile.querySelector('img')?.complete); }"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--searches", type=int, default=20)
    parser.add_argument("--gallery", type=Path, help="keep the made-up gallery there, and use it again")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        place = arguments.gallery or Path(folder) / "gallery"
        engine = GalleryEngine(place) if place.exists() else made_up(place, arguments.images)
        server = uvicorn.Server(
            uvicorn.Config(create_app(engine), host="127.0.0.1", port=0, log_level="warning")
        )
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.05)
        port = server.servers[0].sockets[0].getsockname()[1]
        print(
            f"{engine.snapshot.images:,} images, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start"
        )
        print("| what | p50 | p95 | worst |")
        print("|---|---|---|---|")
        measure(f"http://127.0.0.1:{port}/", engine.snapshot.images, arguments.searches)
        server.should_exit = True
        thread.join(10)


def measure(url: str, images: int, searches: int) -> None:
    """Drive the page and print a line for each thing measured."""
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        weight: list[int] = []
        opened = []
        for attempt in range(5):
            page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
            page.set_default_timeout(60_000)
            if not attempt:
                page.on("response", lambda response: weight.append(_size(url, response)))
            page.goto(url)
            opened.append(page.evaluate(OPENED))
        line("page opened to first picture, ms", opened)

        frames = scroll(page)
        line("a frame while the wheel turns, ms", frames)
        late = sum(frame > 50 for frame in frames)
        print(f"| frames later than 50 ms | {late} of {len(frames)} | | |")
        print(f"| tiles in the document | {page.locator('.tile').count()} of {images:,} | | |")
        jumps = []
        for share in (0.25, 0.75, 0.5, 0.99):
            started = time.perf_counter()
            page.evaluate(f"scrollTo(0, document.documentElement.scrollHeight * {share})")
            while not page.evaluate(SEEN):
                page.wait_for_timeout(5)
            jumps.append(1000 * (time.perf_counter() - started))
        line("a jump to its pictures, ms", jumps)

        page.evaluate("scrollTo(0, 0)")
        page.wait_for_timeout(300)
        page.locator("#grid .take").first.click()
        page.evaluate(SEARCH, "warm up")
        spent = cpu_seconds()
        results = [page.evaluate(SEARCH, f"make it red, number {number}") for number in range(searches)]
        spent = 1000 * (cpu_seconds() - spent) / searches
        print(f"| CPU time of a search, server and browser together, ms | {spent:.0f} (mean) | | |")
        line("search to first results, ms", [shown for shown, _ in results])
        line("search to first results with their picture, ms", [complete for _, complete in results])
        print(f"| page weight before pictures, kB | {sum(weight) / 1000:.0f} | | |")
        browser.close()


def scroll(page: Any) -> list[float]:
    """Turn the wheel for some seconds and return how long each frame took."""
    page.mouse.move(800, 500)
    page.evaluate(FRAMES)
    for _ in range(120):
        page.mouse.wheel(0, 240)
        page.wait_for_timeout(16)
    found: list[float] = page.evaluate(STOP)
    return found[2:]


def cpu_seconds() -> float:
    """Return the CPU time of this process, which serves, and of the browser that it started."""
    own = psutil.Process()
    times = [one.cpu_times() for one in (own, *own.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def line(what: str, values: list[float]) -> None:
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    print(f"| {what} | {statistics.median(ordered):.0f} | {p95:.0f} | {ordered[-1]:.0f} |", flush=True)


def made_up(folder: Path, images: int) -> GalleryEngine:
    """Make a gallery of drawn vectors and pictures, with an untrained model of the default size."""
    settings = {"backbone": {"name": "lite"}, "method": None}
    model = Model(create_backbone({"name": "lite"}, seed=0).eval(), None, settings, {})
    gallery = Gallery.create(folder, model, "untrained")
    shape = gallery.info.shape
    assert shape.tokens is not None
    generator = torch.Generator().manual_seed(0)
    draw = np.random.default_rng(0)
    thumbnails = [picture(draw) for _ in range(PICTURES)]
    tokens = torch.randn(PICTURES, shape.tokens[0] * shape.tokens[1], generator=generator).half().numpy()
    gallery.add_metadata_columns({"kind": pa.string(), "price": pa.float64()})
    for start in range(0, images, CHUNK):
        numbers = np.arange(start, min(start + CHUNK, images))
        targets = normalize(torch.randn(len(numbers), shape.queries, shape.dim, generator=generator), dim=-1)
        which = numbers % PICTURES
        columns = {
            ID: [f"{number:06d}" for number in numbers],
            HASH: [f"{number:064x}" for number in numbers],
            SOURCE: [f"made up {number}" for number in numbers],
            "width": pa.array([256] * len(numbers), pa.int32()),
            "height": pa.array([256] * len(numbers), pa.int32()),
            THUMBNAIL: pa.array([thumbnails[place] for place in which], pa.binary()),
            POOLED: _vectors(pool(targets).numpy()),
            TARGETS: _vectors(targets.half().flatten(1).numpy()),
            TOKENS: _vectors(tokens[which]),
        }
        table = pa.table(columns, schema=shape.schema())
        table = table.append_column("kind", pa.array([KINDS[number % len(KINDS)] for number in numbers]))
        table = table.append_column("price", pa.array((numbers % 200).astype(float)))
        gallery.store.table.add(table)
    gallery.compact()
    return GalleryEngine(gallery, model=model)


def picture(draw: np.random.Generator) -> bytes:
    """Draw a soft picture of 256 x 256 pixels; as JPEG it is as large as a photo's thumbnail."""
    coarse = Image.fromarray(draw.integers(0, 255, (24, 24, 3), dtype=np.uint8))
    buffer = io.BytesIO()
    coarse.resize((256, 256), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def _vectors(values: np.ndarray) -> pa.Array:
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _size(url: str, response: Any) -> int:
    path = response.url.removeprefix(url)
    return int(response.headers.get("content-length", 0)) if not path.startswith("v1/") else 0


if __name__ == "__main__":
    main()
