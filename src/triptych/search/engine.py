"""Composed search over a gallery held in memory: exact, scored as in training and evaluation."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import normalize

from triptych.backbones.token_cache import Progress, TokenCache
from triptych.errors import DataError, UsageError
from triptych.evaluation import rank
from triptych.training.evaluate import scorer
from triptych.training.model import Model
from triptych.training.source import Source, open_model
from triptych.training.splits import find_split
from triptych.triplets import Benchmark, read_benchmark
from triptych.triplets.decoding import decode_image
from triptych.triplets.text import join_captions

_CHUNK = 256


@dataclass(frozen=True)
class Hit:
    """A picture that was found: its place from 1, its id, and its score in [-1, 1]."""

    rank: int
    image_id: str
    score: float


class SearchEngine:
    """A model and a gallery that is embedded once and searched many times.

    Args:
        model: what retrieves.
        data: where the pictures are.
        gallery: the ids of the pictures to search.
        cache: the token cache's folder; by default the user's cache folder.
        progress: called with (done, total) while image tokens are computed.

    Raises:
        DataError: the gallery is empty, or a picture cannot be read.
    """

    def __init__(
        self,
        model: Model,
        data: Benchmark,
        gallery: Sequence[str],
        *,
        cache: str | Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        if not gallery:
            raise DataError("there is no picture to search", file=data.path)
        self.model, self.data, self.gallery = model, data, tuple(gallery)
        self._cache = TokenCache(model.backbone, Path(cache) if cache else None)
        self._keys = self._cache.add_images(data.images, self.gallery, model.backbone, progress)
        rows = self._cache.rows([self._keys[image_id] for image_id in self.gallery])
        chunks = (rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK))
        self._targets = torch.cat([self._embed(self._cache.gather(chunk)) for chunk in chunks])  # [G, Q, D]

    def search(
        self,
        *,
        reference: str | Path | Image.Image | None = None,
        text: str = "",
        top: int = 10,
        exclude_reference: bool = True,
    ) -> list[Hit]:
        """Find the pictures that fit a reference picture as changed by a text.

        Args:
            reference: an image id of the data, the path of a picture, or a picture; None searches by text.
            text: what to change; empty searches by the picture alone.
            top: how many hits.
            exclude_reference: leave the reference itself out, and copies of its file.

        Returns:
            The hits, best first; fewer than ``top`` where the gallery is smaller.

        Raises:
            UsageError: neither reference nor text, no such reference, or ``top`` below 1.
            DataError: the reference cannot be read as a picture.
        """
        if top < 1:
            raise UsageError(f"the number of hits must be at least 1, not {top}")
        words = join_captions([text])
        if reference is None:
            if not words:
                raise UsageError("a search needs a reference picture, a text, or both")
            query, same = self._by_text(words), set[str]()
        else:
            tokens, key = self._read(reference)
            query = self.model.embed_queries(tokens, [words]) if words else self._by_image(tokens)
            same = {image_id for image_id, own in self._keys.items() if exclude_reference and own == key}
        found = rank(scorer(query.float().cpu(), self._targets), 1, len(self.gallery), top_k=top + len(same))
        hits = [
            (self.gallery[index], float(score))
            for index, score in zip(found.indices[0].tolist(), found.scores[0].tolist(), strict=True)
            if self.gallery[index] not in same
        ]
        return [Hit(place, image_id, score) for place, (image_id, score) in enumerate(hits[:top], 1)]

    def _read(self, reference: str | Path | Image.Image) -> tuple[Tensor, bytes | None]:
        """Return the tokens ``[1, P, V]`` of a reference and, where it has bytes, their key."""
        backbone = self.model.backbone
        if isinstance(reference, Image.Image):
            return self._encode(reference), None
        if isinstance(reference, str) and reference in self.data.images:
            key = self._cache.add_images(self.data.images, [reference], backbone)[reference]
            return self._cache.gather(self._cache.rows([key])).to(backbone.device), key
        path = Path(reference)
        if not path.is_file():
            example = f", such as {self.gallery[0]}" if self.gallery else ""
            raise UsageError(
                f'"{reference}" is neither an image id of {self.data.name} nor a file.\n'
                f"  Ids are the names of its pictures without ending{example}."
            )
        try:
            data = path.read_bytes()
        except OSError as error:
            raise DataError(f"the picture cannot be read ({error.strerror})", file=path) from error
        return self._encode(decode_image(data, str(path))), hashlib.sha256(data).digest()

    def _encode(self, image: Image.Image) -> Tensor:
        """Encode a picture and round it as the cache would."""
        backbone = self.model.backbone
        pixels = torch.from_numpy(backbone.preprocess(image.convert("RGB")))[None]
        return self._cache.rounded(backbone.encode_images(pixels.to(backbone.device)))

    @torch.inference_mode()
    def _embed(self, tokens: Tensor) -> Tensor:
        return self.model.embed_targets(tokens.to(self.model.backbone.device)).float().cpu()

    def _by_text(self, words: str) -> Tensor:
        return self.model.embed_texts([words])

    def _by_image(self, tokens: Tensor) -> Tensor:
        """Take the mean of the picture's own target vectors, ``[1, D]``."""
        return normalize(self._embed(tokens).mean(dim=1), dim=-1)


