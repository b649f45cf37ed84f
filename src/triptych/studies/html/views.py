"""What the pages show, as plain data: no model, no files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from triptych.evaluation import Reference


@dataclass(frozen=True)
class Picture:
    """An image by its id; ``uri`` is from ``thumbnail_data_uri``, or None where the image cannot be read."""

    image_id: str
    uri: str | None = None


@dataclass(frozen=True)
class QueryView:
    """A query: the reference picture, what to change, and the picture that is meant, where it is known.

    ``reference`` is None in a search by text alone, ``text`` empty in one by picture alone.
    """

    reference: Picture | None
    text: str
    target: Picture | None = None


@dataclass(frozen=True)
class HitView:
    """A picture that was found, its score, and whether it is a right answer (None: not known)."""

    picture: Picture
    score: float
    right: bool | None = None


@dataclass(frozen=True)
class Answers:
    """What one model found for a query, best first.

    ``target_rank`` is the zero-based rank of the target among ``gallery_size`` images, where it is known.
    """

    label: str
    hits: tuple[HitView, ...]
    target_rank: int | None = None
    gallery_size: int | None = None


@dataclass(frozen=True)
class Comparison:
    """A query and what each model found for it."""

    query: QueryView
    answers: tuple[Answers, ...]


@dataclass(frozen=True)
class Figure:
    """A figure in percent, and the bounds of its interval, where they were computed."""

    value: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class ResultRow:
    """A line of the result table.

    Attributes:
        label: the method, or the kind of query.
        detail: which epoch, for example ``best (epoch 9)``; may be empty.
        figures: (metric, reference kept or removed) to the figure.
        context: whether it stands for comparison only, as image-only and text-only do.
    """

    label: str
    detail: str
    figures: Mapping[tuple[str, Reference], Figure]
    context: bool = False
