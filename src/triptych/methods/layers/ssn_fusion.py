"""SSN's fusion: split reference and text into what is kept and removed, fuse each part, combine with CLIP."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from triptych.methods.layers.attention import encode_at, encoder_layer
from triptych.methods.layers.linear import linear
from triptych.objectives.precision import full_precision

RESIDUAL = 0.01
"""Share of the fused features beside the pooled embeddings."""
IMAGE, TEXT = 0, 1


class SsnFusion(nn.Module):
    r"""Fuse image and text tokens into a query, an anti-query of what the text removes, and a target.

    .. math::
        a_k = \sigma(w [m_k; r_0]), \quad m^+ = a m, \quad m^- = (1 - a) m, \qquad
        b_k = \sigma(w' [r_k; \mathrm{mean}\, m^-]), \quad r^+ = b r, \quad r^- = (1 - b) r

    Each part takes type embeddings and one post-norm transformer layer over :math:`[r^\pm; m^\pm]`. From
    :math:`h = [\mathrm{mean\ of\ the\ text\ part}; r_0]` and :math:`\lambda = \sigma(\mathrm{MLP}(h))`

    .. math::
        q = \mathrm{normalise}\bigl(0.01\, W_o\, \mathrm{relu}(W_c h) + \lambda\, e_\mathrm{text}
        + (1 - \lambda)\, e_\mathrm{image}\bigr), \qquad
        t = \mathrm{normalise}(0.01\, r_0 + e_\mathrm{image})

    Args:
        image_width: of the image tokens before their projection.
        width: W, of text tokens, of the fusion and of the pooled embeddings, which are added to its output.
        generator: draws the start.
        heads: of the transformer layer; they must divide ``width``.
        feedforward: width of its feed-forward part.
        dropout: of the transformer layer.
        mask_padding: keep padded text out of the attention. Off as released: then a query depends on how far
            its text was padded, thus on the longest text of its batch.

    Raises:
        ValueError: ``heads`` do not divide ``width``.

    Source: SSN (AAAI 2024); specification, section 6.
    """

    def __init__(
        self,
        image_width: int,
        width: int,
        *,
        generator: torch.Generator,
        heads: int = 8,
        feedforward: int = 2048,
        dropout: float = 0.1,
        mask_padding: bool = False,
    ) -> None:
        super().__init__()
        self.mask_padding = mask_padding
        self.image_projection = linear(image_width, width, generator)
        self.types = nn.Parameter(torch.empty(2, width).normal_(generator=generator))
        self.text_gate = linear(2 * width, 1, generator)
        self.image_gate = linear(2 * width, 1, generator)
        self.fusion = encoder_layer(width, heads, generator, feedforward=feedforward, dropout=dropout)
        self.combiner = linear(2 * width, 2 * width, generator)
        self.output = linear(2 * width, width, generator)
        self.share = nn.Sequential(
            linear(2 * width, 2 * width, generator), nn.ReLU(), linear(2 * width, 1, generator)
        )

    def forward(
        self, image: Tensor, image_embedding: Tensor, text: Tensor, text_embedding: Tensor, text_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return query and anti-query, ``[B, W]`` unit rows each.

        Args:
            image: ``[B, P, V]`` tokens of the references, CLS first.
            image_embedding: ``[B, W]`` pooled.
            text: ``[B, L, W]`` tokens.
            text_embedding: ``[B, W]`` pooled.
            text_mask: ``[B, L]``, nonzero = a word.
        """
        image, text = self._project(image), text.to(self.types.dtype)
        text_gate, image_gate = self._gates(image, text, text_mask)
        query, anti_query = (
            self._combine(image * image_share, text * text_share, text_mask, image_embedding, text_embedding)
            for image_share, text_share in ((image_gate, text_gate), (1 - image_gate, 1 - text_gate))
        )
        return query, anti_query

    def query(
        self, image: Tensor, image_embedding: Tensor, text: Tensor, text_embedding: Tensor, text_mask: Tensor
    ) -> Tensor:
        """Return the query alone, for ranking: ``[B, W]`` unit rows; arguments of :meth:`forward`."""
        image, text = self._project(image), text.to(self.types.dtype)
        text_gate, image_gate = self._gates(image, text, text_mask)
        return self._combine(image * image_gate, text * text_gate, text_mask, image_embedding, text_embedding)

    def target(self, image: Tensor, image_embedding: Tensor) -> Tensor:
        """Return targets, ``[B, W]`` unit rows, from their tokens ``[B, P, V]`` and pooled ``[B, W]``."""
        tokens = self._project(image) + self.types[IMAGE]
        fused = encode_at(self.fusion, tokens[:, :1], tokens)[:, 0]
        return _unit(RESIDUAL * full_precision(fused) + full_precision(image_embedding))

    def _project(self, image: Tensor) -> Tensor:
        projected: Tensor = self.image_projection(image.to(self.image_projection.weight.dtype))
        return projected

    def _gates(self, image: Tensor, text: Tensor, text_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return how much of each token is kept, ``[B, L, 1]`` and ``[B, P, 1]``."""
        seen = image[:, :1].expand(-1, text.shape[1], -1)
        kept_text = torch.sigmoid(self.text_gate(torch.cat([text, seen], dim=-1)))
        removed = _pool((1 - kept_text) * text, text_mask)[:, None].expand(-1, image.shape[1], -1)
        kept_image = torch.sigmoid(self.image_gate(torch.cat([image, removed.to(image)], dim=-1)))
        return kept_text, kept_image

    def _combine(
        self, image: Tensor, text: Tensor, text_mask: Tensor, image_embedding: Tensor, text_embedding: Tensor
    ) -> Tensor:
        image, text = image + self.types[IMAGE], text + self.types[TEXT]
        padding = None
        if self.mask_padding:
            padding = functional.pad(text_mask == 0, (image.shape[1], 0), value=False)
        asked = torch.cat([image[:, :1], text], dim=1)  # nothing else of the layer's output is read
        fused = encode_at(self.fusion, asked, torch.cat([image, text], dim=1), padding)
        h = torch.cat([_pool(fused[:, 1:], text_mask), fused[:, 0]], dim=-1)
        residual = full_precision(self.output(self.combiner(h).relu()))
        share = torch.sigmoid(full_precision(self.share(h)))
        embeddings = share * full_precision(text_embedding) + (1 - share) * full_precision(image_embedding)
        return _unit(RESIDUAL * residual + embeddings)


def _pool(tokens: Tensor, mask: Tensor) -> Tensor:
    """Average the tokens ``[B, L, W]`` whose mask is not zero; an empty text gives zeros."""
    words = mask != 0
    total = tokens.masked_fill(~words[..., None], 0.0).sum(dim=1)
    return total / words.sum(dim=1, keepdim=True).clamp(min=1)


def _unit(rows: Tensor) -> Tensor:
    return functional.normalize(rows, dim=-1)
