"""The autopilot's settings and state, as part of a policy.

The policy contains the state, so a restarted service continues where the last one stopped. A policy
from anybody else ends the autopilot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from specscope.errors import UsageError
from specscope.policy.arms import PolicyArm
from specscope.policy.table import read_table

KEY = "autopilot"


@dataclass(frozen=True, slots=True)
class AutopilotState:
    """Settings, and the state after a step.

    arms: candidates, without `k0` and the table in force, which always run. budget: share of
    capacity that may be lost, 0..1. worst: assumed loss of an arm without evidence, 0..1. applies:
    whether it changes the table; otherwise it proposes. block_s, window_h: lengths of a block and
    of a window. began: begin of the accounting, ns since 1970. since: blocks from here on count as
    evidence, ns since 1970. first: the first policy of these blocks. spent_s: upper limit of the
    cost of blocks before `first`, in seconds of capacity. stopped: stopped arms, with the reason.
    epoch: epoch of the evidence; empty before any. rests: whether there is no candidate until
    something changes. closed_loop: whether clients wait for their answers.
    """

    arms: tuple[PolicyArm, ...]
    budget: float
    worst: float
    applies: bool
    block_s: float
    window_h: float
    began: int
    since: int
    first: int
    spent_s: float = 0.0
    stopped: tuple[tuple[str, str], ...] = ()
    epoch: str = ""
    rests: bool = False
    closed_loop: bool = False

    def as_json(self) -> dict[str, Any]:
        """The JSON values in a policy."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        arms = {"arms": [arm.as_json() for arm in self.arms], "stopped": dict(self.stopped)}
        return {KEY: plain | arms, "closed_loop": self.closed_loop}

    def resting(self) -> AutopilotState:
        """The state without candidates."""
        return replace(self, rests=True)


def autopilot_state(body: Mapping[str, Any]) -> AutopilotState | None:
    """The state in a policy; None if no autopilot wrote it, or if it is unreadable."""
    raw = body.get(KEY)
    if not isinstance(raw, dict):
        return None
    try:
        known = {name: raw[name] for name in AutopilotState.__dataclass_fields__ if name in raw}
        return AutopilotState(
            **known
            | {
                "arms": tuple(map(_arm, raw["arms"])),
                "stopped": tuple((str(k), str(v)) for k, v in dict(raw["stopped"]).items()),
            }
        )
    except (KeyError, TypeError, ValueError, AttributeError, UsageError):
        return None


def _arm(raw: Mapping[str, Any]) -> PolicyArm:
    if raw.get("table") is not None:
        return PolicyArm(raw["name"], table=read_table(raw))
    return PolicyArm(raw["name"], cells=read_table({"table": raw.get("cells") or []}).cells)
