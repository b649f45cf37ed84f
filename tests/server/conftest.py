"""A server in this process."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="session")
def fastapi() -> None:
    """Skip where the server's packages are not installed."""
    for package in ("fastapi", "multipart", "prometheus_client"):
        pytest.importorskip(package, reason='not installed; run: pip install "triptych[serve]"')


@pytest.fixture
def serve(fastapi: None, tiny_model: Any) -> Iterator[Callable[..., Any]]:
    """``serve(folder, in_flight=1)``: a client of a server with these limits."""
    from fastapi.testclient import TestClient

    from triptych.server.app import create_app
    from triptych.server.settings import ServerSettings

    with ExitStack() as stack:

        def client(folder: Path, **limits: Any) -> Any:
            settings = ServerSettings(**{"deadline": 120, "token": TOKEN, **limits})
            return stack.enter_context(TestClient(create_app(folder, settings, model=tiny_model)))

        yield client


@pytest.fixture(scope="module")
def client(fastapi: None, gallery_folder: Path, tiny_model: Any) -> Iterator[Any]:
    """A client of a server that nobody writes to."""
    from fastapi.testclient import TestClient

    from triptych.server.app import create_app
    from triptych.server.settings import ServerSettings

    app = create_app(gallery_folder, ServerSettings(deadline=120), model=tiny_model)
    with TestClient(app) as found:
        yield found


@pytest.fixture
def token() -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKEN}"}
