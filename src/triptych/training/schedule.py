"""The learning rate as a multiple of its peak, a pure function of the step."""

from __future__ import annotations

import math
from typing import Literal


def learning_rate_factor(
    step: int, *, total_steps: int, warmup_steps: int, kind: Literal["cosine", "constant", "onecycle"]
) -> float:
    """Return the factor of a step (zero-based) in (0, 1].

    Linear warm-up, then ``cosine`` to 1 % of the peak, or ``constant``. ``onecycle`` is the published form: a cosine
    from 1 % up to the peak over the warm-up, then a cosine down to (almost) nothing.
    """
    if kind == "onecycle":
        if step < warmup_steps:
            return _between(0.01, 1.0, step / warmup_steps)
        return _between(1.0, 1e-4, (step - warmup_steps) / max(total_steps - warmup_steps, 1))
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    if kind == "constant":
        return 1.0
    return _between(1.0, 0.01, (step - warmup_steps) / max(total_steps - warmup_steps, 1))


def _between(start: float, end: float, progress: float) -> float:
    """Move from start to end along half a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * min(progress, 1.0))) / 2
