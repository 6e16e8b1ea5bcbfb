"""The load of each block of live traffic, to correct contrasts for unequal load.

Requests arrive independently of the arm, so a block with more of them is slower in either arm. A
contrast may be corrected for load only if the arm cannot have caused the difference. The store
knows the requests *admitted* in a block. If the engine keeps up, they equal the offered ones. At
saturation, or if clients wait for answers, a faster arm admits more. Then admissions are the effect
itself, and no correction is made. A cohort needs none, because both arms do the same work. Batch,
queue and step time always depend on the arm and are never used.

The output tokens of admitted requests count as load too, because speculation preserves outputs.
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
    """A contrast corrected for traffic, and the corrected quantities, in words."""

    contrast: LogRatio
    what: str


@dataclass(frozen=True, slots=True)
class Offered:
    """The block before each block on its boot, by (replica, boot, when it began)."""

    before: Mapping[tuple[str, str, int], BlockTime]

    def hold_equal(
        self, contrast: LogRatio, pairs: Sequence[Pair], arm: str, baseline: str
    ) -> Held | None:
        """A contrast of these pairs, corrected for their traffic; all pairs ran both arms.

        None in four cases: pairs are few, an arm does not keep up with its arrivals, the traffic
        differs between the arms beyond chance, or more load did not slow an arm down.
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
    """The load of the blocks of all pairs and segments, in the order of time."""
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
    """Requests that a replica's block admitted; 0 without a block."""
    return block.requests / block.merged


def _output_tokens(block: BlockTime) -> float:
    """Output tokens of these requests once all have ended; 0 before that, or if unknown."""
    if block.ended_requests != block.requests or not block.output_tokens:
        return 0.0
    return block.output_tokens / block.merged
