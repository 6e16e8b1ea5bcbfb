"""Less noise from what was known before a block began: the traffic that it was offered."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from specscope.evaluate.ratio import LogRatio


def adjust(contrast: LogRatio, covariates: ArrayLike) -> LogRatio:
    """Regress a paired contrast on pair differences of covariates (CUPED).

    covariates: [pairs] or [pairs, m], arm minus baseline, such as the log of offered tokens in
    the block and of those in the half block before. They must not depend on the arm: batch,
    queue length and step time do. Returns a contrast of fewer degrees of freedom with the
    covariates held equal; the contrast itself where pairs are too few or nothing varies.
    Source: Deng, Xu, Kohavi & Walker 2013.
    """
    x = np.asarray(covariates, dtype=np.float64).reshape(contrast.pairs, -1)
    pairs, width = x.shape
    spread = x.std(axis=0)
    x = x[:, spread > 1e-12 * (1.0 + np.abs(x).max(axis=0))]
    if contrast.se is None or pairs < width + 3 or x.shape[1] == 0:
        return contrast
    centred = x - x.mean(axis=0)
    slopes, *_ = np.linalg.lstsq(centred, contrast.scores * pairs, rcond=None)
    scores = contrast.scores - centred @ slopes / pairs
    freedom = pairs - 1 - x.shape[1]
    se = math.sqrt(pairs / freedom * float(scores @ scores))
    return LogRatio(contrast.delta - float(x.mean(axis=0) @ slopes), se, scores)
