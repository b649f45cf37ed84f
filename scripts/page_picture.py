"""Photograph the page of a running gallery: the picture in README and docs/page.md.

    make demo
    python scripts/page_picture.py demo/gallery --text "make it red" -o docs/images/page.png

Serves the gallery, takes a picture of it as the reference, searches, and shows what mattered. Needs the extras search
and serve, playwright and Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import threading
import time
from io import BytesIO
from pathlib import Path

import uvicorn
from PIL import Image
from playwright.sync_api import sync_playwright

from triptych.server.app import create_app

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
]
COLOURS = 256


def main() -> None:
    """Do it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("gallery", type=Path)
    parser.add_argument("--reference", help="an id of the gallery; by default the first one")
    parser.add_argument("--text", default="make it red")
    parser.add_argument("--size", default="1280x800", help="width x height of the window")
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--plain", action="store_true", help="without what mattered")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/images/page.png"))
    arguments = parser.parse_args()
    width, height = map(int, arguments.size.split("x"))
    server = uvicorn.Server(
        uvicorn.Config(create_app(arguments.gallery), host="127.0.0.1", port=0, log_level="warning")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(
            viewport={"width": width, "height": height}, color_scheme="dark" if arguments.dark else "light"
        )
        page.set_default_timeout(60_000)
        page.goto(f"http://127.0.0.1:{port}/")
        page.wait_for_selector("#grid .take")
        chosen = (
            f'.take[aria-label^="Take {arguments.reference} as"]' if arguments.reference else "#grid .take"
        )
        while not page.locator(chosen).count():  # further down the gallery
            page.mouse.wheel(0, height)
            page.wait_for_timeout(200)
        page.locator(chosen).first.click()
        page.fill("#text", arguments.text)
        page.click("#go")
        page.wait_for_selector("#grid .score")
        if not arguments.plain:
            page.click("#mattered")
            page.wait_for_selector(".veil")
        page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
        page.mouse.move(0, 0)
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(500)
        picture = Image.open(BytesIO(page.screenshot()))
        browser.close()
    server.should_exit = True
    thread.join(10)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    picture.convert("RGB").quantize(COLOURS, kmeans=2).save(arguments.output, optimize=True)
    print(
        f"{arguments.output}: {picture.width} x {picture.height}, {arguments.output.stat().st_size / 1000:.0f} kB"
    )


if __name__ == "__main__":
    main()
