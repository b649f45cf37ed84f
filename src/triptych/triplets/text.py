"""Captions to the one text that a model reads: strip, join, clean (spec 1.3)."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

CaptionMode = Literal["fixed", "reversed", "first", "second", "random4"]
"""How the captions A and B of a triplet become one text: "A and B", "B and A", A, B, or one of the four at random."""

PHRASINGS: Mapping[str, str] = {
    "fixed": "A and B",
    "reversed": "B and A",
    "first": "A",
    "second": "B",
}
"""The joins that are not random, as tables call them."""

TextStyle = Literal["strip_join", "correct"]
"""How each caption is cleaned before it is joined, see :func:`join_captions`."""

_DROPPED = re.compile(r"[.!\"()*#:;~]")
_PUNCTUATION = str.maketrans(string.punctuation, " " * len(string.punctuation))
_ORDERS = {"fixed": (0, 1), "reversed": (1, 0), "first": (0,), "second": (1,)}
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


def correct_caption(caption: str, corrections: Mapping[str, str] | None = None) -> str:
    """Lower-case, put spaces for punctuation, and replace single words (spec 1.3, ``correct``).

    The dictionaries of typing errors that the INTENT, HABIT and ConeSep releases load were never published with
    them, so the default replaces nothing.

    Example:
        >>> correct_caption("Is Longer-sleeved, and bule.", {"bule": "blue"})
        'is longer sleeved and blue'
    """
    words = caption.lower().translate(_PUNCTUATION).split()
    return " ".join((corrections or {}).get(word, word) for word in words)


def join_captions(
    captions: Sequence[str],
    mode: CaptionMode = "fixed",
    generator: np.random.Generator | None = None,
    *,
    style: TextStyle = "strip_join",
) -> str:
    """Join the captions of a triplet to one clean text; blank captions are left out.

    ``fixed`` gives "A and B", ``reversed`` "B and A", ``first`` and ``second`` one of them, ``random4`` one of
    these four, a quarter each; with more than two captions B stands for all but the first, joined. One number is
    drawn per call whatever the captions are, so that a blank caption does not shift the draws of later triplets.

    Args:
        captions: the captions as annotated.
        mode: ``fixed`` (HABIT, INTENT, ConeSep and all evaluation), ``random4`` (SPRC, CALA, SSN, TME, RCL, RDE),
            or one of the others, to see what the wording changes.
        generator: where ``random4`` draws from.
        style: ``strip_join`` as SPRC, TME, CALA and SSN, or ``correct`` as INTENT, HABIT and ConeSep
            (:func:`correct_caption`).

    Raises:
        ValueError: ``mode`` is unknown, or ``random4`` has no generator.

    Source: spec 1.3, switches ``fiq_caption_aug`` and ``fiq_text``.

    Example:
        >>> join_captions(["Is red.", " has long sleeves"])
        'is red and has long sleeves'
    """
    cleaned = map(strip_caption if style == "strip_join" else correct_caption, captions)
    kept = [caption for caption in cleaned if clean(caption)]
    if mode == "random4":
        if generator is None:
            raise ValueError("random4 needs a generator")
        mode = ("fixed", "reversed", "first", "second")[int(generator.integers(4))]
    if mode not in _ORDERS:
        raise ValueError(f"unknown caption mode {mode!r}: {', '.join(_ORDERS)} or random4")
    if len(kept) < 2:
        return clean(kept[0]) if kept else ""
    parts = (kept[0], " and ".join(kept[1:]))
    return clean(" and ".join(parts[i] for i in _ORDERS[mode]))
