"""The routes that a page needs beside searching: what there is, page by page, and what a query looked at."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Query, Request

from triptych.backbones.composer import QFormerBackbone
from triptych.search.browse import MAX_PAGE
from triptych.search.columns import MAX_ID
from triptych.search.facets import MAX_ROWS
from triptych.search.filters import MAX_LENGTH
from triptych.server.problems import responses
from triptych.server.requests import FORM_SCHEMA, read_query, request_body
from triptych.server.schemas import (
    AttentionBody,
    ColumnBody,
    GalleryBody,
    ImageBody,
    LimitsBody,
    PageBody,
    ValueBody,
    WordBody,
    carried,
    thumbnail_path,
)
from triptych.server.served import Served

After = Annotated[str | None, Query(max_length=MAX_ID, description="the id that the page before ended with")]
Skip = Annotated[int, Query(ge=0, le=2**40, description="images to pass over before the page starts")]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="images on the page")]
Where = Annotated[str | None, Query(max_length=MAX_LENGTH, description="a filter, such as price < 50")]

_ALWAYS = (400, 429, 503)


async def gallery(service: Served) -> GalleryBody:
    """Say what there is to search: columns with common values, and what this server allows."""
    found = await service.facets()
    columns = [
        ColumnBody(
            name=one.name,
            kind=one.kind,
            values=[ValueBody(value=value, images=count) for value, count in one.values],
            distinct=one.distinct,
            low=one.low,
            high=one.high,
            missing=one.missing,
        )
        for one in found
    ]
    settings = service.settings
    composes = isinstance(service.engine.model.backbone, QFormerBackbone)
    return GalleryBody(
        model=service.model,
        gallery=service.gallery,
        columns=columns,
        looked_at=min(service.gallery.images, MAX_ROWS),
        writable=settings.token is not None,
        feedback_refused=service.feedback_refusal(),
        attention_refused=None if composes else "the model composes without a Q-Former",
        limits=LimitsBody(upload_bytes=settings.upload_bytes, pixels=settings.pixels, images=settings.images),
    )


async def images(
    service: Served, after: After = None, skip: Skip = 0, limit: Limit = 50, where: Where = None
) -> PageBody:
    """List images in the order of their ids, a page at a time."""
    page = await service.page(after, skip, limit, where if where and where.strip() else None)
    return PageBody(
        model=service.model,
        gallery=service.gallery.model_copy(update={"version": page.version}),
        total=page.total,
        after=page.after,
        images=[
            ImageBody(
                id=one.image_id,
                width=one.width,
                height=one.height,
                thumbnail=thumbnail_path(one.image_id),
                metadata=carried(one.metadata),
            )
            for one in page.images
        ],
    )


async def attention(request: Request, service: Served) -> AttentionBody:
    """Show where the model looked on the last turn of a query: one picture and one text."""
    query = await read_query(request, service.settings)
    found = await service.explain(query)
    return AttentionBody(
        model=service.model,
        gallery=service.gallery,
        regions=[[round(share, 5) for share in row] for row in found.regions.tolist()],
        part=found.part,
        words=[WordBody(word=word, share=round(share, 5)) for word, share in found.words],
    )


def add_routes(app: FastAPI) -> None:
    """Add them to an application."""
    app.add_api_route(
        "/v1/gallery",
        gallery,
        methods=["GET"],
        response_model=GalleryBody,
        responses=responses(*_ALWAYS),
    )
    app.add_api_route(
        "/v1/images",
        images,
        methods=["GET"],
        response_model=PageBody,
        responses=responses(*_ALWAYS, 422),
    )
    app.add_api_route(
        "/v1/attention",
        attention,
        methods=["POST"],
        response_model=AttentionBody,
        responses=responses(*_ALWAYS, 404, 413, 415, 422),
        openapi_extra=request_body({"$ref": "#/components/schemas/Query"}, form=FORM_SCHEMA),
    )
