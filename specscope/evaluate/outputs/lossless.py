"""Near ties of greedy decoding."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def near_tie(margin: float, logit_error: float) -> bool:
    """Whether the two best logits are too close for a defined greedy output.

    They are if `margin` is at most twice `logit_error`. That is the largest difference of a logit
    between two verify widths for equal prefixes.
    """
    return margin <= 2.0 * logit_error
