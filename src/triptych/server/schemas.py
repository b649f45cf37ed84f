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
                thumbnail=f"/v1/images/{quote(hit.image_id, safe='')}",
                metadata={name: finite(value) for name, value in hit.metadata.items()},
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
    """A choice: from this picture, with this text, that picture was meant."""

    model_config = ConfigDict(extra="forbid")

    reference: str = Field(
        min_length=1, max_length=512, description="id of the picture that was started from"
    )
    text: str = Field(min_length=1, max_length=MAX_TEXT, pattern=r"\S", description="what was to change")
    target: str = Field(min_length=1, max_length=512, description="id of the picture that was chosen")
    category: str | None = Field(None, min_length=1, max_length=100, pattern=r"\S")


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
