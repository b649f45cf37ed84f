"""A server in a thread, and the page in a browser that remembers what went wrong."""

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

DESKTOP = (1280, 800)


@pytest.fixture(scope="session")
def uvicorn(fastapi: None) -> Any:
    return pytest.importorskip("uvicorn", reason='not installed; run: pip install "triptych[serve]"')


@pytest.fixture(scope="session")
def start(uvicorn: Any, tiny_model: Any) -> Iterator[Callable[..., Any]]:
    """``start(folder, deadline=1)``: a server with these limits; has ``url`` and ``app``."""
    with ExitStack() as stack:
        yield lambda folder, **limits: stack.enter_context(_running(uvicorn, tiny_model, folder, limits))


@dataclass
class Server:
    url: str
    app: Any
    folder: Path


@contextmanager
def _running(uvicorn: Any, model: Any, folder: Path, limits: dict[str, Any]) -> Iterator[Server]:
    from triptych.server.app import create_app
    from triptych.server.settings import ServerSettings

    app = create_app(folder, ServerSettings(**{"deadline": 120, **limits}), model=model)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + 60
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        assert time.monotonic() < until, "the server did not start"
        time.sleep(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield Server(f"http://127.0.0.1:{port}/", app, folder)
    server.should_exit = True
    thread.join(20)


@pytest.fixture(scope="session")
def shop(start: Callable[..., Any], gallery_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server of the 48 tiny pictures; only feedback is written to it."""
    return start(Path(shutil.copytree(gallery_folder, tmp_path_factory.mktemp("shop") / "gallery")))


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pictures of the page go: the folder that TRIPTYCH_SCREENSHOTS names, else pytest's own."""
    named = os.environ.get("TRIPTYCH_SCREENSHOTS")
    folder = Path(named) if named else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@dataclass
class Visit:
    """The page in a browser.

    Attributes:
        page: of playwright.
        url: of the server.
        refusals: whether the browser's own lines about answers of 400 and above are expected.
        complaints: errors of scripts and of the console, which has what the policy forbids; other origins asked.
        asked: method and path of all requests.
    """

    page: Any
    url: str
    refusals: bool = False
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def ids(self) -> list[str]:
        """Return the ids on the tiles, in the order in which they are read."""
        return list(self.page.locator("#grid .tile .name > :first-child").all_inner_texts())

    def search(self, text: str) -> Any:
        """Say a text and search; returns the server's answer once it is shown."""
        self.page.fill("#text", text)
        return self.answered(lambda: self.page.press("#text", "Enter"))

    def answered(self, action: Callable[[], None]) -> Any:
        """Do something that searches; returns the server's answer once it is shown."""
        with self.page.expect_response("**/v1/search") as response:
            action()
        answer = response.value.json()
        best = answer["hits"][0]["score"] if answer.get("hits") else None
        if best is not None:
            self.until(f"document.querySelector('#grid .score')?.textContent === '{best:.3f}'")
        return answer

    def until(self, condition: str) -> None:
        """Wait until a condition holds; playwright's own way to do so is forbidden by the page's policy."""
        until = time.monotonic() + 30
        while not self.page.evaluate(condition):
            assert time.monotonic() < until, f"it did not come to be that {condition}"
            self.page.wait_for_timeout(20)

    def take(self, image_id: str) -> None:
        """Click a picture."""
        self.page.click(f'.take[aria-label^="Take {image_id} as"]')


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Visit]]:
    """``visit(url, size=(390, 844))``: the page in a window of its own; at the end nothing may have gone wrong."""
    with ExitStack() as stack:
        visits: list[Visit] = []

        def opened(
            url: str,
            *,
            size: tuple[int, int] = DESKTOP,
            address: str = "",
            refusals: bool = False,
            **settings: Any,
        ) -> Visit:
            context = browser.new_context(viewport={"width": size[0], "height": size[1]}, **settings)
            stack.callback(context.close)
            context.set_default_timeout(30_000)
            found = Visit(context.new_page(), url, refusals)
            visits.append(found)
            _listen(found)
            found.page.goto(address or url)
            return found

        yield opened
        for one in visits:
            assert one.complaints == []


def _listen(visit: Visit) -> None:
    def requested(request: Any) -> None:
        if request.url.startswith(visit.url):
            visit.asked.append(f"{request.method} {request.url.removeprefix(visit.url)}")
        else:
            visit.complaints.append(f"asked another origin: {request.url}")

    def said(line: Any) -> None:
        expected = visit.refusals and line.text.startswith("Failed to load resource")
        if line.type == "error" and not expected:
            visit.complaints.append(line.text)

    visit.page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    visit.page.on("console", said)
    visit.page.on("request", requested)
