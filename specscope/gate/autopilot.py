"""The autopilot: try arms within a budget of lost capacity, one window after the other.

A window is an experiment with a few randomly drawn pairs and every remaining candidate arm. Between
windows the autopilot checks the verdicts. It stops arms that lose with confidence, and proposes or
applies a table that is better with confidence. The cost of an arm counts at the upper end of its
interval, or as `worst` before it has one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from specscope.evaluate.experiment import contrast
from specscope.evaluate.experiment.blocks import BASELINE, IN_FORCE, BlockTime
from specscope.evaluate.experiment.pairs import Pair
from specscope.gate.recommend import Recommendation
from specscope.gate.show import diff_lines
from specscope.gate.standings import (
    ArmStanding,
    behind_chosen,
    in_time,
    incumbent_of,
    standings_of,
)
from specscope.policy.arms import PolicyArm
from specscope.policy.autopilot import AutopilotState
from specscope.policy.stored import HoldOut, StoredPolicy, next_table
from specscope.policy.table import GateTable

AUTHOR = "autopilot"
LARGEST_SHARE = 0.2  # of the pairs: most of the traffic is always served by the table in force
GROWTH = 0.1  # by which the blocks grow between two looks
FEWEST = 4  # blocks between them
RECENT = 20  # pairs that are held against those before them
DRIFT_Z = 4.5  # standard errors between the two; it is looked for after every pair
REST_DAYS = 7.0  # after which it starts again, whatever the pairs of its rest say
BLIND_DAYS = 2.0  # the same if the budget allows no pair while it rests
NEWS = 16  # blocks between two looks while it rests


class PilotStepKind(StrEnum):
    """The next action of the autopilot."""

    WINDOW = "window"
    PROPOSE = "propose"
    APPLY = "apply"
    REST = "rest"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class PilotStep:
    """A step: its new policy, and the reason in a sentence."""

    kind: PilotStepKind
    why: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sight:
    """The evidence that the autopilot reads.

    replicas: number that serve now. epoch: their epoch; empty if unknown. blocks: number of blocks
    of the policies since the state's first one. advice: recommendation from these blocks; None
    without blocks. drifted: an arm whose effect has changed; None if there is none.
    """

    replicas: int
    epoch: str = ""
    blocks: Sequence[BlockTime] = ()
    advice: Recommendation | None = None
    drifted: str | None = None


def next_step(
    state: AutopilotState,
    current: StoredPolicy,
    policies: Sequence[StoredPolicy],
    sight: Sight,
    now: int,
) -> PilotStep | None:
    """The next step after the policy `current`, which holds the state; None to wait.

    now: ns since 1970.
    """
    table = current.table_at(now)
    moved = bool(state.epoch and sight.epoch and sight.epoch != state.epoch)
    if moved or sight.drifted:
        why = "a deploy changed the engine" if moved else f"the effect of {sight.drifted} changed"
        return _window(_anew(state, sight, table, policies, now), policies, table, sight, now, why)
    if state.rests:
        rested_days = (now - current.created_at) / (86_400 * 1e9)
        most_days = REST_DAYS if current.body.get("share") else BLIND_DAYS
        if rested_days < most_days:
            return None
        fresh = _anew(state, sight, table, policies, now)
        return _window(fresh, policies, table, sight, now, f"{most_days:.0f} days of rest are over")
    state = replace(state, epoch=state.epoch or sight.epoch)
    standings = standings_of(state, table, sight.advice)
    over = {name for name, _ in state.stopped}
    losing = tuple((one.name, one.why) for one in standings if one.why and one.name not in over)
    state = replace(state, stopped=(*state.stopped, *losing))
    if sight.advice is not None and sight.advice.changes:
        names = [arm.name for arm in _candidates(state, table)]
        behind = behind_chosen(sight.advice, names)
        if set(behind) >= set(names):
            return _change(state, policies, sight.advice, sight, now)
        losing = (*losing, *((name, why) for name, why in behind.items() if why))
        state = replace(state, stopped=tuple({**dict(state.stopped), **dict(losing)}.items()))
    if not _candidates(state, table):
        return _rest(state, policies, table, sight.replicas, now, "no remaining arm may be better")
    if losing:
        said = "; ".join(f"{name} stops: {why}" for name, why in losing)
        return _window(state, policies, table, sight, now, said)
    if current.ended(now):
        return _window(state, policies, table, sight, now, "the window is over")
    if not current.body.get("share"):
        return None  # a pause
    if spent_s(state, standings, sight.blocks) >= allowance_s(state, sight.replicas, _end(current)):
        why = "the budget of this window is spent: no trial runs until its end"
        return _pause(state, policies, table, _end(current), now, why)
    return None


def worth_a_look(state: AutopilotState, window_over: bool, blocks: int, looked_at: int) -> bool:
    """Whether there are enough new blocks for another look."""
    more = NEWS if state.rests else max(FEWEST, GROWTH * looked_at)
    return window_over or blocks > looked_at + more


def spent_s(
    state: AutopilotState, standings: Sequence[ArmStanding], blocks: Sequence[BlockTime]
) -> float:
    """Upper limit of the arms' cost since the accounting began. [s of capacity]"""
    lost = {one.name: one.lost for one in standings}
    return state.spent_s + state.block_s * sum(lost.get(block.arm, 0.0) for block in blocks)


