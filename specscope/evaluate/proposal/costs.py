"""Fit the cost of a round of a mixed batch to rounds of a few arms.

Time is a sum of parts with coefficients of at least 0:

    verify   a convex function of the width of the pass, plus a share for each cached token
    draft    (1, longest draft, tokens drafted, tokens that rows draft less than the longest)
    the rest (1, sequences, 1 if the round drafts, prompt tokens)

The width is n_q plus a share of the padding up to the longest draft. The share is 0 on an engine
that packs rows, and 1 on one that pads them. Only rounds of unequal draft lengths distinguish the
two, by their times or by the engine's own count of padded tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls

from specscope.evaluate.proposal.rounds import PairOfReplica, RoundSums

Floats = NDArray[np.float64]

PADDING = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of the padding that are tried."""
UNEQUAL = 0.05  # of the tokens of full drafts that rows must miss before times tell of padding
COUNTED = 0.005  # the same, before the engine's own count does
KNOTS = (0.15, 0.3, 0.45, 0.6, 0.75, 0.9)
"""Quantiles of the widths at which the time of a verify pass may grow steeper."""
SWEEPS = 4  # of fitting costs and the speed of each pair by turns; three change nothing more
_RIDGE = 1e-9  # of a coefficient's own weight, so that columns that are the same cause no fault


@dataclass(frozen=True, slots=True)
class Shapes:
    """Rounds as columns, one entry per kind of round. [kinds] The first column counts rounds; all
    others describe one round.

    short: draft tokens that its rows lack to the longest draft. drafts: 1 if the round drafts, 0 if
    not, or the probability.
    """

    rounds: Floats
    batch: Floats
    longest: Floats
    drafted: Floats
    short: Floats
    n_kv: Floats
    prompt: Floats
    drafts: Floats

    @classmethod
    def of(cls, rows: Sequence[RoundSums]) -> Shapes:
        """The shapes of rounds that ran."""
        columns = np.array(
            [
                (r.rounds, r.batch, r.k, r.drafted, r.short, r.n_kv / r.rounds,
                 r.prefill_tokens / r.rounds, float(r.k > 0))
                for r in rows
            ],
            dtype=np.float64,
        ).reshape(-1, 8)  # fmt: skip
        return cls(*columns.T)

    def width(self, padding: float) -> Floats:
        """Query positions of the verify pass, with the computed share of the padding."""
        return self.batch + self.drafted + padding * self.short


@dataclass(frozen=True, slots=True)
class RoundCosts:
    """Fitted time of a round. [us]

    padding: computed share of the padding, 0..1; None if the data cannot tell. told: whether it
    comes from the engine's own count of padded tokens. knots: widths at which the verify time gets
    steeper. weights: weights of the features of a round.
    """

    padding: float | None
    told: bool
    knots: Floats
    weights: Floats

    def time_us(self, shapes: Shapes, padding: float | None = None) -> Floats:
        """Time of a round of each shape. [us] padding: share to assume if the data cannot tell."""
        share = padding if self.padding is None else self.padding
        columns = np.column_stack(_columns(shapes, share or 0.0, self.knots))
        assumed = columns @ self.weights
        if self.padding is None and share:
            # Rows that draft less then cost the draft as much as if they did not.
            assumed += share * self.weights[_DRAFTED] * shapes.short
        return assumed


_DRAFTED = -2  # place of a feature


def _places(part: str, features: int) -> NDArray[np.int64]:
    """The features of each part's time.

    The rest has a fixed share, and a share of rounds that draft. If the draft of a whole round has
    no time of its own, only the number of its steps is a feature, because the width already
    includes the drafted tokens.
    """
    every = np.arange(features)
    chosen = {
        "verify": every[:-6],
        "rest": every[[0, -6, -5, -4]],
        "draft": every[-4:],
        "steps": every[[-4, -3]],
    }
    return chosen[part]


def _columns(shapes: Shapes, padding: float, knots: Floats) -> list[Floats]:
    """The features of a round: verify pass, the rest, draft; each [kinds]."""
    width = shapes.width(padding)
    return [
        np.ones_like(width),
        width,
        *(np.maximum(0.0, width - knot) for knot in knots),
        shapes.n_kv,
        # the rest
        shapes.batch,
        shapes.prompt,
        # draft
        shapes.drafts,
        shapes.longest,
        shapes.drafted,
        shapes.short,
    ]


