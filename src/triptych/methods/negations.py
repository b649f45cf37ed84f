"""Phrases that deny what follows, for the text of a negative query (ConeSep)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from triptych.randomness import derive_seed

PHRASES = (
    "the image does not show",
    "this is not",
    "not at all",
    "it is wrong that",
    "anything but",
    "without",
    "never",
    "the picture lacks",
    "there is no",
    "do not make it",
    "the opposite of",
    "far from",
    "it is untrue that it",
    "the result is not",
    "nothing here",
    "by no means",
    "instead of being",
    "other than",
    "in contrast to",
    "the change is not",
    "none of this:",
    "it should not be that it",
    "avoid this:",
    "no longer",
    "it fails to be",
)
"""Short, for they use up positions of the text."""


def deny(texts: Sequence[str], generator: torch.Generator | None = None) -> list[str]:
    """Put a phrase before each text, each equally likely.

    Args:
        texts: any texts.
        generator: draws a phrase for each; without one a text always gets the same.
    """
    if generator is None:
        chosen = [derive_seed(0, "negation", text) % len(PHRASES) for text in texts]
    else:
        chosen = torch.randint(len(PHRASES), (len(texts),), generator=generator).tolist()
    return [f"{PHRASES[number]} {text}" for number, text in zip(chosen, texts, strict=True)]