def allowance_s(state: AutopilotState, replicas: int, until: int) -> float:
    """Seconds of capacity that may be lost until a time, ns since 1970."""
    return state.budget * replicas * (until - state.began) / 1e9


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """One window: its arms, its number of pairs, and the experimental share of them.

    affordable: pairs over all replicas that the budget allows.
    """

    arms: tuple[str, ...]
    pairs: int
    share: float
    affordable: int


def plan_window(
    state: AutopilotState,
    table: GateTable,
    standings: Sequence[ArmStanding],
    blocks: Sequence[BlockTime],
    replicas: int,
    now: int,
) -> WindowPlan:
    """Plan the next window so that the budget holds at its end.

    If the budget allows no pair with all arms, the worst arms are left out.
    """
    incumbent = incumbent_of(table)
    spent = spent_s(state, standings, blocks)
    window_s = 3600.0 * state.window_h
    left = allowance_s(state, replicas, now + round(window_s * 1e9)) - spent
    names = {arm.name for arm in _candidates(state, table)}
    ordered = sorted((one for one in standings if one.name in names), key=lambda one: one.lost)
    base = [one for one in standings if one.name == BASELINE]
    for count in range(len(ordered), 0, -1):
        chosen = [*base, *ordered[:count]]
        cost = state.block_s * sum(one.lost for one in chosen)
        affordable = math.floor(max(0.0, left) / cost) if cost > 0 else 10**6
        arms = tuple(dict.fromkeys((BASELINE, incumbent, *(one.name for one in chosen))))
        pairs = max(1, int(window_s // (len(arms) * state.block_s)))
        if affordable or count == 1:
            share = min(LARGEST_SHARE, affordable / (pairs * max(1, replicas)))
            return WindowPlan(arms, pairs, share, affordable)
    raise AssertionError("a window has a candidate")


def drifted_arm(pairs: Sequence[Pair], arms: Sequence[str], incumbent: str) -> str | None:
    """The arm whose effect in the newest pairs differs from its earlier effect; None if there is
    none.

    The threshold on fixed-time errors is so high that repeated looks do not reach it by chance.
    """
    ordered = in_time(pairs)
    for arm in arms:
        both = [pair for pair in ordered if arm in pair.blocks and incumbent in pair.blocks]
        if arm == incumbent or len(both) < 2 * RECENT:
            continue
        old = contrast.log_ratio(both[:-RECENT], arm, incumbent)
        new = contrast.log_ratio(both[-RECENT:], arm, incumbent)
        if old is None or new is None or old.se is None or new.se is None:
            continue
        if abs(new.delta - old.delta) > DRIFT_Z * math.hypot(old.se, new.se):
            return arm
    return None


def first_step(
    state: AutopilotState,
    policies: Sequence[StoredPolicy],
    table: GateTable,
    replicas: int,
    now: int,
) -> PilotStep:
    """The first window of a new autopilot. now: ns since 1970."""
    return _window(state, policies, table, Sight(replicas), now, "the autopilot starts")


def _candidates(state: AutopilotState, table: GateTable) -> list[PolicyArm]:
    """Candidate arms: neither stopped nor already in force."""
    stopped = {name for name, _ in state.stopped}
    idle = {BASELINE, *stopped}
    return [arm for arm in state.arms if arm.name not in idle and arm.runs(table) != table]


def _end(window: StoredPolicy) -> int:
    span = window.span
    assert span is not None
    assert span[1] is not None
    return span[1]


def _anew(
    state: AutopilotState,
    sight: Sight,
    table: GateTable,
    policies: Sequence[StoredPolicy],
    now: int,
) -> AutopilotState:
    """The state after a restart: the spent budget stays, all else is reset."""
    spent = spent_s(state, standings_of(state, table, sight.advice), sight.blocks)
    return replace(
        state,
        since=now,
        first=max(policy.number for policy in policies) + 1,
        spent_s=spent,
        stopped=(),
        epoch=sight.epoch,
        rests=False,
    )


def _window(
    state: AutopilotState,
    policies: Sequence[StoredPolicy],
    table: GateTable,
    sight: Sight,
    now: int,
    why: str,
) -> PilotStep:
    newest = max((policy.number for policy in policies), default=0)
    fresh = sight if state.first <= newest else Sight(sight.replicas)
    standings = standings_of(state, table, fresh.advice)
    if not _candidates(state, table):
        why = f"{why}; no arm differs from the table in force"
        return _rest(state, policies, table, sight.replicas, now, why)
    plan = plan_window(state, table, standings, fresh.blocks, max(1, sight.replicas), now)
    hold_out = HoldOut(
        plan.share,
        state.block_s,
        state.block_s / 4,
        plan.arms,
        plan.pairs,
        tuple(arm for arm in state.arms if arm.name in plan.arms),
    )
    body = next_table(policies, table, now=now, hold_out=hold_out, author=AUTHOR, **state.as_json())
    restarted = state.since == now
    kind = PilotStepKind.RESTART if restarted else PilotStepKind.WINDOW
    return PilotStep(kind, f"{why}. {plan_words(state, plan)}", body)


def plan_words(state: AutopilotState, plan: WindowPlan) -> str:
    """A window in a sentence."""
    return (
        f"{', '.join(plan.arms)} run in {plan.share:.1%} of the pairs for {state.window_h:g} h: "
        f"{plan.affordable} pairs keep to {state.budget:.1%} of capacity, each arm at its worst"
        if plan.affordable
        else f"the budget of {state.budget:.1%} allows no pair yet; it grows with time"
    )


def _change(
    state: AutopilotState,
    policies: Sequence[StoredPolicy],
    advice: Recommendation,
    sight: Sight,
    now: int,
) -> PilotStep:
    reasons = "; ".join(dict.fromkeys(move.why for move in advice.changes))
    lines = ", ".join(diff_lines(advice.old, advice.new))
    if not state.applies:
        why = f"proposes {lines} ({reasons}): see `specscope gate recommend`, then `gate apply`"
        step = _rest(state, policies, advice.old, sight.replicas, now, why)
        return replace(step, kind=PilotStepKind.PROPOSE)
    fresh = _anew(state, sight, advice.old, policies, now)
    step = _window(fresh, policies, advice.new, sight, now, f"applies {lines} ({reasons})")
    return replace(step, kind=PilotStepKind.APPLY)


def _rest(
    state: AutopilotState,
    policies: Sequence[StoredPolicy],
    table: GateTable,
    replicas: int,
    now: int,
    why: str,
) -> PilotStep:
    """Rest: no candidate remains, and a few pairs of all arms continue to detect a change.

    They are so few that the budget holds even if every arm reaches its worst loss.
    """
    arms = [arm for arm in state.arms if arm.runs(table) != table]
    names = tuple(dict.fromkeys((BASELINE, incumbent_of(table), *(arm.name for arm in arms))))
    share = min(LARGEST_SHARE, state.budget * len(names) / (state.worst * (len(names) - 1)))
    pairs = max(1, int(86_400 * REST_DAYS // (len(names) * state.block_s)))
    hold_out = None
    if share * pairs * replicas >= 1 and arms:
        hold_out = HoldOut(share, state.block_s, state.block_s / 4, names, pairs, tuple(arms))
    body = next_table(
        policies, table, now=now, hold_out=hold_out, author=AUTHOR, **state.resting().as_json()
    )
    watch = f"{share:.1%} of the pairs continue, to detect a change" if hold_out else (
        f"it continues after a deploy or in {BLIND_DAYS:.0f} days"
    )  # fmt: skip
    return PilotStep(PilotStepKind.REST, f"{why}; {watch}", body)


def _pause(
    state: AutopilotState,
    policies: Sequence[StoredPolicy],
    table: GateTable,
    until: int,
    now: int,
    why: str,
) -> PilotStep:
    """A window without pairs to the end of the one that it replaces."""
    length_s = max(2.0 * state.block_s, (until - now) / 1e9)
    arms = (BASELINE, IN_FORCE)
    pairs = max(1, int(length_s // (len(arms) * state.block_s)))
    hold_out = HoldOut(0.0, state.block_s, state.block_s / 4, arms, pairs)
    body = next_table(policies, table, now=now, hold_out=hold_out, author=AUTHOR, **state.as_json())
    return PilotStep(PilotStepKind.WINDOW, why, body)
