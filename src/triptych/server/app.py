"""The routes: searching for everybody, writing for who has the token."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi import Path as PathParameter
from fastapi.responses import PlainTextResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST

from triptych.search.columns import MAX_ID
from triptych.search.gallery import Gallery
from triptych.search.gallery_engine import GalleryEngine
from triptych.server import explore, problems, static_page
from triptych.server.limits import Gate
from triptych.server.metrics import Metrics
from triptych.server.problems import Refused, responses
from triptych.server.requests import (
    FORM_SCHEMA,
    components,
    read_form,
    read_picture,
    read_query,
    request_body,
)
from triptych.server.schemas import (
    FeedbackBody,
    HealthBody,
    ReadyBody,
    SearchBody,
    TakenBody,
    WrittenBody,
)
from triptych.server.served import Served
from triptych.server.service import Service
from triptych.server.settings import ServerSettings
from triptych.training.model import Model

_ALWAYS = (400, 429, 503)
ImageId = Annotated[str, PathParameter(min_length=1, max_length=MAX_ID)]
_bearer = HTTPBearer(auto_error=False, description="the token of `triptych serve --token-file`")


def create_app(
    gallery: Gallery | GalleryEngine | str | Path,
    settings: ServerSettings | None = None,
    *,
    model: Model | None = None,
) -> FastAPI:
    """Make the application of a gallery; the model is loaded here, once.

    Args:
        gallery: a gallery, its folder, or an engine.
        settings: the limits.
        model: the gallery's model, where it is loaded already.

    Raises:
        UsageError: there is no gallery.
        DataError: it is damaged, or was made by another model.
    """
    settings = settings or ServerSettings()
    engine = gallery if isinstance(gallery, GalleryEngine) else GalleryEngine(gallery, model=model)
    _ = engine.model  # loaded now, not in the first request
    metrics = Metrics()
    service = Service(engine, settings, metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await service.stop()

    app = FastAPI(
        title="Triptych",
        version=_version(),
        summary="Composed image search: a picture and a sentence find pictures.",
        lifespan=lifespan,
        docs_url=None,  # its pages load scripts from elsewhere
        redoc_url=None,
    )
    app.state.service = service
    app.add_middleware(Gate, settings=settings, metrics=metrics)
    problems.install(app)
    _add_routes(app)
    explore.add_routes(app)
    static_page.add_page(app)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]  # FastAPI's own way to change the document
    return app


def allowed(
    service: Served,
    given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> None:
    """Let only those write who have the token."""
    token = service.settings.token
    if token is None:
        text = "this server lets nobody write"
        raise Refused(403, "read_only", text, "Start it with `triptych serve --token-file FILE`.")
    if given is None or not hmac.compare_digest(
        given.credentials.encode("utf-8", "replace"), token.get_secret_value().encode()
    ):
        raise Refused(
            401, "unauthorized", "the token is missing or wrong", "Send Authorization: Bearer TOKEN."
        )


async def search(request: Request, service: Served) -> SearchBody:
    """Find the images that fit pictures and texts; JSON with image ids, or a form with files."""
    query = await read_query(request, service.settings)
    return SearchBody.of(await service.search(query))


async def thumbnail(image_id: ImageId, service: Served, request: Request) -> Response:
    """Return an image's thumbnail; whoever has it already is told that it is the same (304)."""
    data = await service.thumbnail(image_id)
    tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
    headers = {"Cache-Control": "no-cache", "ETag": tag, "X-Gallery-Version": str(service.gallery.version)}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(data, media_type="image/jpeg", headers=headers)


async def add_image(request: Request, service: Served) -> WrittenBody:
    """Embed a picture and add it, or replace the one of that id; when it is answered, it is on disk."""
    form = await read_form(request, service.settings)
    picture = await read_picture(form, service.settings)
    given, metadata = _only(form.getlist("id"), "id"), _only(form.getlist("metadata"), "metadata")
    image_id = given or hashlib.sha256(picture.data).hexdigest()[:32]
    outcome = await service.add(image_id, picture.data, picture.name, _metadata(metadata))
    return WrittenBody(model=service.model, gallery=service.gallery, id=image_id, outcome=outcome)


