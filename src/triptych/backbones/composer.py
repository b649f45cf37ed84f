"""The Q-Former composer: every pass of the specification on transformers' ``Blip2QFormerModel``, at any size."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any

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

    def checkpoint_gradients(self) -> None:
        """Keep only what enters each layer of the Q-Former, and compute the rest again in the backward pass."""
        self.qformer.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    @abc.abstractmethod
    def vision(self, tokens: Tensor) -> Tensor:
        """Make frozen tokens ready for cross-attention: the trained layers on top of the tower, ``[B, P, V]``."""

    @abc.abstractmethod
    def word_embeddings(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Embed words without their places: ``[B, L, H]``, and the mask ``[B, L]`` (1 = a real position)."""

    @abc.abstractmethod
    def positioned(self, embeddings: Tensor) -> Tensor:
        """Add the position embeddings 0 .. L - 1 to ``[B, L, H]``."""

    def pieces(self, text: str) -> list[str]:
        """Name what stands at each text position of a text: a word piece, as "long" or "##er", or nothing."""
        return [""] * int(self.word_embeddings([text])[1].sum())

    def image_pass(self, tokens: Tensor) -> Tensor:
        """Run the learned queries over the image: ``[B, P, V]`` to ``[B, Q, H]`` (QI)."""
        return self.look(self.vision(tokens))

    def look(self, vision_tokens: Tensor) -> Tensor:
        """Run the learned queries over tokens that are behind :meth:`vision`: ``[B, P, V]`` to ``[B, Q, H]``."""
        return self._attend(self._queries(len(vision_tokens)), None, vision_tokens)[0]

    def look_attentively(self, vision_tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Give what :meth:`look` gives, and the last self-attention ``[B, Q, Q]``, mean of the heads, no gradient."""
        hidden, attention = self._attend(
            self._queries(len(vision_tokens)), None, vision_tokens, attention=True
        )
        assert attention is not None
        return hidden, attention

    def as_targets(self, looks: Tensor) -> Tensor:
        """Project image hidden states to targets: ``[B, Q, H]`` to normalise(W_v z), ``[B, Q, D]``."""
        return normalize(self.vision_projection(looks), dim=-1)

    def targets(self, tokens: Tensor) -> Tensor:
        """Embed images as targets: t = normalise(W_v QI(x)), ``[B, Q, D]``."""
        return self.as_targets(self.image_pass(tokens))

    def compose(
        self,
        tokens: Tensor,
        texts: Sequence[str],
        query_tokens: Tensor | None = None,
        *,
        attention: bool = False,
    ) -> Composed:
        """Fuse references and texts (QF): c at the first text position, C at the query positions."""
        words, mask = self._words(texts)
        queries = self._queries(len(tokens), query_tokens)
        hidden, weights = self._attend(
            torch.cat([queries, words], dim=1), mask, self.vision(tokens), attention=attention
        )
        return self._composed(hidden, mask, weights)

    def refine(self, query_tokens: Tensor, texts: Sequence[str] | Tensor) -> Composed:
        """Fuse given query tokens ``[B, Q, H]`` with texts without an image (QN); all go through the text layers.

        ``texts`` may be ``[B, L, H]`` tokens in place of word embeddings: they get places, and all are read.
        """
        if isinstance(texts, Tensor):
            words, mask = self.positioned(texts), texts.new_ones(texts.shape[:2])
        else:
            words, mask = self._words(texts)
        hidden, _ = self._attend(torch.cat([query_tokens, words], dim=1), mask, None)
        return self._composed(hidden, mask, None)

    def prompt(self, prompt_tokens: Tensor, texts: Sequence[str]) -> Tensor:
        """Read a prompt with texts (QP): ``[Q', H]`` or ``[B, Q', H]`` tokens between first and second word."""
        words, mask = self.word_embeddings(texts)
        prompts = prompt_tokens.expand(len(words), -1, -1)
        sequence = self.positioned(torch.cat([words[:, :1], prompts, words[:, 1:]], dim=1))
        ones = mask.new_ones(prompts.shape[:2])
        hidden = self._run(sequence, torch.cat([mask[:, :1], ones, mask[:, 1:]], dim=1), None)[0]
        return normalize(self.text_projection(hidden[:, 0]), dim=-1)

    def text_pass(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Read texts alone: the hidden states ``[B, L, H]`` and the mask ``[B, L]``."""
        words, mask = self._words(texts)
        return self._by_length(words, mask.to(words), None)[0], mask

    def text(self, texts: Sequence[str]) -> Tensor:
        """Embed texts alone: normalise(W_t out[0]), ``[B, D]``."""
        return self.text_and_states(texts)[0]

    def text_and_states(self, texts: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
        """Embed texts and keep what was read: ``[B, D]``, ``[B, L, H]`` and the mask, one pass."""
        hidden, mask = self.text_pass(texts)
        return normalize(self.text_projection(hidden[:, 0]), dim=-1), hidden, mask

    def _words(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        words, mask = self.word_embeddings(texts)
        return self.positioned(words), mask

    def _composed(self, hidden: Tensor, mask: Tensor, attention: Tensor | None) -> Composed:
        projected = normalize(self.text_projection(hidden[:, : self.shape.queries + 1]), dim=-1)
        return Composed(projected[:, -1], projected[:, :-1], hidden, mask, attention)

    def _queries(self, batch: int, query_tokens: Tensor | None = None) -> Tensor:
        tokens = self.query_tokens if query_tokens is None else query_tokens
        return tokens.expand(batch, -1, -1)

    def _attend(
        self,
        embeddings: Tensor,
        text_mask: Tensor | None,
        image: Tensor | None,
        *,
        attention: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Run the Q-Former; ``text_mask`` covers the positions after the Q queries, ``image`` None = no-image pass."""
        mask = embeddings.new_ones(len(embeddings), self.shape.queries)
        if text_mask is None:
            return self._run(embeddings, mask, image, attention)
        return self._by_length(embeddings, torch.cat([mask, text_mask.to(mask)], dim=1), image, attention)

    def _by_length(
        self, embeddings: Tensor, mask: Tensor, image: Tensor | None, attention: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Run the Q-Former on texts of like length together, each group as long as its longest.

        On a CPU padding costs time; elsewhere all are run at once.
        """
        if embeddings.device.type != "cpu":
            return self._run(embeddings, mask, image, attention)
        lengths = mask.sum(dim=1)
        order = lengths.argsort(stable=True)
        groups = 1 if lengths[order[0]] == lengths[order[-1]] else _LENGTH_GROUPS
        parts, weights = [], []
        for rows in torch.split(order, max(-(-len(order) // groups), _SMALLEST_GROUP)):
            longest = int(lengths[rows[-1]])
            part, weight = self._run(
                embeddings[rows, :longest],
                mask[rows, :longest],
                None if image is None else image[rows],
                attention,
            )
            missing = mask.shape[1] - longest
            parts.append(pad(part, (0, 0, 0, missing)))
            if weight is not None:
                weights.append(pad(weight, (0, missing, 0, missing)))
        back = order.argsort()
        return torch.cat(parts)[back], torch.cat(weights)[back] if weights else None

    def _run(
        self, embeddings: Tensor, mask: Tensor, image: Tensor | None, attention: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        last = self.qformer.encoder.layer[-1].attention.attention
        seen: list[Tensor] = []
        hook = last.register_forward_pre_hook(_keep(seen), with_kwargs=True) if attention else None
        try:
            hidden: Tensor = self.qformer(
                query_embeds=embeddings,
                query_length=0 if image is None else self.shape.queries,
                attention_mask=mask,
                encoder_hidden_states=image,
            ).last_hidden_state
        finally:
            if hook is not None:
                hook.remove()
        return hidden, _attention(last, seen[0], mask) if attention else None


def _keep(seen: list[Tensor]) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
    def hook(module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        seen.append((arguments[0] if arguments else named["hidden_states"]).detach())

    return hook


@torch.no_grad()
def _attention(layer: Any, hidden: Tensor, mask: Tensor) -> Tensor:
    """Compute a layer's self-attention, mean of the heads, ``[B, N, N]``: fast kernels do not give it."""
    heads = (*hidden.shape[:2], layer.num_attention_heads, -1)
    query, key = layer.query(hidden).view(heads), layer.key(hidden).view(heads)
    logits: Tensor = torch.einsum("bnhd,bmhd->bhnm", query, key).float() * layer.scaling
    return logits.masked_fill(mask[:, None, None] == 0, -torch.inf).softmax(dim=-1).mean(dim=1)


def _apart(queries: int, hidden: int) -> Tensor:
    """Start the query tokens orthogonal, so that they do not read the same thing: ``[1, Q, H]`` of norm sqrt(H)."""
    tokens = torch.empty(queries, hidden)
    nn.init.orthogonal_(tokens)
    return tokens.mul(hidden**0.5).unsqueeze(0)
