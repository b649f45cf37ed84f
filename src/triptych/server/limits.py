"""The gate in front of every request: how many at once, how large, how long; and what is counted of them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from triptych.server.metrics import Metrics
from triptych.server.problems import Problem, answer
from triptych.server.settings import ServerSettings

_OPEN = ("/health", "/ready", "/metrics")
"""What is always answered, however busy the server is."""

_FORM_BYTES = 64 * 1024
"""What a form may hold beside its pictures."""


class Gate:
    """ASGI middleware that refuses what is too much before it costs anything.

    More requests at once than allowed are answered 429 with ``Retry-After``, larger ones 413, slower ones 503.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self.in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] != "http" or scope["path"] in _OPEN:
            await self.app(scope, receive, send)
            return
        started, seen = time.perf_counter(), _Seen(send)
        if self.in_flight >= self.settings.in_flight:
            text = f"{self.in_flight} requests are being answered, which is all this server does at once"
            await self._refuse(429, "too_many_requests", text, scope, receive, seen.send)
            self.metrics.count(scope, seen.status, time.perf_counter() - started)
            return
        self.in_flight += 1
        self.metrics.in_flight.set(self.in_flight)
        try:
            await asyncio.wait_for(self._limited(scope, receive, seen), self.settings.deadline)
        except (asyncio.TimeoutError, TimeoutError):
            text = f"the request took longer than {self.settings.deadline:g} s"
            if not seen.started:
                await self._refuse(503, "deadline", text, scope, receive, send)
                seen.status = 503
        finally:
            self.in_flight -= 1
            self.metrics.in_flight.set(self.in_flight)
            self.metrics.count(scope, seen.status, time.perf_counter() - started)

    async def _limited(self, scope: Scope, receive: Receive, seen: _Seen) -> None:
        most = self.settings.upload_bytes + _FORM_BYTES
        text = f"the request has more than {most:,} bytes"
        headers = {name.lower(): value for name, value in scope["headers"]}
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > most:
            await self._refuse(413, "too_large", text, scope, receive, seen.send)
            return
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > most:
                raise HTTPException(413, text)
            return message

        await self.app(scope, counted, seen.send)

    async def _refuse(
        self, status: int, error: str, text: str, scope: Scope, receive: Receive, send: Any
    ) -> None:
        await answer(status, Problem(error=error, message=text))(scope, receive, send)


class _Seen:
    """Passes a response on and remembers its status."""

    def __init__(self, send: Send) -> None:
        self._send, self.status, self.started = send, 500, False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.started = message["status"], True
        await self._send(message)
