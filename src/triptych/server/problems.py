"""Every error as JSON that says what and why, with the right status."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException

from triptych.errors import DataError, TriptychError, UsageError
from triptych.search.feedback import FeedbackFullError
from triptych.search.gallery_engine import UnknownImageError
from triptych.search.lock import BusyError
from triptych.triplets.decoding import ImageError

_IMAGE_STATUS = {"missing": 404, "too_large": 413, "not_an_image": 415, "unsupported": 415}
"""By kind of :class:`ImageError`; the others (empty, truncated, unreadable) are 422."""

RETRY_SECONDS = 1


class Problem(BaseModel):
    """What an error's body says."""

    error: str = Field(description="a word for programs, such as not_an_image")
    message: str = Field(description="what is wrong and why, for people")
    mend: str | None = Field(None, description="what can be done")


class Refused(Exception):
    """A request that is answered with a problem."""

    def __init__(self, status: int, error: str, message: str, mend: str | None = None) -> None:
        super().__init__(message)
        self.status, self.problem = status, Problem(error=error, message=message, mend=mend)


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Document these statuses, each with a :class:`Problem`, for OpenAPI."""
    return {status: {"model": Problem, "description": _MEANING[status]} for status in statuses}


_MEANING = {
    400: "The request cannot be read.",
    401: "The token is missing or wrong.",
    403: "This server lets nobody write.",
    404: "There is no such image.",
    405: "The path has no such method.",
    409: "Another process is writing to the gallery.",
    413: "The request, a picture or the feedback file is too large.",
    415: "The content is of a kind that is not read.",
    422: "The request is understood, but cannot be answered as it is.",
    429: "Too many requests at once.",
    503: "Not in time, or not ready.",
}


def answer(status: int, problem: Problem) -> JSONResponse:
    """Make the response of a problem."""
    headers: dict[str, str] = {}
    if status in (409, 429, 503):
        headers["Retry-After"] = str(RETRY_SECONDS)
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(problem.model_dump(), status, headers)


def refusal_of(error: TriptychError) -> Refused:
    """Turn an error of ours into a status and a problem; paths of the server's disk are not told."""
    if isinstance(error, UnknownImageError):
        return Refused(404, "unknown_image", str(error))
    if isinstance(error, ImageError):
        status = _IMAGE_STATUS.get(error.kind, 422)
        return Refused(status, error.kind, f"{error.file}: {error.problem}", error.mend)
    if isinstance(error, FeedbackFullError):
        return Refused(413, "feedback_full", error.problem)
    if isinstance(error, BusyError):
        return Refused(409, "busy", "another process is writing to the gallery", "Try again.")
    if isinstance(error, UsageError):
        first, _, mend = str(error).partition("\n")
        return Refused(422, "unusable_query", first, mend.strip() or None)
    if isinstance(error, DataError):
        return Refused(503, "gallery", error.problem, error.mend)
    return Refused(503, "gallery", "the gallery cannot be used")


def validation(error: ValidationError | RequestValidationError, where: str = "") -> Refused:
    """Say which field of a request is wrong."""
    lines = []
    for problem in list(error.errors())[:5]:
        field = ".".join(map(str, (part for part in problem["loc"] if part != "body")))
        shown = f" (got {_short(problem['input'])})" if "input" in problem and field else ""
        lines.append(f"{where}{field or 'request'}: {problem['msg'].removeprefix('Value error, ')}{shown}")
    broken = any(problem["type"] in ("json_invalid", "json_type") for problem in error.errors())
    return Refused(400 if broken else 422, "not_json" if broken else "invalid", "; ".join(lines))


def install(app: FastAPI) -> None:
    """Answer every error with a :class:`Problem`."""

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> JSONResponse:
        return answer(error.status, error.problem)

    @app.exception_handler(TriptychError)
    async def ours(_: Request, error: TriptychError) -> JSONResponse:
        return await refused(_, refusal_of(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return await refused(_, validation(error))

    @app.exception_handler(Exception)
    async def fault(_: Request, error: Exception) -> JSONResponse:  # it is logged, with its traceback
        return answer(500, Problem(error="fault", message="the server made a mistake; its log says more"))

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        words: Mapping[int, str] = {404: "no_such_path", 405: "no_such_method", 413: "too_large"}
        name = words.get(error.status_code, "bad_request")
        problem = Problem(error=name, message=str(error.detail))
        response = answer(error.status_code, problem)
        response.headers.update(error.headers or {})
        return response


def finite(value: Any) -> Any:
    """Return a value that JSON can carry: no NaN or infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
