"""What a single recall does not show: whether an image's target vectors have collapsed into one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_CHUNK_VALUES = 4 * 2**20


def within_image_cosine(targets: npt.NDArray[np.floating]) -> float:
    """Return the mean cosine between different target vectors of the same image, in [-1, 1].

    Near 1 the Q vectors say the same, and the best of Q is no better than one.

    Args:
        targets: ``[N, Q, D]`` target vectors, of any length; read in pieces, so a memory map will do.

    Raises:
        ValueError: the shape is another, there is no image, Q is 1, or a vector is zero or not finite.
    """
    if targets.ndim != 3 or targets.shape[0] < 1 or targets.shape[1] < 2:
        raise ValueError(f"expected [N, Q, D] with N of 1 and Q of 2 at least, got {list(targets.shape)}")
    count, vectors, width = targets.shape
    step = max(_CHUNK_VALUES // (vectors * width), 1)
    total = 0.0  # over the pairs q != r of an image's vectors
    for start in range(0, count, step):
        part = np.asarray(targets[start : start + step], dtype=np.float64)
        norms = np.linalg.norm(part, axis=2, keepdims=True)
        if not np.all(norms > 0) or not np.isfinite(norms).all():
            raise ValueError("a target vector is zero or not finite")
        resultant = (part / norms).sum(axis=1)
        total += float((resultant**2).sum()) - len(part) * vectors
    return float(total / (count * vectors * (vectors - 1)))
