"""A search request to a Query: JSON, or a form with files. Requests hold ids and bytes, never paths or URLs."""

from __future__ import annotations

from typing import Any, TypeVar

from fastapi import Request
from pydantic import ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException

from triptych.search.query import MAX_PARTS, PictureBytes, Query, Reference, Turn
from triptych.server.problems import Refused, validation
from triptych.server.settings import ServerSettings

Said = TypeVar("Said", bound=Turn)

_FIELDS = ("query", "image", "id", "text", "minus", "where", "top")

FORM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "query": {
            "type": "string",
            "description": "A whole query as JSON; its pictures with `upload` are the files, counted from 0."
            " Without it the other fields make one.",
            "contentMediaType": "application/json",
        },
        "image": {
            "type": "array",
            "items": {"type": "string", "format": "binary"},
            "description": "Reference pictures.",
        },
        "id": {"type": "array", "items": {"type": "string"}, "description": "Reference pictures by id."},
        "text": {"type": "array", "items": {"type": "string"}, "description": "What to change."},
        "minus": {"type": "array", "items": {"type": "string"}, "description": "What is not wanted."},
        "where": {"type": "string", "description": "A filter, such as category = 'shoes' AND price < 50."},
        "top": {"type": "integer", "minimum": 1, "maximum": 1000},
    },
}


async def read_query(request: Request, settings: ServerSettings) -> Query:
    """Read a search from a request's body.

    Raises:
        Refused: it cannot be read, is of another kind, or does not fit.
    """
    kind = _kind(request)
    if kind == "application/json":
        return _parsed(await request.body())
    if kind != "multipart/form-data":
        raise Refused(
            415,
            "unsupported_content",
            f'a search is application/json or multipart/form-data, not "{kind[:60]}"',
        )
    form = await read_form(request, settings)
    files = [value for value in form.getlist("image") if isinstance(value, UploadFile)]
    pictures = [PictureBytes(await _bytes(file, settings), file.filename or "the picture") for file in files]
    texts = {name: _strings(form, name) for name in _FIELDS if name != "image"}
    if texts["query"]:
        others = [name for name in _FIELDS[2:] if texts[name]]
        if others or len(texts["query"]) > 1:
            raise Refused(
                422, "invalid", f'"query" is a whole query: leave out {", ".join(others) or "the others"}'
            )
        return _filled(_parsed(texts["query"][0].encode("utf-8", "replace")), pictures)
    return _of_fields(texts, pictures)


async def read_form(request: Request, settings: ServerSettings) -> FormData:
    """Read a form with files.

    Raises:
        Refused: it is broken, or has too many files, fields or bytes.
    """
    if _kind(request) != "multipart/form-data":
        raise Refused(415, "unsupported_content", "a form of multipart/form-data is expected")
    try:
        return await request.form(max_files=settings.images, max_fields=64, max_part_size=64 * 1024)
    except HTTPException as error:
        if error.status_code == 413:
            raise
        raise Refused(400, "broken_form", f"the form cannot be read: {error.detail}") from error
    except (ValueError, KeyError, UnicodeError, LookupError) as error:
        raise Refused(400, "broken_form", f"the form cannot be read: {error}") from error


async def read_picture(form: FormData, settings: ServerSettings) -> PictureBytes:
    """Take the one picture of a form.

    Raises:
        Refused: there is none, more than one, or it is too large.
    """
    files = [value for value in form.getlist("image") if isinstance(value, UploadFile)]
    if len(files) != 1:
        raise Refused(422, "invalid", f"image: one file is expected, there are {len(files)}")
    return PictureBytes(await _bytes(files[0], settings), files[0].filename or "the picture")


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _bytes(file: UploadFile, settings: ServerSettings) -> bytes:
    data = await file.read(settings.upload_bytes + 1)
    if len(data) > settings.upload_bytes:
        raise Refused(413, "too_large", f"the picture has more than {settings.upload_bytes:,} bytes")
    return data


def _strings(form: FormData, name: str) -> list[str]:
    return [value for value in form.getlist(name) if isinstance(value, str)]


def _parsed(body: bytes) -> Query:
    try:
        query = Query.model_validate_json(body)
    except ValidationError as error:
        raise validation(error) from error
    if any(image.picture is not None for image in query.references):
        raise Refused(422, "invalid", "images: JSON cannot give a picture; send it as a file of a form")
    return query


def _of_fields(texts: dict[str, list[str]], pictures: list[PictureBytes]) -> Query:
    for name in ("where", "top"):
        if len(texts[name]) > 1:
            raise Refused(422, "invalid", f"{name}: give it once")
    values: dict[str, Any] = {
        "images": [
            *({"upload": number} for number in range(len(pictures))),
            *({"id": image_id} for image_id in texts["id"]),
        ],
        "texts": [{"text": text} for text in texts["text"] if text.strip()],
        "minus": [{"text": text} for text in texts["minus"] if text.strip()],
    }
    if len(values["images"]) > MAX_PARTS:
        raise Refused(422, "invalid", f"images: at most {MAX_PARTS} pictures make a query")
    values.update(
        {name: texts[name][0] for name in ("where", "top") if texts[name] and texts[name][0].strip()}
    )
    try:
        return _filled(Query.model_validate(values), pictures)
    except ValidationError as error:
        raise validation(error) from error


def _filled(query: Query, pictures: list[PictureBytes]) -> Query:
    """Put the files where the query names them."""

    def image(one: Reference) -> Reference:
        if one.upload is None or one.upload >= len(pictures):
            return one  # a file that is not there is refused when the query is checked
        return one.model_copy(update={"picture": pictures[one.upload]})

    def turn(one: Said) -> Said:
        return one.model_copy(update={"images": tuple(map(image, one.images))})

    return turn(query).model_copy(update={"before": tuple(map(turn, query.before))})


def components() -> dict[str, Any]:
    """Return the schemas of a query, for OpenAPI."""
    schema = Query.model_json_schema(ref_template="#/components/schemas/{model}")
    return {**schema.pop("$defs", {}), "Query": schema}


def request_body(json_schema: dict[str, Any] | None, *, form: dict[str, Any]) -> dict[str, Any]:
    """Describe a body that is a form, or JSON too, for OpenAPI."""
    content: dict[str, Any] = {"multipart/form-data": {"schema": form}}
    if json_schema:
        content["application/json"] = {"schema": json_schema}
    return {"requestBody": {"required": True, "content": content}}
