"""Queries to query vectors, many at once: all pictures in one pass, all compositions in another."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from triptych.search.indexing import pool
from triptych.search.query import Query, Reference, Turn
from triptych.training.model import Model
from triptych.triplets.decoding import MAX_PIXELS, decode_image

Tokens = Callable[[Sequence[str]], dict[str, np.ndarray]]
"""Image ids to frozen tokens ``[P, V]`` or pixels ``[3, H, W]``; raises where one is not in the gallery."""

_TINY = 1e-6


@dataclass
class Ready:
    """A query whose pictures were read.

    Attributes:
        query: it.
        tokens: picture key to frozen tokens, for those that are known already.
        pixels: picture key to ``[3, H, W]`` pixels in [0, 1], for the others.
        hashes: content hashes of the pictures that came as bytes.
    """

    query: Query
    tokens: dict[str, Tensor] = field(default_factory=dict)
    pixels: dict[str, Tensor] = field(default_factory=dict)
    hashes: set[str] = field(default_factory=set)


def prepare_query(query: Query, model: Model, stored: Tokens, *, max_pixels: int = MAX_PIXELS) -> Ready:
    """Check a query and read its pictures.

    Raises:
        UsageError: it says nothing to search for, or names an image that is not in the gallery.
        ImageError: a picture cannot be decoded.
    """
    query.check()
    ready = Ready(query)
    ids = list(dict.fromkeys(image.id for image in query.references if image.id is not None))
    if ids:
        for image_id, found in stored(ids).items():
            kept = ready.tokens if found.ndim == 2 else ready.pixels
            kept[f"id:{image_id}"] = torch.from_numpy(np.array(found))
    for image in query.references:
        if image.picture is None:
            continue
        ready.hashes.add(hashlib.sha256(image.picture.data).hexdigest())
        key = picture_key(image)
        if key not in ready.pixels:
            decoded = decode_image(image.picture.data, image.picture.name, max_pixels=max_pixels)
            ready.pixels[key] = torch.from_numpy(model.backbone.preprocess(decoded))
    return ready


@torch.inference_mode()
def embed_queries(ready: Sequence[Ready], model: Model) -> Tensor:
    r"""Embed queries to ``[N, D]`` unit rows, float32 on the CPU.

    A turn is the weighted mean direction of its compositions, less what is not wanted, and earlier turns fade:

    .. math:: c = \mathrm{norm}\Bigl(\sum_{ij} w_i v_j\, c(R_i, T_j)\Bigr), \qquad
              c' = \mathrm{norm}\Bigl(c - \mu \sum_k u_k m_k\Bigr), \qquad
              q_n = \mathrm{norm}(c'_n + \gamma q_{n-1})

    with compositions :math:`c(R, T)`, texts alone where there is no picture and the mean of an image's own target
    vectors where there is no text; :math:`m_k` are the texts of the minus part, weights sum to 1, :math:`\mu` is
    ``minus_weight`` and :math:`\gamma` is ``carry``.
    """
    tokens = encode_pictures(ready, model)
    parts = _Parts(model, tokens)
    turns = [(turn, one.query) for one in ready for turn in one.query.turns]
    for turn, _ in turns:
        parts.want(turn)
    parts.compute()
    vectors = []
    for one in ready:
        vector: Tensor | None = None
        for turn in one.query.turns:
            now = parts.vector(turn, one.query.minus_weight)
            vector = now if vector is None else normalize(now + one.query.carry * vector, dim=-1)
        assert vector is not None
        vectors.append(vector)
    return torch.stack(vectors)


def encode_pictures(ready: Sequence[Ready], model: Model) -> dict[str, Tensor]:
    """Return the tokens ``[P, V]`` of every picture, as the gallery would hold them: in half precision."""
    backbone = model.backbone
    tokens: dict[str, Tensor] = {}
    pixels: dict[str, Tensor] = {}
    for one in ready:
        tokens.update(one.tokens)
        pixels.update(one.pixels)
    if pixels:
        encoded = backbone.encode_images(torch.stack(list(pixels.values())).to(backbone.device)).half()
        tokens.update(zip(pixels, encoded, strict=True))
    return {key: value.float().to(backbone.device) for key, value in tokens.items()}


class _Parts:
    """The vectors that turns are made of; each is computed once, all of a kind together."""

    def __init__(self, model: Model, tokens: dict[str, Tensor]) -> None:
        self.model, self.tokens = model, tokens
        self.composed: dict[tuple[str, str], Tensor] = {}
        self.pictures: dict[str, Tensor] = {}
        self.texts: dict[str, Tensor] = {}

    def want(self, turn: Turn) -> None:
        nothing = torch.empty(0)
        words = [text.words for text in turn.texts if text.words]
        for image in turn.images:
            for text in words:
                self.composed[picture_key(image), text] = nothing
            if not words:
                self.pictures[picture_key(image)] = nothing
        for text in words if not turn.images else ():
            self.texts[text] = nothing
        for part in turn.minus:
            if part.words:
                self.texts[part.words] = nothing

    def compute(self) -> None:
        if self.composed:
            pairs = list(self.composed)
            stacked = torch.stack([self.tokens[picture] for picture, _ in pairs])
            vectors = self.model.embed_queries(stacked, [text for _, text in pairs]).float().cpu()
            self.composed = dict(zip(pairs, vectors, strict=True))
        if self.pictures:
            stacked = torch.stack([self.tokens[key] for key in self.pictures])
            vectors = pool(self.model.embed_targets(stacked).float().cpu())
            self.pictures = dict(zip(self.pictures, vectors, strict=True))
        if self.texts:
            vectors = self.model.embed_texts(list(self.texts)).float().cpu()
            self.texts = dict(zip(self.texts, vectors, strict=True))

    def vector(self, turn: Turn, minus_weight: float) -> Tensor:
        texts = [text for text in turn.texts if text.words]
        if turn.images and texts:
            pairs = [
                (image.weight * text.weight, self.composed[picture_key(image), text.words])
                for image in turn.images
                for text in texts
            ]
        elif turn.images:
            pairs = [(image.weight, self.pictures[picture_key(image)]) for image in turn.images]
        else:
            pairs = [(text.weight, self.texts[text.words]) for text in texts]
        wanted = _mean(pairs)
        minus = [(text.weight, self.texts[text.words]) for text in turn.minus if text.words]
        if not minus:
            return wanted
        left = wanted - minus_weight * sum(
            (weight * vector for weight, vector in _shares(minus)), torch.zeros(())
        )
        return (
            wanted if float(left.norm()) < _TINY else normalize(left, dim=-1)
        )  # nothing would be left to search


def _mean(pairs: list[tuple[float, Tensor]]) -> Tensor:
    if len(pairs) == 1:
        return pairs[0][1]
    total = sum((weight * vector for weight, vector in _shares(pairs)), torch.zeros(()))
    return pairs[0][1] if float(total.norm()) < _TINY else normalize(total, dim=-1)


def _shares(pairs: list[tuple[float, Tensor]]) -> list[tuple[float, Tensor]]:
    total = sum(weight for weight, _ in pairs)
    return [(weight / total, vector) for weight, vector in pairs]


def picture_key(image: Reference) -> str:
    """Return what a picture is called among the pictures of a query."""
    if image.picture is None:
        return f"id:{image.id}"
    return f"bytes:{hashlib.sha256(image.picture.data).hexdigest()}"
