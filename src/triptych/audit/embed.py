"""Vectors of pictures, texts and queries by one model, in pieces; texts of like length together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import normalize

from triptych.backbones.token_cache import TokenCache
from triptych.training.model import Model

IntArray = npt.NDArray[np.int64]
Told = Callable[[int], None]

_CHUNK = 128


class Embedder:
    """A model with the tokens that it reads.

    Attributes:
        images: ``[I, Q, D]`` the target vectors of all pictures, unit rows.
        looks: ``[I, D]`` one vector a picture, the mean of its target vectors, centred, unit rows.
        words: ``[U, D]`` the vectors of all texts by themselves, unit rows.

    Args:
        model: in eval mode.
        cache: holds the tokens of all pictures.
        keys: image id to cache key.
        images: the ids of all pictures, in the order of their numbers.
        texts: all texts, in the order of their numbers.
        told: called with how many passes of a picture or text were made.
    """

    def __init__(
        self,
        model: Model,
        cache: TokenCache,
        keys: Mapping[str, bytes],
        images: Sequence[str],
        texts: Sequence[str],
        told: Told = lambda count: None,
    ) -> None:
        self.model, self.cache, self.texts, self.told = model, cache, texts, told
        self._rows = cache.rows([keys[name] for name in images])
        model.backbone.prepare_texts(texts)
        self._lengths = np.array([len(text) for text in texts])
        self.images = torch.cat([self._targets(start) for start in range(0, len(images), _CHUNK)])
        means = self.images.mean(dim=1)
        self.looks = normalize(means - means.mean(dim=0), dim=-1)
        self.words = self._in_order(self._lengths, lambda at: model.embed_texts([texts[i] for i in at]))

    def queries(self, references: IntArray, texts: IntArray) -> Tensor:
        """Compose pictures with texts, both by number: ``[M]`` and ``[M]`` to ``[M, D]``, unit rows."""

        def compose(at: IntArray) -> Tensor:
            tokens = self.cache.gather(self._rows[references[at]]).to(self.model.backbone.device)
            return self.model.embed_queries(tokens, [self.texts[i] for i in texts[at]])

        return self._in_order(self._lengths[texts], compose)

    def queries_of_average(self, texts: IntArray) -> Tensor:
        """Compose the average picture with texts, by number: ``[M]`` to ``[M, D]``; each text is read once."""
        different, back = np.unique(texts, return_inverse=True)
        step = max(1, len(self._rows) // 512)
        mean = self.cache.gather(self._rows[::step]).mean(dim=0).to(self.model.backbone.device)

        def compose(at: IntArray) -> Tensor:
            tokens = mean.expand(len(at), -1, -1)
            return self.model.embed_queries(tokens, [self.texts[i] for i in different[at]])

        return self._in_order(self._lengths[different], compose)[torch.from_numpy(back)]

    def _targets(self, start: int) -> Tensor:
        tokens = self.cache.gather(self._rows[start : start + _CHUNK]).to(self.model.backbone.device)
        self.told(len(tokens))
        return self.model.embed_targets(tokens).float().cpu()

    def _in_order(self, lengths: IntArray, embed: Callable[[IntArray], Tensor]) -> Tensor:
        """Embed the shortest texts first, which pads least, and put them back in order."""
        order = np.argsort(lengths, kind="stable")
        parts = []
        for start in range(0, len(order), _CHUNK):
            chosen = order[start : start + _CHUNK]
            parts.append(embed(chosen).float().cpu())
            self.told(len(chosen))
        if not parts:
            return torch.empty(0, self.images.shape[-1])
        vectors = torch.cat(parts)
        back = torch.empty(len(order), dtype=torch.long)
        back[torch.from_numpy(order)] = torch.arange(len(order))
        return vectors[back]
