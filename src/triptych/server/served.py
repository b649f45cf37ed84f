"""How a route gets the service."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from triptych.server.service import Service


def service_of(request: Request) -> Service:
    """Return the service of the application that a request came to."""
    service: Service = request.app.state.service
    return service


Served = Annotated[Service, Depends(service_of)]
