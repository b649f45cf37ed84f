"""What answers look like."""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field

from triptych.search.gallery_engine import Answer
from triptych.search.query import MAX_TEXT
from triptych.server.problems import finite


class ModelName(BaseModel):
    """The model that answers."""

    name: str
    fingerprint: str = Field(description="of its settings and weights")


class GalleryName(BaseModel):
    """The gallery that was searched."""

    version: int = Field(description="counts its changes")
    images: int


class HitBody(BaseModel):
    """An image that was found."""

    rank: int
    id: str
    score: float = Field(description="max_q <c, t_q>, in [-1, 1]")
    vector: int = Field(description="which of the image's target vectors won")
    width: int
    height: int
    thumbnail: str = Field(description="where its thumbnail is, on this server")
    metadata: dict[str, Any]


class SearchBody(BaseModel):
    """The answer to a search."""

    model: ModelName
    gallery: GalleryName
    method: Literal["exact", "approximate"]
    scored: int = Field(description="images that were scored exactly")
    milliseconds: float = Field(description="of finding, encoding apart")
    hits: list[HitBody]

    @classmethod
    def of(cls, answer: Answer) -> SearchBody:
        """Make the body of an engine's answer."""
        hits = [
            HitBody(
                rank=hit.rank,
                id=hit.image_id,
                score=hit.score,
                vector=hit.vector,
                width=hit.width,
                height=hit.height,
                thumbnail=thumbnail_path(hit.image_id),
                metadata=carried(hit.metadata),
            )
            for hit in answer.hits
        ]
        return cls(
            model=ModelName(name=answer.model, fingerprint=answer.fingerprint),
            gallery=GalleryName(version=answer.version, images=answer.images),
            method=answer.method,
            scored=answer.scored,
            milliseconds=round(answer.milliseconds, 3),
            hits=hits,
        )


class WrittenBody(BaseModel):
    """The answer to a change of the gallery."""

    model: ModelName
    gallery: GalleryName
    id: str
    outcome: Literal["added", "changed", "same", "removed"]


class FeedbackBody(BaseModel):
    """A choice: from this picture, with this text, that picture was meant, or was not."""

    model_config = ConfigDict(extra="forbid")

    reference: str = Field(
        min_length=1, max_length=512, description="id of the picture that was started from"
    )
    text: str = Field(min_length=1, max_length=MAX_TEXT, pattern=r"\S", description="what was to change")
    target: str = Field(min_length=1, max_length=512, description="id of the picture that was chosen")
    category: str | None = Field(None, min_length=1, max_length=100, pattern=r"\S")
    right: bool = Field(
        True, description="false: the target is wrong; such triplets are kept in another file, rejected.jsonl"
    )


class TakenBody(BaseModel):
    """Feedback was written to disk."""

    model: ModelName
    gallery: GalleryName
    triplet_id: str


class ReadyBody(BaseModel):
    """The server answers searches."""

    ready: Literal[True] = True
    model: ModelName
    gallery: GalleryName


class HealthBody(BaseModel):
    """The process is alive."""

    alive: Literal[True] = True


class ImageBody(BaseModel):
    """An image of the gallery."""

    id: str
    width: int
    height: int
    thumbnail: str = Field(description="where its thumbnail is, on this server")
    metadata: dict[str, Any]


class PageBody(BaseModel):
    """Some images of the gallery, in the order of their ids."""

    model: ModelName
    gallery: GalleryName
    total: int = Field(description="images that pass the filter, on all pages")
    after: str | None = Field(description="the id to ask the next page with; null on the last page")
    images: list[ImageBody]


class ValueBody(BaseModel):
    """A value of a column, and how many images have it."""

    value: str | bool
    images: int


class ColumnBody(BaseModel):
    """What a metadata column holds."""

    name: str
    kind: Literal["text", "number", "truth value"]
    values: list[ValueBody] = Field(description="the most common first, 40 at most; none for numbers")
    distinct: int = Field(description="different values; 0 for numbers")
    low: float | None = Field(description="the smallest number")
    high: float | None = Field(description="the largest number")
    missing: int = Field(description="images without a value")


class LimitsBody(BaseModel):
    """What a request may hold."""

    upload_bytes: int
    pixels: int
    images: int


class GalleryBody(BaseModel):
    """What there is to search, and what this server lets do with it."""

    model: ModelName
    gallery: GalleryName
    columns: list[ColumnBody]
    looked_at: int = Field(description="images that the columns were counted on; the first 100,000 at most")
    writable: bool = Field(description="whether who has the token may add and remove images")
    feedback_refused: str | None = Field(description="why no feedback is taken; null where it is")
    attention_refused: str | None = Field(description="why attention cannot be shown; null where it can")
    limits: LimitsBody


class WordBody(BaseModel):
    """A word of the text as the model read it, and its share."""

    word: str
    share: float


class AttentionBody(BaseModel):
    """Where the model looked when it composed a picture and a text."""

    model: ModelName
    gallery: GalleryName
    regions: list[list[float]] = Field(
        description="rows of shares, top to bottom, left to right; they sum to 1"
    )
    part: tuple[float, float, float, float] = Field(
        description="left, top, right, bottom of the regions in shares of the picture; outside [0, 1] is padding"
    )
    words: list[WordBody] = Field(description="in the text's order; shares sum to 1")


def thumbnail_path(image_id: str) -> str:
    """Return where an image's thumbnail is."""
    return f"/v1/images/{quote(image_id, safe='')}"


def carried(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return metadata that JSON can carry."""
    return {name: finite(value) for name, value in metadata.items()}
