"""Which region of the reference and which words a query vector was made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from triptych.backbones.preprocessing import seen_part
from triptych.errors import UsageError
from triptych.search.columns import HEIGHT, WIDTH
from triptych.search.embed_queries import encode_pictures, picture_key, prepare_query
from triptych.search.gallery_engine import GalleryEngine
from triptych.search.query import Query, Reference
from triptych.search.store import Snapshot
from triptych.training.query_attention import query_attention
from triptych.triplets.decoding import MAX_PIXELS, decode_image


@dataclass(frozen=True)
class Explanation:
    """Shares of what a query vector read of its picture and of its words.

    Attributes:
        regions: ``[rows, columns]`` shares of the picture's part, sum 1.
        part: where they lie on the picture: left, top, right, bottom in shares of its width and height; less than
            0 or more than 1 is padding that the model saw.
        words: each word of the text as the model read it, and its share of the words' part; sum 1.
    """

    regions: np.ndarray
    part: tuple[float, float, float, float]
    words: tuple[tuple[str, float], ...]


def explain(
    engine: GalleryEngine, query: Query, *, max_pixels: int = MAX_PIXELS, snapshot: Snapshot | None = None
) -> Explanation:
    """Follow the attention of the composing pass back to the picture and the words of a query's last turn.

    It shows where the model looked, not why. No other thread may use the engine's model meanwhile.

    Raises:
        UsageError: the turn is not one picture and one text, the picture is unknown, the model has no Q-Former, or its
            method composes in more than one pass.
        ImageError: the picture cannot be decoded.
    """
    now, model = snapshot or engine.snapshot, engine.model
    texts = [text for text in query.texts if text.words]
    if len(query.images) != 1 or len(texts) != 1:
        raise UsageError("attention is shown of one reference picture with one text")
    image, text = query.images[0], texts[0].words
    turn = Query(images=(image,), texts=(texts[0],))
    ready = prepare_query(turn, model, lambda ids: engine.stored(now, ids), max_pixels=max_pixels)
    tokens = encode_pictures([ready], model)[picture_key(image)]
    read = query_attention(model, tokens[None], [text])[0]
    width, height = _size(now, image, max_pixels)
    shares = _of_one(read.word_shares).tolist()
    return Explanation(
        _of_one(read.regions),
        seen_part(width, height, model.backbone.squared),
        tuple(zip(read.words, shares, strict=True)),
    )


def _size(snapshot: Snapshot, image: Reference, max_pixels: int) -> tuple[int, int]:
    if image.picture is not None:
        return decode_image(image.picture.data, image.picture.name, max_pixels=max_pixels).size
    row = snapshot.details(list(snapshot.rows_of([str(image.id)]).values()), [WIDTH, HEIGHT])[0]
    return int(row[WIDTH]), int(row[HEIGHT])


def _of_one(shares: np.ndarray) -> np.ndarray:
    """Scale shares to sum to 1; where there are none they stay."""
    total = shares.sum()
    return shares / total if total > 0 else shares
