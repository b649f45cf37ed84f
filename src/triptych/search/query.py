"""Query: what is searched for; the same in Python, on the command line and over HTTP."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, InstanceOf
from pydantic.json_schema import SkipJsonSchema

from triptych.errors import DataError, UsageError
from triptych.triplets.text import join_captions

MAX_TEXT = 2_000
"""Characters of one text, at most; a model reads about 50 words of it."""

MAX_PARTS, MAX_TURNS, MAX_TOP = 8, 16, 1_000

Weight = Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class PictureBytes:
    """The bytes of a picture, and what messages call it."""

    data: bytes = field(repr=False)
    name: str = "the picture"


class Reference(_Frozen):
    """A picture of a query: an image of the gallery by its id, a file of the form, or bytes; never a path or URL."""

    id: str | None = Field(None, min_length=1, max_length=512, description="an image of the gallery")
    upload: int | None = Field(None, ge=0, lt=64, description="which file of the form, counted from 0")
    weight: Weight = Field(1.0, description="share among the pictures")
    picture: SkipJsonSchema[InstanceOf[PictureBytes] | None] = Field(None, exclude=True)
    """What JSON cannot give: Python, the command line and the server put bytes here."""

    @classmethod
    def file(cls, path: str | Path, *, weight: float = 1.0) -> Reference:
        """Read a picture from disk, which only Python and the command line do.

        Raises:
            UsageError: there is no such file.
            DataError: it cannot be read.
        """
        path = Path(path)
        if not path.is_file():
            raise UsageError(f"{path}: there is no such picture")
        try:
            return cls(picture=PictureBytes(path.read_bytes(), str(path)), weight=weight)
        except OSError as error:
            raise DataError(f"the picture cannot be read ({error.strerror})", file=path) from error


class Text(_Frozen):
    """A text of a query and its share among the texts."""

    text: str = Field(max_length=MAX_TEXT)
    weight: Weight = 1.0

    @property
    def words(self) -> str:
        """The text as models read it: cleaned as in training and evaluation; may be empty."""
        return join_captions([self.text])


class Turn(_Frozen):
    """One turn of a search: pictures, what to change, and what not to show.

    With several pictures and texts, every picture is composed with every text, and the query is their weighted
    mean: texts that belong together, as "red" and "with long sleeves", are better written as one.
    """

    images: tuple[Reference, ...] = Field((), max_length=MAX_PARTS, description="reference pictures")
    texts: tuple[Text, ...] = Field((), max_length=MAX_PARTS, description="what to change, or what to find")
    minus: tuple[Text, ...] = Field(
        (), max_length=MAX_PARTS, description='what is not wanted, such as "striped"'
    )

    @property
    def empty(self) -> bool:
        """Whether it says nothing to search for."""
        return not self.images and not any(text.words for text in self.texts)


class Query(Turn):
    """A search: a turn, the turns before it, a filter, and how many hits.

    Example:
        >>> query = Query.of(text="a red dress", where="price < 50")
        >>> darker = query.then(image="10023", text="but darker")
        >>> len(darker.before), darker.where
        (1, 'price < 50')
    """

    before: tuple[Turn, ...] = Field((), max_length=MAX_TURNS, description="the turns before, oldest first")
    carry: float = Field(
        0.3, ge=0, le=1, description="what a turn weighs beside the next one", allow_inf_nan=False
    )
    minus_weight: float = Field(
        0.5, ge=0, le=2, description="how strongly the unwanted is pushed away", allow_inf_nan=False
    )
    where: str | None = Field(None, max_length=4_000, description="a filter, such as category = 'shoes'")
    top: int = Field(10, ge=1, le=MAX_TOP, description="how many hits")
    keep_references: bool = Field(False, description="let the reference pictures themselves be hits")

    @classmethod
    def of(
        cls,
        *,
        image: Reference | str | Path | bytes | None = None,
        text: str = "",
        minus: str = "",
        **rest: Any,
    ) -> Query:
        """Make a query of one picture, one text and one unwanted thing; a string is an id, a path a file."""
        images = () if image is None else (reference(image),)
        return cls(images=images, texts=_texts(text), minus=_texts(minus), **rest)

    def then(
        self, *, image: Reference | str | Path | bytes | None = None, text: str = "", minus: str = ""
    ) -> Query:
        """Make the next turn: "more like this, but ..."; filter and settings stay, and what was said before counts."""
        said = Turn(images=self.images, texts=self.texts, minus=self.minus)
        images = () if image is None else (reference(image),)
        changes = {
            "images": images,
            "texts": _texts(text),
            "minus": _texts(minus),
            "before": (*self.before, said)[-MAX_TURNS:],
        }
        return self.model_copy(update=changes)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All turns, oldest first; this one is the last."""
        return (*self.before, self)

    @property
    def references(self) -> tuple[Reference, ...]:
        """The pictures of all turns."""
        return tuple(image for turn in self.turns for image in turn.images)

    def check(self) -> None:
        """Refuse a query that says nothing.

        Raises:
            UsageError: a turn has neither a picture nor a text, or a picture is neither an id nor bytes.
        """
        for number, turn in enumerate(self.turns, 1):
            if turn.empty:
                which = f" (turn {number} has neither)" if self.before else ""
                raise UsageError(f"a search needs a reference picture, a text, or both{which}")
        for image in self.references:
            if image.picture is None and image.upload is not None:
                raise UsageError(f"there is no file {image.upload} with the request")
            if (image.id is None) == (image.picture is None):
                raise UsageError("a reference picture is either the id of an image or a file")


def reference(image: Reference | str | Path | bytes) -> Reference:
    """Make a reference: of an id (a string), a file (a path) or bytes."""
    if isinstance(image, Reference):
        return image
    if isinstance(image, bytes):
        return Reference(picture=PictureBytes(image))
    return Reference(id=image) if isinstance(image, str) else Reference.file(image)


def _texts(text: str) -> tuple[Text, ...]:
    return (Text(text=text),) if text.strip() else ()