async def remove_image(image_id: ImageId, service: Served) -> WrittenBody:
    """Remove an image; when it is answered, that is on disk."""
    await service.remove(image_id)
    return WrittenBody(model=service.model, gallery=service.gallery, id=image_id, outcome="removed")


async def feedback(body: FeedbackBody, service: Served) -> TakenBody:
    """Take a choice as a training triplet; when it is answered, it is on disk."""
    triplet_id = await service.feedback(
        body.reference, body.text, body.target, body.category, right=body.right
    )
    return TakenBody(model=service.model, gallery=service.gallery, triplet_id=triplet_id)


async def health() -> HealthBody:
    """Say that the process is alive."""
    return HealthBody()


async def ready(service: Served) -> ReadyBody:
    """Say whether searches are answered."""
    if not service.ready:
        raise Refused(503, "not_ready", "the server is not ready yet")
    return ReadyBody(model=service.model, gallery=service.gallery)


async def metrics(service: Served) -> PlainTextResponse:
    """Return what Prometheus reads."""
    return PlainTextResponse(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)


def _add_routes(app: FastAPI) -> None:
    written: dict[str, Any] = {"dependencies": [Depends(allowed)], "response_model": WrittenBody}
    app.add_api_route(
        "/v1/search",
        search,
        methods=["POST"],
        response_model=SearchBody,
        responses=responses(*_ALWAYS, 404, 413, 415, 422),
        openapi_extra=request_body({"$ref": "#/components/schemas/Query"}, form=FORM_SCHEMA),
    )
    app.add_api_route(
        "/v1/images/{image_id:path}",
        thumbnail,
        methods=["GET"],
        response_class=Response,
        responses={
            200: {"content": {"image/jpeg": {}}},
            304: {"description": "The thumbnail that the request's If-None-Match names is the current one."},
            **responses(*_ALWAYS, 404, 422),
        },
    )
    app.add_api_route(
        "/v1/images",
        add_image,
        methods=["POST"],
        responses=responses(*_ALWAYS, 401, 403, 409, 413, 415, 422),
        openapi_extra=request_body(None, form=_IMAGE_FORM),
        **written,
    )
    app.add_api_route(
        "/v1/images/{image_id:path}",
        remove_image,
        methods=["DELETE"],
        responses=responses(*_ALWAYS, 401, 403, 404, 409, 422),
        **written,
    )
    app.add_api_route(
        "/v1/feedback",
        feedback,
        methods=["POST"],
        response_model=TakenBody,
        responses=responses(*_ALWAYS, 404, 413, 422),
    )
    app.add_api_route("/health", health, methods=["GET"], response_model=HealthBody)
    app.add_api_route("/ready", ready, methods=["GET"], response_model=ReadyBody, responses=responses(503))
    app.add_api_route("/metrics", metrics, methods=["GET"], response_class=PlainTextResponse)


_IMAGE_FORM: dict[str, Any] = {
    "type": "object",
    "required": ["image"],
    "properties": {
        "image": {"type": "string", "format": "binary", "description": "The picture."},
        "id": {
            "type": "string",
            "maxLength": MAX_ID,
            "description": "Its id; by default made of its content.",
        },
        "metadata": {
            "type": "string",
            "contentMediaType": "application/json",
            "description": "A JSON object of metadata columns that the gallery has.",
        },
    },
}


def _only(values: list[Any], name: str) -> str | None:
    texts = [value for value in values if isinstance(value, str) and value]
    if len(texts) > 1:
        raise Refused(422, "invalid", f"{name}: give it once")
    return texts[0] if texts else None


def _metadata(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(422, "not_json", f"metadata: not valid JSON ({error})") from None
    if not isinstance(found, dict):
        raise Refused(422, "invalid", "metadata: a JSON object is expected")
    return found


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = FastAPI.openapi(app)
        document.setdefault("components", {}).setdefault("schemas", {}).update(components())
        app.openapi_schema = document
    return app.openapi_schema


def _version() -> str:
    from triptych import __version__

    return __version__
