"""The Q-Former composer: every pass of the specification on transformers' ``Blip2QFormerModel``, at any size."""

from __future__ import annotations

import abc
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, pad
from transformers import Blip2QFormerConfig, Blip2QFormerModel

from triptych.backbones.base import Backbone, BackboneShape, Composed

_LENGTH_GROUPS, _SMALLEST_GROUP = 4, 16


class QFormerBackbone(Backbone):
    """A backbone whose composer is a Q-Former; a subclass brings the towers.

    Learned query tokens read the image tokens by cross-attention; text tokens stand after them and are read by
    self-attention. The query vector is the output at position Q, the first text position.

    Args:
        shape: the sizes.
        qformer: the Q-Former's configuration; ``encoder_hidden_size`` is the image width, ``hidden_size`` is H.
    """

    def __init__(self, shape: BackboneShape, qformer: Blip2QFormerConfig) -> None:
        super().__init__()
        self.shape = shape
        self.query_tokens = nn.Parameter(_apart(shape.queries, shape.hidden))
        self.qformer = Blip2QFormerModel(qformer)
        self.text_projection = nn.Linear(shape.hidden, shape.dim)
        self.vision_projection = nn.Linear(shape.hidden, shape.dim)

    @abc.abstractmethod
    def vision(self, tokens: Tensor) -> Tensor:
        """Make frozen tokens ready for cross-attention: the trained layers on top of the tower, ``[B, P, V]``."""

    @abc.abstractmethod
    def words(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Embed texts for the Q-Former: ``[B, L, H]``, and the mask ``[B, L]`` (1 = a real position)."""

    def image_pass(self, tokens: Tensor) -> Tensor:
        """Run the learned queries over the image: ``[B, P, V]`` to ``[B, Q, H]`` (QI)."""
        return self._attend(self._queries(len(tokens)), None, self.vision(tokens))

    def targets(self, tokens: Tensor) -> Tensor:
        """Embed images as targets: t = normalise(W_v QI(x)), ``[B, Q, D]``."""
        return normalize(self.vision_projection(self.image_pass(tokens)), dim=-1)

    def compose(self, tokens: Tensor, texts: Sequence[str], query_tokens: Tensor | None = None) -> Composed:
        """Fuse references and texts (QF): c at the first text position, C at the query positions."""
        words, mask = self.words(texts)
        queries = self._queries(len(tokens), query_tokens)
        hidden = self._attend(torch.cat([queries, words], dim=1), mask, self.vision(tokens))
        return self._composed(hidden)

    def refine(self, query_tokens: Tensor, texts: Sequence[str]) -> Composed:
        """Fuse given query tokens ``[B, Q, H]`` with texts without an image (QN); all go through the text layers."""
        words, mask = self.words(texts)
        return self._composed(self._attend(torch.cat([query_tokens, words], dim=1), mask, None))

    def text(self, texts: Sequence[str]) -> Tensor:
        """Embed texts alone: normalise(W_t out[0]), ``[B, D]``."""
        words, mask = self.words(texts)
        hidden = self.qformer(query_embeds=words, query_length=0, attention_mask=mask).last_hidden_state
        return normalize(self.text_projection(hidden[:, 0]), dim=-1)

    def _composed(self, hidden: Tensor) -> Composed:
        projected = normalize(self.text_projection(hidden[:, : self.shape.queries + 1]), dim=-1)
        return Composed(vector=projected[:, -1], tokens=projected[:, :-1], hidden=hidden)

    def _queries(self, batch: int, query_tokens: Tensor | None = None) -> Tensor:
        tokens = self.query_tokens if query_tokens is None else query_tokens
        return tokens.expand(batch, -1, -1)

    def _attend(self, embeddings: Tensor, text_mask: Tensor | None, image: Tensor | None) -> Tensor:
        """Run the Q-Former; ``text_mask`` covers the positions after the Q queries, ``image`` None = no-image pass."""
        mask = embeddings.new_ones(len(embeddings), self.shape.queries)
        if text_mask is None:
            return self._run(embeddings, mask, image)
        mask = torch.cat([mask, text_mask.to(mask)], dim=1)
        if embeddings.device.type != "cpu":
            return self._run(embeddings, mask, image)
        # On a CPU padding costs time: texts of like length are run together, each group as long as its longest.
        order = mask.sum(dim=1).argsort(stable=True)
        parts = []
        for rows in torch.split(order, max(-(-len(order) // _LENGTH_GROUPS), _SMALLEST_GROUP)):
            longest = int(mask[rows].sum(dim=1).max())
            part = self._run(
                embeddings[rows, :longest], mask[rows, :longest], None if image is None else image[rows]
            )
            parts.append(pad(part, (0, 0, 0, mask.shape[1] - longest)))
        return torch.cat(parts)[order.argsort()]

    def _run(self, embeddings: Tensor, mask: Tensor, image: Tensor | None) -> Tensor:
        hidden: Tensor = self.qformer(
            query_embeds=embeddings,
            query_length=0 if image is None else self.shape.queries,
            attention_mask=mask,
            encoder_hidden_states=image,
            encoder_attention_mask=None if image is None else image.new_ones(image.shape[:2]),
        ).last_hidden_state
        return hidden


def _apart(queries: int, hidden: int) -> Tensor:
    """Start the query tokens orthogonal, so that they do not read the same thing: ``[1, Q, H]`` of norm sqrt(H)."""
    tokens = torch.empty(queries, hidden)
    nn.init.orthogonal_(tokens)
    return tokens.mul(hidden**0.5).unsqueeze(0)
