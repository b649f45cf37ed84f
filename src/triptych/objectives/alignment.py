"""Alignment of two token sets: the same relations between tokens (CKA), or the same tokens (MSE, L1, L2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from triptych.objectives.precision import no_autocast, same_precision


def cka_distance(first: Tensor, second: Tensor, *, eps: float = 1e-8) -> Tensor:
    r"""One minus the centred kernel alignment of two token sets, per triplet.

    .. math::
        1 - \frac{\langle \bar K, \bar L \rangle_F}{\lVert \bar K \rVert_F \lVert \bar L \rVert_F + \epsilon},
        \quad \bar K = J C C^\top J, \quad \bar L = J \hat C \hat C^\top J, \quad J = I - \tfrac1Q 1 1^\top

    Centring the tokens centres their Gram matrix, :math:`J C C^\top J = (JC)(JC)^\top`, so no product with J
    is made. Unlike the pointwise distances it ignores rotations, shifts and the scale of the tokens. It can be
    differentiated once.

    Args:
        first: ``[B, Q, D]`` tokens C.
        second: ``[B, Q, D']`` tokens Ĉ; the gradient goes into both.
        eps: keeps 0/0 away: tokens that are all the same (Q = 1 too) give distance 1 and no gradient.

    Returns:
        ``[B]`` in [0, 1].

    Raises:
        ValueError: the shapes do not fit.

    Source: INTENT eqs. 3, 4 with e the all-ones vector; Kornblith et al. 2019; specification, section 10.
    """
    first, second = _tokens(first, second)
    with no_autocast(first.device):
        gram, other = _centred_gram(first).flatten(1), _centred_gram(second).flatten(1)
    inner = (gram * other).sum(dim=1)
    norms = torch.linalg.vector_norm(gram, dim=1) * torch.linalg.vector_norm(other, dim=1)
    distance: Tensor = 1 - inner / (norms + eps)
    return distance


def mse_distance(first: Tensor, second: Tensor) -> Tensor:
    """Mean squared difference of two token sets' entries, ``[B]`` (INTENT table 4, B4)."""
    first, second = _tokens(first, second, same_width=True)
    return (first - second).square().mean(dim=(1, 2))


def l1_distance(first: Tensor, second: Tensor) -> Tensor:
    """Mean absolute difference of two token sets' entries, ``[B]`` (INTENT table 4, B5)."""
    first, second = _tokens(first, second, same_width=True)
    return (first - second).abs().mean(dim=(1, 2))


def l2_distance(first: Tensor, second: Tensor) -> Tensor:
    """Mean Euclidean distance of two token sets' tokens, ``[B]`` (INTENT table 4, B6)."""
    first, second = _tokens(first, second, same_width=True)
    lengths: Tensor = torch.linalg.vector_norm(first - second, dim=2)
    return lengths.mean(dim=1)


DISTANCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cka": cka_distance,
    "mse": mse_distance,
    "l1": l1_distance,
    "l2": l2_distance,
}
"""Name of INTENT's switch ``caco`` to distance: ``[B, Q, D]`` twice to ``[B]``."""


def _centred_gram(tokens: Tensor) -> Tensor:
    gram: Tensor = _CentredGram.apply(tokens)  # type: ignore[no-untyped-call]  # torch leaves apply untyped
    return gram


class _CentredGram(torch.autograd.Function):
    """``J x xᵀ J`` whose gradient, ``J (g + gᵀ) J x``, takes one product where autograd would make two."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor) -> Tensor:
        centred = tokens - tokens.mean(dim=1, keepdim=True)
        ctx.save_for_backward(centred)
        return torch.bmm(centred, centred.mT)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (centred,) = ctx.saved_tensors
        both = gradient + gradient.mT
        with no_autocast(centred.device):
            return torch.bmm(both - both.mean(dim=1, keepdim=True), centred)


def _tokens(first: Tensor, second: Tensor, same_width: bool = False) -> tuple[Tensor, Tensor]:
    fits = first.shape == second.shape if same_width else first.shape[:2] == second.shape[:2]
    if first.ndim != 3 or second.ndim != 3 or not fits:
        raise ValueError(
            f"expected two [B, Q, D] token sets, got {list(first.shape)} and {list(second.shape)}"
        )
    first, second = same_precision(first, second)
    return first, second
