"""The first stage of a search in memory: every target vector, in its few principal directions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

DIRECTIONS = 48
"""Principal directions that are kept of D: a scan of all vectors reads so many numbers each."""

_CHUNK = 65_536


@dataclass(frozen=True)
class FirstStage:
    """The target vectors of N images, projected; scores of the projections are near the true ones.

    Of all projections to so many directions, the principal ones (of the vectors' second moments, not centred, since
    scores are dot products) lose the least of ``<c, t>``, for queries ``c`` of no preferred direction.

    Attributes:
        directions: ``[D, K]`` orthonormal, in float32.
        vectors: ``[N, Q, K]``, in float32.
    """

    directions: Tensor
    vectors: Tensor

    @classmethod
    def of(cls, targets: Tensor, directions: int = DIRECTIONS) -> FirstStage:
        """Project target vectors ``[N, Q, D]``; where D is no more than ``directions``, they are kept whole."""
        images, queries, dim = targets.shape
        rows, starts = targets.reshape(-1, dim), range(0, images * queries, _CHUNK)
        moments = torch.zeros(dim, dim)
        for start in starts:
            part = rows[start : start + _CHUNK].float()
            moments += part.T @ part
        axes = torch.linalg.eigh(moments).eigenvectors[:, -directions:].contiguous()  # rising eigenvalues
        kept = torch.empty(len(rows), axes.shape[1])
        for start in starts:
            kept[start : start + _CHUNK] = rows[start : start + _CHUNK].float() @ axes
        return cls(axes, kept.reshape(images, queries, axes.shape[1]))

    def nearest(self, vector: Tensor, count: int, places: Tensor | None = None) -> Tensor:
        """Return the places of the ``count`` images that come nearest to a query vector ``[D]``, best first.

        Args:
            vector: the query.
            count: how many; all, where there are fewer.
            places: ``[M]`` the images to choose from; by default all.
        """
        vectors = self.vectors if places is None else self.vectors[places]
        scores = vectors.flatten(0, 1) @ (vector.float() @ self.directions)
        best = scores.reshape(vectors.shape[:2]).amax(dim=1).topk(min(count, len(vectors))).indices
        return best if places is None else places[best]
