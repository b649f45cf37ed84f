"""Which words and which regions of the reference a query was mixed from: for figures, and for a search's answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from triptych.backbones.attention_flow import attention_flow
from triptych.backbones.composer import QFormerBackbone
from triptych.errors import UsageError
from triptych.methods.base import Method
from triptych.training.model import Model

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True)
class QueryAttention:
    """Shares of attention in one query; it says what was mixed, not what would change the answer.

    Attributes:
        words: the text's words as the model read them; a word beyond the model's length is not among them.
        word_shares: ``[W]`` share of the query vector that came from each word.
        regions: ``[g, g]`` share that came from each region of the preprocessed square picture, rows from the top.
        by_word: ``[W, g, g]`` share of each word's own last state that came from each region.
        rest: what came from elsewhere: the learned queries, the whole text, the whole picture.
    """

    words: tuple[str, ...]
    word_shares: FloatArray
    regions: FloatArray
    by_word: FloatArray
    rest: float


def query_attention(model: Model, tokens: Tensor, texts: Sequence[str]) -> list[QueryAttention]:
    """Follow the attention of queries, see :mod:`~triptych.backbones.attention_flow`.

    Args:
        model: in eval mode.
        tokens: ``[B, P, V]`` frozen tokens of the references.
        texts: B texts, joined and cleaned.

    Returns:
        One a query.

    Raises:
        UsageError: the backbone has no Q-Former, or the method composes queries in another way.
    """
    backbone = model.backbone
    if not isinstance(backbone, QFormerBackbone):
        raise UsageError(
            f"backbone {backbone.name} composes without a Q-Former, so there is no attention of words to regions;"
            " lite and the blip2 backbones have it"
        )
    if model.method is not None and type(model.method).query is not Method.query:
        raise UsageError(
            f"{model.method.name} composes its queries in steps of its own, which one attention does not describe;"
            " take a run of infonce, rcl, intent, habit or conesep"
        )
    flow = attention_flow(backbone, tokens, texts)
    found = []
    for at, pieces in enumerate(backbone.text_pieces(texts)):
        found.append(_one(backbone, flow.positions[at], flow.regions[at], pieces))
    return found


def _one(
    backbone: QFormerBackbone, positions: Tensor, regions: Tensor, pieces: Sequence[str]
) -> QueryAttention:
    first = backbone.shape.queries  # the query vector stands here, before the words
    side = int((backbone.shape.image_tokens - backbone.shape.class_token) ** 0.5)
    maps = regions[:, int(backbone.shape.class_token) :].reshape(-1, side, side).float().cpu().numpy()
    own = positions[first].float().cpu().numpy()
    words = [(word, [first + at for at in places]) for word, places in join_pieces(pieces)]
    shares = np.array([own[places].sum() for _, places in words], dtype=np.float32)
    by_word = np.array([maps[places].mean(axis=0) for _, places in words], dtype=np.float32)
    return QueryAttention(
        tuple(word for word, _ in words),
        shares,
        maps[first],
        by_word.reshape(-1, side, side),
        float(1 - shares.sum() - maps[first].sum()),
    )


def join_pieces(pieces: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Join word pieces to words, with the places of each; special tokens such as [CLS], and "", are left out.

    Example:
        >>> join_pieces(["[CLS]", "poly", "##est", "##er", "dress", "[SEP]"])
        [('polyester', [1, 2, 3]), ('dress', [4])]
    """
    words: list[tuple[str, list[int]]] = []
    for at, piece in enumerate(pieces):
        if not piece or (piece.startswith("[") and piece.endswith("]") and len(piece) > 2):
            continue
        if piece.startswith("##") and words:
            word, places = words.pop()
            words.append((word + piece[2:], [*places, at]))
        else:
            words.append((piece, [at]))
    return words
