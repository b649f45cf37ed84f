"""Semantic alignment: pull a pooled representation towards a fixed one (TME, SPRC)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from triptych.objectives.precision import same_precision
from triptych.objectives.reduction import restrict

SemanticForm = Literal["mse", "smoothl1"]


def semantic_alignment(
    pooled: Tensor, anchor: Tensor, clean: Tensor | None = None, *, form: SemanticForm = "mse"
) -> Tensor:
    r"""Pull a pooled representation towards a fixed one, on the clean triplets.

    .. math::
        \ell_i = \frac{B}{|C|}\,[i \in C]\; \frac1H \sum_h \rho(e_{i,h} - \mathrm{sg}(w_{i,h})),
        \qquad \rho(x) = x^2 \text{ or } \mathrm{huber}_1(x)

    The mean over the batch is the mean over clean triplets and entries; without a clean one it is 0.

    Args:
        pooled: ``[B, H]`` e; TME's mean Q-Former token of the visual difference.
        anchor: ``[B, H]`` w, or ``[1, H]`` for all; gets no gradient. TME's mean word embedding.
        clean: ``[B]`` bool, the triplets that count; all of them if None.
        form: ``mse`` squares the differences; ``smoothl1`` is linear beyond 1.

    Returns:
        ``[B]`` loss per triplet, float32 at least.

    Raises:
        ValueError: the shapes do not fit, ``clean`` is not ``[B]`` bool, or ``form`` is unknown.

    Source: TME (CVPR 2025), ``L_sa``; specification, section 8.
    """
    if pooled.ndim != 2 or anchor.shape not in (pooled.shape, (1, pooled.shape[1])):
        raise ValueError(
            f"expected [B, H] and [B, H] or [1, H], got {list(pooled.shape)} and {list(anchor.shape)}"
        )
    pooled, anchor = same_precision(pooled, anchor.detach().expand_as(pooled))
    if form == "mse":
        values = (pooled - anchor).square().mean(dim=1)
    elif form == "smoothl1":
        values = functional.smooth_l1_loss(pooled, anchor, reduction="none").mean(dim=1)
    else:
        raise ValueError(f'form must be "mse" or "smoothl1", got "{form}"')
    return restrict(values, torch.ones_like(values, dtype=torch.bool) if clean is None else clean)


def prompt_alignment(tokens: Tensor, prompt: Tensor) -> Tensor:
    r"""Pull the mean fused query token towards the mean prompt token; the gradient goes into the former only.

    .. math::
        \ell_i = \frac1H \Bigl\lVert
        \tfrac1Q \sum_q z_{i,q} - \mathrm{sg}\bigl(\tfrac1{Q'} \sum_q P_q\bigr)
        \Bigr\rVert^2

    Args:
        tokens: ``[B, Q, H]`` query positions z of the fusion pass.
        prompt: ``[1, Q', H]`` learned prompt P; gets no gradient here.

    Returns:
        ``[B]`` loss per triplet, float32 at least.

    Raises:
        ValueError: the shapes do not fit.

    Source: SPRC (ICLR 2024), ``L_align``; specification, section 4.
    """
    if tokens.ndim != 3 or prompt.ndim != 3 or len(prompt) != 1 or tokens.shape[2] != prompt.shape[2]:
        raise ValueError(
            f"expected [B, Q, H] and [1, Q', H], got {list(tokens.shape)} and {list(prompt.shape)}"
        )
    tokens, prompt = same_precision(tokens, prompt)
    return semantic_alignment(tokens.mean(dim=1), prompt.mean(dim=1))
