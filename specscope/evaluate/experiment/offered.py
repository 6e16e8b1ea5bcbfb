"""What live traffic offered to each block, to be held equal between the arms of a pair.

Requests arrive by themselves, so a block that happened to be offered more is slower in either arm.
That may be taken out of a contrast only where the arm cannot have caused it. What the store knows
are the requests *admitted* in a block. They are the offered ones where the engine keeps up. At
saturation, and where clients wait for answers, a faster arm admits more: they are the effect
itself, and nothing is held equal. A cohort is the same work in both arms, so there is nothing to
hold. Batch, queue and step time depend on the arm everywhere and are never used.

Output tokens of admitted requests are offered too: speculation leaves outputs as they are.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from specscope.evaluate.experiment import objectives
from specscope.evaluate.experiment.blocks import BlockTime
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.statistics import sequential
from specscope.evaluate.statistics.covariates import adjust
from specscope.evaluate.statistics.ratio import Floats, LogRatio, paired_log_ratio, weighted

# Pairs from which on slopes are worth their degrees of freedom.
FEWEST_PAIRS = 20
# A traffic that differs between the arms at this level, at any look, is not left alone by them.
UNEVEN = 0.05


@dataclass(frozen=True, slots=True)
class Held:
    """A contrast with the traffic held equal, and what that was, in words."""

    contrast: LogRatio
    what: str


@dataclass(frozen=True, slots=True)
class Offered:
    """The block before each block on its boot, by (replica, boot, when it began)."""

    before: Mapping[tuple[str, str, int], BlockTime]

    def hold_equal(
        self, contrast: LogRatio, pairs: Sequence[Pair], arm: str, baseline: str
    ) -> Held | None:
        """A contrast of these pairs, all of which ran both arms, adjusted for their traffic.

        None if pairs are few, an arm does not keep up with its arrivals, the traffic differs
        between the arms beyond chance, or what was offered more was not slower.
        """
        ones, bases = ([pair.blocks[name] for pair in pairs] for name in (arm, baseline))
        saturated = max(map(objectives.saturation, (ones, bases)))
        if len(pairs) < FEWEST_PAIRS or saturated >= 1.0:
            return None
        earlier = [[self._earlier(block) for block in row] for row in (ones, bases)]
        everywhere = [*ones, *bases, *(b for row in earlier for b in row if b is not None)]
        quantity, name = (
            (_output_tokens, "output tokens asked")
            if all(_output_tokens(block) for block in everywhere)
            else (_requests, "requests")
        )
        if not all(quantity(block) for block in (*ones, *bases)):
            return None
        now = np.array([[quantity(block) for block in row] for row in (ones, bases)])
        alone = np.ones(len(pairs))
        if sequential.p_value(paired_log_ratio(now[0], alone, now[1], alone)) < UNEVEN:
            return None
        lagged = [
            math.log(quantity(one) / quantity(base))
            if one is not None and base is not None and quantity(one) and quantity(base)
            else 0.0  # what it is on average
            for one, base in zip(*earlier, strict=True)
        ]
        columns: Floats = np.column_stack([np.log(now[0] / now[1]), lagged])
        if adjust(contrast, columns[:, 0]) is contrast:
            return None  # what is faster was asked for more: that is no open traffic
        # The nearer to saturation, the less of what was admitted is what was offered.
        adjusted = weighted(contrast, adjust(contrast, columns), saturated)
        also = " and of the block before" if any(lagged) else ""
        return Held(adjusted, f"{name} of the block{also}")

    def _earlier(self, block: BlockTime) -> BlockTime | None:
        return self.before.get((block.replica, block.boot, block.first_at))


def offered_to(pairs: Iterable[Pair]) -> Offered:
    """What the blocks of all pairs, of every segment, were offered one after the other."""
    lines: dict[tuple[str, str], dict[int, BlockTime]] = defaultdict(dict)
    for pair in pairs:
        for _, block in sorted(pair.blocks.items()):
            lines[block.replica, block.boot][block.first_at] = block
    before = {}
    for place, line in lines.items():
        times = sorted(line)
        for earlier, later in pairwise(times):
            one = line[earlier]
            # Blocks follow each other but for a beginning that is left out, a quarter of them.
            if one.last_at <= later <= one.last_at + (one.last_at - one.first_at):
                before[(*place, later)] = one
    return Offered(before)


def _requests(block: BlockTime) -> float:
    """Requests that a replica's block admitted; 0 for none."""
    return block.requests / block.merged


def _output_tokens(block: BlockTime) -> float:
    """What they asked for, once all of them have ended; 0 before, and where it is not known."""
    if block.ended_requests != block.requests or not block.output_tokens:
        return 0.0
    return block.output_tokens / block.merged
