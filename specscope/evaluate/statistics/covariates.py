"""Reduce noise with covariates that an arm cannot influence: the offered load of each block."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import nnls

from specscope.evaluate.statistics.ratio import LogRatio


def adjust(contrast: LogRatio, covariates: ArrayLike) -> LogRatio:
    """Regress a paired contrast on pair differences of covariates (CUPED).

    covariates: [pairs] or [pairs, m], arm minus baseline, such as the log of offered tokens in the
    block and in the block before. They must not depend on the arm, as batch, queue length and step
    time do. More load can only slow an arm down, so slopes are at most 0: a positive slope would
    mean that faster blocks admitted more, which is the effect itself. Returns a corrected contrast
    with fewer degrees of freedom. It returns the contrast unchanged if pairs are too few, nothing
    varies, or nothing is explained. Source: Deng, Xu, Kohavi & Walker 2013.
    """
    x = np.asarray(covariates, dtype=np.float64).reshape(contrast.pairs, -1)
    pairs, width = x.shape
    spread = x.std(axis=0)
    x = x[:, spread > 1e-12 * (1.0 + np.abs(x).max(axis=0))]
    if contrast.se is None or pairs < width + 3 or x.shape[1] == 0:
        return contrast
    centred = x - x.mean(axis=0)
    scale = centred.std(axis=0)
    slopes = -nnls(-centred / scale, contrast.scores * pairs)[0] / scale
    if not slopes.any():
        return contrast
    scores = contrast.scores - centred @ slopes / pairs
    spent = contrast.spent + x.shape[1]
    se = math.sqrt(pairs / (pairs - 1 - spent) * float(scores @ scores))
    delta = contrast.delta - float(x.mean(axis=0) @ slopes)
    return LogRatio(delta, se, scores, spent, own=contrast.own)
