"""Puts a cause behind every loss among verdicts, from what the same blocks say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from specscope.evaluate import signatures
from specscope.evaluate.blocks import BASELINE
from specscope.evaluate.diagnosis import Diagnosis, diagnose, healthiest
from specscope.evaluate.signatures import Signature
from specscope.evaluate.summary import ArmSummary
from specscope.evaluate.verify_signatures import padding, raggedness

Group = tuple[str, str | None]


class Neighbours:
    """What arms reach on other traffic of the same epoch and load."""

    def __init__(self) -> None:
        self._arms: dict[Group, dict[str, list[ArmSummary]]] = defaultdict(
            lambda: defaultdict(list)
        )

    def add(self, group: Group, arms: Sequence[ArmSummary]) -> None:
        """Remember the arms of one segment."""
        for arm in arms:
            self._arms[group][arm.arm].append(arm)

    def tokens(self, group: Group) -> dict[str, float]:
        """Most tokens per round by arm."""
        return healthiest(self._arms[group])

    def first_position(self, group: Group, arm: str) -> float | None:
        """Highest chance that the first position is kept."""
        first = [
            summary.survival.hazard[0]
            for summary in self._arms[group][arm]
            if summary.survival and summary.survival.hazard
        ]
        return max((value for value in first if value is not None), default=None)


def find_causes(
    group: Group, arms: Sequence[ArmSummary], neighbours: Neighbours
) -> tuple[Diagnosis, ...]:
    """A diagnosis of every arm of a segment against its k0; empty without k0."""
    by_name = {arm.arm: arm for arm in arms}
    base = by_name.get(BASELINE)
    if base is None:
        return ()
    reached = neighbours.tokens(group)
    return tuple(
        diagnose(arm, base, reached.get(arm.arm), _seen(arm, base, group, neighbours))
        for arm in arms
        if arm.k
    )


def _seen(
    arm: ArmSummary, base: ArmSummary, group: Group, neighbours: Neighbours
) -> list[Signature]:
    found = [
        signatures.engine_fault(arm.proposed, arm.accepted, arm.emitted, arm.request_rounds),
        padding(arm.padded_share) if arm.padded_share > base.padded_share else None,
        raggedness(arm.emitted, arm.slots, arm.tokens_per_round.value, arm.k or 0),
    ]
    healthy = neighbours.first_position(group, arm.arm)
    if arm.survival is not None and healthy is not None:
        found.append(signatures.draft_mismatch(arm.survival, healthy))
    return [signature for signature in found if signature is not None]
