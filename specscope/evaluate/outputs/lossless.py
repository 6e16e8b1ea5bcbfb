"""Whether speculation left the output alone: the distribution it must keep, and tests of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def near_tie(margin: float, logit_error: float) -> bool:
    """Whether the two best logits lie too close for greedy decoding to be defined: within twice
    the largest difference that the same prefix showed between verify widths."""
    return margin <= 2.0 * logit_error
