"""Classes that share a batch: their shares, and their tokens per round at each draft length."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from specscope.evaluate.experiment.blocks import BlockPart
from specscope.evaluate.proposal.rounds import PairOfReplica
from specscope.evaluate.statistics.acceptance import survival

Floats = NDArray[np.float64]

Steady = Literal["tokens", "rows"]
"""What of a class stays the same whatever the arm: its share of the tokens, if requests come in a
mix of their own; or its share of the rows, if each class has clients that wait for answers."""

FEWEST_ROUNDS = 100  # of requests at a draft length, from which on its tokens a round are measured


@dataclass(frozen=True, slots=True)
class Traffic:
    """Classes of mixed traffic.

    share: share of each class in the quantity that the arms leave constant; sums to 1. tokens:
    [classes, 0..longest] tokens per request-round, rising with k from 1; nan beyond the longest
    draft that the class ran. drafted: drafted share of k, below 1 if texts end or lookups find
    nothing. [0..1]
    """

    classes: tuple[str, ...]
    steady: Steady
    share: Floats
    tokens: Floats
    drafted: Floats

    @property
    def longest(self) -> int:
        """Longest draft that any class ran. [tokens]"""
        return int(self.tokens.shape[1]) - 1


class TrafficData:
    """Counts of each class by pair, arm and draft length, prepared for any choice of pairs."""

    def __init__(self, parts: Sequence[BlockPart], keys: Sequence[PairOfReplica]) -> None:
        """parts: rows of any blocks; pairs outside `keys` are dropped."""
        place = {key: index for index, key in enumerate(keys)}
        by_block: dict[tuple[int, str, str], list[BlockPart]] = defaultdict(list)
        for part in parts:
            if (pair := place.get(_key(part))) is not None:
                by_block[pair, part.arm, part.class_].append(part)
        self.classes = tuple(sorted({class_ for _, _, class_ in by_block}))
        lengths = {block: _length(of_block) for block, of_block in by_block.items()}
        self.longest = max(lengths.values(), default=0)
        arms = sorted({arm for _, arm, _ in by_block})
        shape = (len(keys), len(self.classes), self.longest + 1)
        deepest = max((len(part.tested) for part in parts), default=0)
        self._rounds, self._emitted, self._proposed = (np.zeros(shape) for _ in range(3))
        self._tested, self._kept = (np.zeros((*shape[:2], max(1, deepest))) for _ in range(2))
        self._by_arm = np.zeros((2, len(keys), len(arms), len(self.classes)))
        for (pair, arm, class_), of_block in by_block.items():
            at = pair, self.classes.index(class_)
            k = lengths[pair, arm, class_]
            for part in of_block:
                self._rounds[*at, k] += part.request_rounds
                self._emitted[*at, k] += part.emitted
                self._proposed[*at, k] += part.proposed
                self._tested[*at, : len(part.tested)] += part.tested
                self._kept[*at, : len(part.kept)] += part.kept
                counted = part.request_rounds, part.emitted
                self._by_arm[:, pair, arms.index(arm), at[1]] += counted

    def of(self, chosen: NDArray[np.int64] | None = None) -> Traffic:
        """The traffic of these pairs, given by their index in `keys`; None takes all."""
        places = np.arange(len(self._rounds)) if chosen is None else chosen
        rounds, emitted, proposed, tested, kept = (
            counts[places].sum(axis=0)
            for counts in (self._rounds, self._emitted, self._proposed, self._tested, self._kept)
        )
        by_arm = self._by_arm[:, places].sum(axis=1)
        steady, share = _steady(by_arm)
        lengths = np.arange(self.longest + 1)
        wanted = rounds @ lengths
        return Traffic(
            classes=self.classes,
            steady=steady,
            share=share,
            tokens=np.array(
                [
                    _tokens(rounds[c], emitted[c], tested[c], kept[c])
                    for c in range(len(self.classes))
                ]
            ).reshape(len(self.classes), self.longest + 1),
            drafted=np.divide(
                proposed.sum(axis=1), wanted, out=np.ones(len(wanted)), where=wanted > 0
            ).clip(0.0, 1.0),
        )


def class_shares(parts: Iterable[BlockPart]) -> Mapping[str, float]:
    """Share of request-rounds by class, the largest first. [0..1]"""
    rounds: dict[str, int] = defaultdict(int)
    for part in parts:
        rounds[part.class_] += part.request_rounds
    total = sum(rounds.values())
    ordered = sorted(rounds.items(), key=lambda item: (-item[1], item[0]))
    return {name: count / total for name, count in ordered} if total else {}


def _key(part: BlockPart) -> PairOfReplica:
    return part.policy, part.replica, part.boot, part.pair


def _length(parts: Sequence[BlockPart]) -> int:
    """The draft length of a class in a block: the one of most of its rounds.

    The last rounds of a text draft less; they do not describe shorter drafts in the middle of a
    text.
    """
    rounds: dict[int, int] = defaultdict(int)
    for part in parts:
        rounds[part.k] += part.request_rounds
    return max(rounds, key=lambda k: (rounds[k], k))


def _steady(by_arm: Floats) -> tuple[Steady, Floats]:
    """Choose the quantity that the arms leave constant (request-rounds or tokens); returns it with
    the classes' shares.

    by_arm: request-rounds and tokens. [2, arms, classes]
    """
    totals = by_arm.sum(axis=2, keepdims=True)
    shares = np.divide(by_arm, totals, out=np.zeros_like(by_arm), where=totals > 0)
    weight = totals[..., 0] / np.maximum(totals[..., 0].sum(axis=1, keepdims=True), 1.0)
    mean = np.einsum("wa,wac->wc", weight, shares)
    spread = np.einsum("wa,wac->w", weight, (shares - mean[:, None]) ** 2)
    rows, tokens = mean
    return ("rows", rows) if spread[0] < spread[1] else ("tokens", tokens)


def _tokens(rounds: Floats, emitted: Floats, tested: Floats, kept: Floats) -> Floats:
    """Tokens per request-round, by draft length. [0..longest]

    A length that ran has its measured value. Lengths in between have the product-limit estimate,
    scaled by measured over estimated values of their neighbours. nan beyond the longest that ran.
    """
    at_risk, kept_of_them = tested.astype(int), np.minimum(kept, tested).astype(int)
    curve = survival([at_risk.tolist()], [kept_of_them.tolist()]).survival
    expected = np.concatenate([[1.0], 1.0 + np.cumsum(curve)])
    tokens = np.full(len(rounds), np.nan)
    reach = min(len(expected), len(rounds))
    measured = [k for k in range(1, reach) if rounds[k] >= FEWEST_ROUNDS]
    ratios = [emitted[k] / rounds[k] / expected[k] for k in measured]
    tokens[:reach] = expected[:reach] * np.interp(np.arange(reach), [0, *measured], [1.0, *ratios])
    return tokens
