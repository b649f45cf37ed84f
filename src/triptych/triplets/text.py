"""Captions to the one text that a model reads: strip, join, clean (spec 1.3)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import numpy as np

CaptionMode = Literal["fixed", "random4"]

_DROPPED = re.compile(r"[.!\"()*#:;~]")
_MAX_WORDS = 50


def clean(text: str, *, max_words: int = _MAX_WORDS) -> str:
    r"""Clean a caption as BLIP does.

    Lower case; ``. ! " ( ) * # : ; ~`` become spaces; spaces are collapsed and trimmed; at most 50 words.
    Unlike in BLIP, a single line break or tab counts as a space.

    Source: spec 1.3; LAVIS, ``BlipCaptionProcessor``.

    Example:
        >>> clean('  Is RED;  (not "blue")...\n')
        'is red not blue'
    """
    return " ".join(_DROPPED.sub(" ", text.lower()).split()[:max_words])


def strip_caption(caption: str) -> str:
    """Strip spaces and ``. ? ,`` from both ends (spec 1.3, ``strip_join``).

    Example:
        >>> strip_caption(" is longer, and red?. ")
        'is longer, and red'
    """
    return caption.strip(".?, \t\r\n")


def join_captions(
    captions: Sequence[str], mode: CaptionMode = "fixed", generator: np.random.Generator | None = None
) -> str:
    """Join the captions of a triplet to one clean text; blank captions are left out.

    ``fixed`` gives "A and B". ``random4`` gives "A and B", "B and A", "A" or "B", a quarter each; with more
    than two captions B stands for all but the first, joined. One number is drawn per call whatever the
    captions are, so that a blank caption does not shift the draws of later triplets.

    Args:
        captions: the captions as annotated.
        mode: ``fixed`` (HABIT, INTENT, ConeSep and all evaluation) or ``random4`` (SPRC, CALA, SSN, TME, RCL,
            RDE).
        generator: where ``random4`` draws from.

    Raises:
        ValueError: ``mode`` is unknown, or ``random4`` has no generator.

    Source: spec 1.3, switch ``fiq_caption_aug``.

    Example:
        >>> join_captions(["Is red.", " has long sleeves"])
        'is red and has long sleeves'
    """
    kept = [stripped for stripped in map(strip_caption, captions) if clean(stripped)]
    order: tuple[int, ...] = (0, 1)
    if mode == "random4":
        if generator is None:
            raise ValueError("random4 needs a generator")
        order = ((0, 1), (1, 0), (0,), (1,))[int(generator.integers(4))]
    elif mode != "fixed":
        raise ValueError(f"unknown caption mode {mode!r}: fixed or random4")
    if len(kept) < 2:
        return clean(kept[0]) if kept else ""
    parts = (kept[0], " and ".join(kept[1:]))
    return clean(" and ".join(parts[i] for i in order))
