"""The page: static files of this package, with headers that let it load and call nothing but this server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles
from starlette.datastructures import MutableHeaders
from starlette.responses import FileResponse, Response

FOLDER = Path(__file__).parent / "page"

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
"""The Content-Security-Policy: no inline script or style, no eval, no other origin, no frame around it."""

_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # asked again, and answered 304 while it is the same
}


class _Files(StaticFiles):
    def file_response(self, *arguments: Any, **named: Any) -> Response:
        response = super().file_response(*arguments, **named)
        _protect(response.headers)
        return response


def add_page(app: FastAPI) -> None:
    """Serve the page at ``/``, and its files below ``/page``."""
    app.add_api_route("/", index, methods=["GET"], include_in_schema=False)
    app.mount("/page", _Files(directory=FOLDER), name="page")


async def index() -> FileResponse:
    """Return the page."""
    response = FileResponse(FOLDER / "index.html", media_type="text/html; charset=utf-8")
    _protect(response.headers)
    return response


def _protect(headers: MutableHeaders) -> None:
    headers.update(_HEADERS)