class CostData:
    """Rounds of whole pairs, prepared for fits to any choice of pairs.

    All rows of one pair share a speed factor, because a slow phase of the machine is no cost of an
    arm.
    """

    def __init__(self, rows: Sequence[RoundSums]) -> None:
        """rows: at least one; ValueError if there is none.

        Counted padding need not cost time, because some engines only pad attention. So times decide
        if they can; the count is used only if too few drafts were unequal.
        """
        if not rows:
            raise ValueError("no rounds to fit costs to")
        rows = sorted(rows, key=lambda row: row.key)
        self.keys: list[PairOfReplica] = list(dict.fromkeys(row.key for row in rows))
        place = {key: index for index, key in enumerate(self.keys)}
        self._of = np.array([place[row.key] for row in rows])
        self._shapes = Shapes.of(rows)
        self._times = _times(rows)
        full = sum(row.rounds * row.batch * row.k for row in rows)
        missing = sum(row.rounds * row.short for row in rows)
        timed = missing >= UNEQUAL * full > 0
        self.told = _told(rows) if not timed and missing >= COUNTED * full else None
        self.known = timed or self.told is not None
        self._paddings = PADDING if timed else (self.told or 0.0,)
        self._knots = {share: _knots(self._shapes, share) for share in self._paddings}
        self._speeds = np.ones(len(self.keys))
        self._grams = {share: self._gram(share) for share in self._paddings}
        for _ in range(SWEEPS):
            self._even_out()

    def fit(self, chosen: NDArray[np.int64] | None = None) -> RoundCosts:
        """Fit to these pairs, given by their index in `keys`; repeats count again. None fits
        all."""
        places = np.arange(len(self.keys)) if chosen is None else chosen
        fitted = []
        for share in self._paddings:
            solved = [gram.solve(places) for gram in self._grams[share]]
            loss = sum(one.loss for one in solved)
            fitted.append((loss, share, sum(one.weights for one in solved)))
        _, share, weights = min(fitted, key=lambda one: one[:2])
        return RoundCosts(
            padding=share if self.known else None,
            told=self.told is not None,
            knots=self._knots[share],
            weights=np.asarray(weights),
        )

    def _gram(self, share: float) -> list[_Gram]:
        columns = np.column_stack(_columns(self._shapes, share, self._knots[share]))
        return [
            _Gram.of(columns, names, time, self._shapes.rounds, self._of, self._speeds)
            for names, time in self._times
        ]

    def _even_out(self) -> None:
        """The speed factor of each pair: its time over the prediction of the fit to all pairs."""
        costs = self.fit()
        count = len(self.keys)
        expected = costs.time_us(self._shapes) * self._shapes.rounds
        took = sum(time for _, time in self._times)
        ran = np.bincount(self._of, weights=took, minlength=count)
        asked = np.bincount(self._of, weights=expected, minlength=count)
        self._speeds = np.where(asked > 0, ran / np.maximum(asked, 1e-300), 1.0)
        self._grams = {one: self._gram(one) for one in self._paddings}

    @property
    def speeds(self) -> dict[PairOfReplica, float]:
        """Time of each pair over the predicted time of its rounds. [ratio]"""
        return dict(zip(self.keys, map(float, self._speeds), strict=True))


@dataclass(frozen=True, slots=True)
class _Solved:
    weights: Floats
    loss: float


@dataclass(frozen=True, slots=True)
class _Gram:
    """Sums of products of features and times, by pair: the input of a least-squares fit."""

    places: NDArray[np.int64]
    features: int
    xx: Floats
    xy: Floats
    yy: Floats

    @classmethod
    def of(
        cls,
        columns: Floats,
        groups: tuple[str, ...],
        time: Floats,
        rounds: Floats,
        pairs: NDArray[np.int64],
        speeds: Floats,
    ) -> _Gram:
        """columns: [kinds, features] features of one round. time: sums over rounds. pairs: index of
        each kind's pair, in rising order. [kinds]"""
        places = np.unique(np.concatenate([_places(name, columns.shape[1]) for name in groups]))
        root = np.sqrt(rounds)[:, None]
        x = columns[:, places] * root
        y = time / speeds[pairs] / root[:, 0]
        begins = np.flatnonzero(np.diff(pairs, prepend=-1))
        products = [
            np.add.reduceat(one, begins, axis=0)
            for one in (x[:, :, None] * x[:, None, :], x * y[:, None], y**2)
        ]
        return cls(places, columns.shape[1], *products)

    def solve(self, chosen: NDArray[np.int64]) -> _Solved:
        """Weights of all features; features of other parts get 0."""
        xx, xy = self.xx[chosen].sum(axis=0), self.xy[chosen].sum(axis=0)
        scale = np.sqrt(np.diag(xx))
        scale[scale == 0.0] = 1.0
        upper = cholesky(xx / np.outer(scale, scale) + _RIDGE * np.eye(len(scale)))
        target = solve_triangular(upper, xy / scale, trans="T")
        solved, _ = nnls(upper, target)
        own = solved / scale
        loss = float(self.yy[chosen].sum() - 2.0 * own @ xy + own @ xx @ own)
        weights = np.zeros(self.features)
        weights[self.places] = own
        return _Solved(weights, loss)


def _times(rows: Sequence[RoundSums]) -> list[tuple[tuple[str, ...], Floats]]:
    """The parts with known times [us], with the groups of features of each."""
    wall = np.array([row.wall_us for row in rows], dtype=np.float64)
    if any(row.verify_us is None or row.draft_us is None for row in rows):
        return [(("verify", "rest", "steps"), wall)]
    verify = np.array([row.verify_us for row in rows], dtype=np.float64)
    draft = np.array([row.draft_us for row in rows], dtype=np.float64)
    rest = np.maximum(0.0, wall - verify - draft)
    return [(("verify",), verify), (("draft",), draft), (("rest",), rest)]


def _told(rows: Sequence[RoundSums]) -> float | None:
    """Computed share of the padding according to the engine's count, 0..1; None without a count.

    It is the slope of counted padded tokens over the tokens that rows draft less. So padding for
    other reasons, such as graph sizes, does not enter. A count of 0 everywhere means nothing,
    because an engine that does not count reports 0 too.
    """
    rounds = np.array([row.rounds for row in rows], dtype=np.float64)
    short = np.array([row.short for row in rows], dtype=np.float64)
    padded = np.array([row.padded_tokens for row in rows], dtype=np.float64) / rounds
    if not padded.any():
        return None
    centred = short - np.average(short, weights=rounds)
    spread = float(rounds @ centred**2)
    slope = float(rounds @ (centred * padded)) / spread if spread else 0.0
    return min(1.0, max(0.0, slope))


def _knots(shapes: Shapes, padding: float) -> Floats:
    width = shapes.width(padding)
    order = np.argsort(width)
    below = np.cumsum(shapes.rounds[order]) / shapes.rounds.sum()
    places = np.minimum(np.searchsorted(below, KNOTS), len(width) - 1)
    return np.unique(width[order][places])
