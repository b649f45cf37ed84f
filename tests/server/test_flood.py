"""A minute of 32 clients at once: nothing but answers and 429, and memory that does not grow."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

SECONDS = float(os.environ.get("TRIPTYCH_FLOOD_SECONDS", "60"))
CLIENTS = 32
GROWTH = 1.15
"""Memory at the end beside memory after the first quarter."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


@pytest.mark.faults
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory from /proc")
def test_a_flood(fastapi: None, gallery_folder: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "triptych.cli.main", "serve", gallery_folder, "--port", str(port)]
    server = subprocess.Popen([*map(str, command), "--in-flight", "24", "--deadline", "60"])
    url = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"{url}/ready", timeout=5).read()
                break
            except OSError:
                assert time.monotonic() < until, "the server did not start"
                time.sleep(0.2)
        statuses: Counter[int] = Counter()  # an answer that is not whole counts as none of the right ones
        stop = time.monotonic() + SECONDS
        colours = ("red", "green", "blue")

        def ask(client: int) -> None:
            number = 0
            while time.monotonic() < stop:
                number += 1
                query = {
                    "images": [{"id": f"plain-large-{colours[client % 3]}-circle"}],
                    "texts": [{"text": f"make it {colours[number % 3]}, number {number}"}],
                }
                request = urllib.request.Request(
                    f"{url}/v1/search", json.dumps(query).encode(), {"content-type": "application/json"}
                )
                try:
                    with urllib.request.urlopen(request, timeout=120) as answer:
                        statuses[answer.status if len(json.load(answer)["hits"]) == 10 else 0] += 1
                except urllib.error.HTTPError as error:
                    statuses[error.code if error.headers["retry-after"] else -error.code] += 1
                    time.sleep(0.05)

        threads = [threading.Thread(target=ask, args=(client,)) for client in range(CLIENTS)]
        for thread in threads:
            thread.start()
        time.sleep(SECONDS / 4)
        early = resident(server.pid)
        for thread in threads:
            thread.join()
        assert set(statuses) <= {200, 429}, statuses
        assert statuses[200] > SECONDS
        assert resident(server.pid) < GROWTH * early
    finally:
        server.terminate()
        assert server.wait(60) in (0, -15)