def gallery_of(data: Benchmark, *, split: str | None = None, category: str | None = None) -> tuple[str, ...]:
    """Return the ids of the pictures to search, each once.

    Args:
        data: the benchmark.
        split: only the galleries of this split; None takes every picture.
        category: only this category's: of the split, or of all splits and training triplets.

    Raises:
        UsageError: there is no such split or category.
    """
    if split is None and category is None:
        return data.images.ids
    parts = find_split(data, split) if split else [part for sets in data.splits.values() for part in sets]
    named: dict[str, list[str]] = {}
    for part in parts:
        named.setdefault(part.category, []).extend(part.gallery)
    if split is None:
        for triplet in data.train:
            own = named.setdefault(triplet.category, [])
            own.extend(image for image in (triplet.reference, triplet.target) if image is not None)
    if category is not None and category not in named:
        where = f"split {split} of {data.name}" if split else data.name
        known = ", ".join(sorted(named))
        raise UsageError(f'{where} has no category "{category}"; it has: {known or "none"}')
    chosen = named.values() if category is None else [named[category]]
    return tuple(dict.fromkeys(image_id for ids in chosen for image_id in ids))


def search(
    model: Source,
    data: Benchmark | str | Path,
    *,
    reference: str | Path | Image.Image | None = None,
    text: str = "",
    top: int = 10,
    split: str | None = None,
    category: str | None = None,
    checkpoint: str = "best",
    exclude_reference: bool = True,
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> list[Hit]:
    """Search the pictures of a benchmark once; :class:`SearchEngine` is for many searches.

    Args:
        model: a run, the folder of a run or a model, or a loaded model.
        data: a benchmark or its path.
        reference: an image id of the data, the path of a picture, or a picture; None searches by text alone.
        text: what to change; empty searches by the picture alone.
        top: how many hits.
        split: search the galleries of this split; None searches every picture.
        category: search this category alone.
        checkpoint: ``best`` or ``last`` model of a run.
        exclude_reference: leave the reference itself out, and copies of its file.
        cache: the token cache's folder; by default the user's cache folder.
        progress: called with (done, total) while image tokens are computed.

    Returns:
        The hits, best first.

    Raises:
        UsageError: neither reference nor text, or something that is named does not exist.
        DataError: the model, the data or the reference cannot be used.
    """
    if reference is None and not text.strip():
        raise UsageError("a search needs a reference picture, a text, or both")
    benchmark = data if isinstance(data, Benchmark) else read_benchmark(data)
    gallery = gallery_of(benchmark, split=split, category=category)
    opened = open_model(model, checkpoint=checkpoint)
    engine = SearchEngine(opened.model, benchmark, gallery, cache=cache, progress=progress)
    return engine.search(reference=reference, text=text, top=top, exclude_reference=exclude_reference)
