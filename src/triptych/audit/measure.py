"""A model's opinion of triplets that it never saw, by matrix products on its vectors."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import normalize

from triptych.audit.corpus import Corpus, Items
from triptych.audit.embed import Embedder
from triptych.audit.evidence import CANDIDATES, FEATURES
from triptych.objectives.similarity import similarity

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]

TEMPERATURE = 0.07
NEIGHBOURS, KEPT = 10, 20
_CHUNK = 256
_EQUAL = 1e-6  # the same score by another product differs in its last bits


class Measured:
    """Figures and candidates of M items, filled in piece by piece; see :mod:`~triptych.audit.evidence`."""

    def __init__(self, count: int, swaps: int) -> None:
        self.figures = {name: np.full(count, np.nan, dtype=np.float32) for name in FEATURES}
        widths = {"targets": KEPT, "references": max(swaps, 1), "texts": max(swaps, 1)}
        self.candidates = {name: np.full((count, widths[name]), -1, dtype=np.int64) for name in CANDIDATES}
        self.scores = {name: np.full((count, widths[name]), np.nan, dtype=np.float32) for name in CANDIDATES}

    def put(self, at: IntArray, **figures: Tensor) -> None:
        """Set figures of some items."""
        for name, values in figures.items():
            self.figures[name][at] = values.numpy()


@torch.inference_mode()
def measure(embedder: Embedder, corpus: Corpus, items: Items, judges: IntArray, *, swaps: int) -> Measured:
    """Judge items by a model that saw none of the rows that they were made from.

    Args:
        embedder: the model.
        corpus: the triplets.
        items: what is judged.
        judges: rows that the model did not see either, whose queries are the rivals of a reverse rank.
        swaps: other references, and other texts, to try for each item; 0 leaves these figures out.
    """
    found = Measured(len(items), swaps)
    queries = embedder.queries(items.reference, items.text)
    averages = embedder.queries_of_average(items.text)
    rivals = embedder.queries(corpus.rows.reference[judges], corpus.rows.text[judges])
    homes = _homes(embedder, corpus)
    rows = _Rows(embedder, corpus)
    for category, gallery in enumerate(corpus.galleries):
        chosen = np.flatnonzero(items.category == category)
        ours = corpus.rows.category[judges] == category
        for start in range(0, len(chosen), _CHUNK):
            at = chosen[start : start + _CHUNK]
            piece = _take(items, at)
            _judge_targets(embedder, gallery, piece, queries[at], averages[at], at, found)
            _judge_reverse(embedder, judges[ours], rivals[ours], piece, queries[at], at, found)
            found.put(
                at, home_reference=homes[piece.reference, category], home_target=homes[piece.target, category]
            )
            rows.judge(piece, at, found, swaps)
    if swaps:
        _try_swaps(embedder, corpus, items, found)
    return found


def _judge_targets(
    embedder: Embedder,
    gallery: IntArray,
    items: Items,
    queries: Tensor,
    averages: Tensor,
    at: IntArray,
    found: Measured,
) -> None:
    pictures = embedder.images[gallery]
    target, reference = embedder.images[items.target], embedder.images[items.reference]
    text, look = embedder.words[items.text], embedder.looks[items.reference]
    scores, own = similarity(queries, pictures), _own(queries, target)
    scores[torch.from_numpy(gallery[None, :] == items.reference[:, None])] = -1.0  # it is no answer to itself
    size = math.log(len(gallery))
    log_fit = scores / TEMPERATURE
    total = torch.logsumexp(log_fit, dim=1)
    best = scores.max(dim=1).values
    by_text, by_average = similarity(text, pictures), similarity(averages, pictures)
    looks = embedder.looks[gallery]
    found.put(
        at,
        fit=own / TEMPERATURE - torch.maximum(total, own / TEMPERATURE) + size,
        rank=_rank(scores, own),
        gap=(best - own).clamp(min=0),
        text_rank=_rank(by_text, _own(text, target)),
        text_reference_rank=_rank(by_text, _own(text, reference)),
        text_margin=_own(text, target) - _own(text, reference),
        mean_rank=_rank(by_average, _own(averages, target)),
        mean_reference_rank=_rank(by_average, _own(averages, reference)),
        image_rank=_rank(look @ looks.T, (look * embedder.looks[items.target]).sum(dim=1)),
        image_similarity=(look * embedder.looks[items.target]).sum(dim=1),
    )
    top = scores.topk(min(KEPT, len(gallery)), dim=1)
    found.candidates["targets"][at, : top.indices.shape[1]] = gallery[top.indices.numpy()]
    fits = (top.values / TEMPERATURE - total[:, None] + size).numpy()
    found.scores["targets"][at, : top.indices.shape[1]] = fits


def _judge_reverse(
    embedder: Embedder,
    judges: IntArray,
    rivals: Tensor,
    items: Items,
    queries: Tensor,
    at: IntArray,
    found: Measured,
) -> None:
    if not len(judges):
        return
    target = embedder.images[items.target]
    theirs = similarity(rivals, target).T  # [M, J]
    theirs[_among(judges, items.own)] = -math.inf
    found.put(at, reverse_rank=_rank(theirs, _own(queries, target)))


class _Rows:
    """All rows of the table as neighbours."""

    def __init__(self, embedder: Embedder, corpus: Corpus) -> None:
        self.embedder, self.corpus = embedder, corpus
        self.words = normalize(embedder.words - embedder.words.mean(dim=0), dim=-1)
        self.reference = embedder.looks[corpus.rows.reference]
        self.target = embedder.looks[corpus.rows.target]
        self.text = self.words[corpus.rows.text]

    def judge(self, items: Items, at: IntArray, found: Measured, swaps: int) -> None:
        """Ask whether the neighbours in two corners agree on the third, and take their thirds as candidates."""
        reference = self.embedder.looks[items.reference] @ self.reference.T
        target = self.embedder.looks[items.target] @ self.target.T
        text = self.words[items.text] @ self.text.T
        own = torch.from_numpy(items.own)
        everyone = np.arange(len(self.corpus))
        count = min(NEIGHBOURS, max(len(everyone) - 3, 1))

        def nearest(likeness: Tensor, many: int) -> Tensor:
            masked = likeness.scatter(1, own, -math.inf)
            return masked.topk(min(many, len(everyone)), dim=1).indices

        by_query = nearest(reference + text, count)
        by_pictures = nearest(reference + target, max(count, 4 * swaps))
        by_answer = nearest(text + target, max(count, 4 * swaps))
        by_text = nearest(text, count)
        same = (
            torch.from_numpy(self.corpus.rows.category)[by_text] == torch.from_numpy(items.category)[:, None]
        )
        found.put(
            at,
            near_target=target.gather(1, by_query).mean(dim=1),
            near_text=text.gather(1, by_pictures[:, :count]).mean(dim=1),
            near_reference=reference.gather(1, by_answer[:, :count]).mean(dim=1),
            home_text=same.float().mean(dim=1),
        )
        if swaps:
            rows = self.corpus.rows
            found.candidates["references"][at] = _others(
                rows.reference[by_answer.numpy()],
                by_answer.numpy(),
                items.reference,
                items.target,
                swaps,
                names=True,
            )
            found.candidates["texts"][at] = _others(
                rows.text[by_pictures.numpy()], by_pictures.numpy(), items.text, None, swaps, names=False
            )


def _try_swaps(embedder: Embedder, corpus: Corpus, items: Items, found: Measured) -> None:
    """Compose each item with other references, and with other texts, and see whether the target fits better."""
    for name, figure in (("references", "gain_reference"), ("texts", "gain_text")):
        candidates = found.candidates[name]
        row, column = np.nonzero(candidates >= 0)
        value = candidates[row, column]
        if name == "references":
            queries = embedder.queries(value, items.text[row])
        else:
            queries = embedder.queries(items.reference[row], corpus.rows.text[value])
        fits = np.empty(len(row), dtype=np.float32)
        for category, gallery in enumerate(corpus.galleries):
            chosen = np.flatnonzero(items.category[row] == category)
            for start in range(0, len(chosen), _CHUNK):
                at = chosen[start : start + _CHUNK]
                scores = similarity(queries[at], embedder.images[gallery]) / TEMPERATURE
                own = _own(queries[at], embedder.images[items.target[row[at]]]) / TEMPERATURE
                total = torch.maximum(torch.logsumexp(scores, dim=1), own)
                fits[at] = (own - total + math.log(len(gallery))).numpy()
        found.scores[name][row, column] = fits
        best = np.where(candidates >= 0, np.nan_to_num(found.scores[name], nan=-np.inf), -np.inf).max(axis=1)
        gain = np.where(np.isfinite(best), best - found.figures["fit"], 0.0)
        found.figures[figure][:] = gain
        order = np.argsort(-np.nan_to_num(found.scores[name], nan=-np.inf), axis=1, kind="stable")
        found.candidates[name] = np.take_along_axis(candidates, order, axis=1)
        found.scores[name] = np.take_along_axis(found.scores[name], order, axis=1)


def _homes(embedder: Embedder, corpus: Corpus) -> Tensor:
    """Say of which category the pictures like each one are: ``[I, C]`` shares of the nearest ones."""
    home = torch.from_numpy(corpus.home)
    shares = torch.zeros(len(home), len(corpus.categories))
    count = min(NEIGHBOURS, max(len(home) - 1, 1))
    for start in range(0, len(home), _CHUNK):
        likeness = embedder.looks[start : start + _CHUNK] @ embedder.looks.T
        stop = start + len(likeness)
        likeness[torch.arange(len(likeness)), torch.arange(start, stop)] = -math.inf
        near = home[likeness.topk(count, dim=1).indices]
        for category in range(len(corpus.categories)):
            shares[start:stop, category] = (near == category).float().mean(dim=1)
    return shares


def _others(
    values: IntArray, rows: IntArray, own: IntArray, also: IntArray | None, count: int, *, names: bool
) -> IntArray:
    """Keep the first different values that are not the item's own; as the values, or as the rows that have them."""
    kept = np.full((len(values), count), -1, dtype=np.int64)
    for at, (line, line_rows) in enumerate(zip(values.tolist(), rows.tolist(), strict=True)):
        seen = {own[at]} if also is None else {own[at], also[at]}
        place = 0
        for value, row in zip(line, line_rows, strict=True):
            if value not in seen:
                seen.add(value)
                kept[at, place] = value if names else row
                place += 1
                if place == count:
                    break
    return kept


def _own(queries: Tensor, targets: Tensor) -> Tensor:
    """Score each query against its own target: ``[M, D]`` and ``[M, Q, D]`` to ``[M]``."""
    return (targets @ queries[:, :, None]).squeeze(2).amax(dim=1)


def _rank(scores: Tensor, own: Tensor) -> Tensor:
    """Give the log share of rivals that score higher: ``[M, N]`` and ``[M]`` to ``[M]``, 0 is worst."""
    above = (scores > own[:, None] + _EQUAL).sum(dim=1)
    return torch.log((above + 1) / (scores.shape[1] + 1))


def _among(rows: IntArray, own: IntArray) -> Tensor:
    """Say which of the rows an item was made from: ``[J]`` and ``[M, 3]`` to ``[M, J]``."""
    return torch.from_numpy((rows[None, :, None] == own[:, None, :]).any(axis=2))


def _take(items: Items, at: IntArray) -> Items:
    return Items(
        items.reference[at],
        items.text[at],
        items.target[at],
        items.category[at],
        items.base[at],
        items.own[at],
    )
