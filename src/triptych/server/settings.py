"""What a server allows, and for how long."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, SecretStr


class ServerSettings(BaseModel):
    """The limits of a server; each request that passes one is answered with a 4xx that names it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    upload_bytes: int = Field(20 * 2**20, ge=1024, description="of one picture, and of a whole request")
    pixels: int = Field(40_000_000, ge=1, description="of one picture")
    images: int = Field(8, ge=1, le=64, description="pictures in a request")
    in_flight: int = Field(64, ge=1, description="requests at once; more are answered 429")
    deadline: float = Field(10.0, gt=0, description="seconds for a request")
    batch: int = Field(32, ge=1, description="queries embedded together, at most")
    refresh: float = Field(1.0, gt=0, description="seconds between looks for a new version of the gallery")
    feedback_bytes: int = Field(2**30, ge=1024, description="of feedback.jsonl, at most")
    token: SecretStr | None = Field(
        None, description="who has it may add and remove images; None: nobody may"
    )
