"""Composed searches over HTTP, one after the other: what a user of ``triptych serve`` waits.

    python benchmarks/service.py GALLERY [--queries 100]

Starts the server on a free port, then asks with texts that it has not seen, once by the reference's id and once with a
picture that is uploaded (the gallery's own thumbnails). Reading the answer counts.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import time
import urllib.request
from itertools import cycle, islice, product
from pathlib import Path
from uuid import uuid4

import numpy as np

TEXTS = [
    f"the same but {how} {what}"
    for how, what in product(
        ("darker", "longer", "in red", "without", "with more", "with smaller", "plain, no", "shinier"),
        (
            "stripes",
            "buttons",
            "a collar",
            "sleeves",
            "a print",
            "dots",
            "pockets",
            "a belt",
            "laces",
            "heels",
        ),
    )
]


def main() -> None:
    """Start the server, ask, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("gallery", type=Path)
    parser.add_argument("--queries", type=int, default=40, help="of each kind")
    options = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "triptych", "serve", str(options.gallery), "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        wait(f"{url}/ready")
        listed = json.loads(get(f"{url}/v1/images?limit=200"))
        names = [image["id"] for image in listed["images"]]
        pictures = [get(f"{url}/v1/images/{name}") for name in names[:20]]
        asked = list(islice(TEXTS, 2 * options.queries))
        print("| query | p50 ms | p95 ms |\n|---|---|---|")
        bodies = [
            (json.dumps({"images": [{"id": name}], "texts": [{"text": text}]}).encode(), "application/json")
            for name, text in zip(cycle(names), asked[::2], strict=False)
        ]
        line("reference by id", time_each(f"{url}/v1/search", bodies))
        bodies = [upload(picture, text) for picture, text in zip(cycle(pictures), asked[1::2], strict=False)]
        line("reference uploaded", time_each(f"{url}/v1/search", bodies))
    finally:
        server.terminate()
        server.wait()


def get(url: str) -> bytes:
    """Fetch."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        return bytes(answer.read())


def wait(url: str) -> None:
    """Wait until the server is ready."""
    for _ in range(600):
        try:
            get(url)
            return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("the server did not start")


def upload(picture: bytes, text: str) -> tuple[bytes, str]:
    """Write a multipart form."""
    edge = uuid4().hex
    head = f'--{edge}\r\nContent-Disposition: form-data; name="image"; filename="a.jpg"\r\n\r\n'.encode()
    rest = f'\r\n--{edge}\r\nContent-Disposition: form-data; name="text"\r\n\r\n{text}\r\n--{edge}--\r\n'
    return head + picture + rest.encode(), f"multipart/form-data; boundary={edge}"


def time_each(url: str, bodies: list[tuple[bytes, str]]) -> list[float]:
    """Ask, the first three to warm up, and return milliseconds."""
    seconds = []
    for body, kind in bodies:
        request = urllib.request.Request(url, body, {"content-type": kind})
        started = time.perf_counter()
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["hits"]
        seconds.append(1000 * (time.perf_counter() - started))
    return seconds[3:]


def line(what: str, milliseconds: list[float]) -> None:
    """Print a line of the table."""
    p50, p95 = np.percentile(milliseconds, [50, 95])
    print(f"| {what} | {p50:.0f} | {p95:.0f} |")


if __name__ == "__main__":
    main()
