"""The steward supervises experiments in the service, so that no terminal has to stay open.

It records their begin and end, and ends an experiment that is decided or too expensive. Hooks apply
a policy's end by themselves. So the steward only acts before that, with a new policy.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specscope import queries
from specscope.errors import NumberTaken
from specscope.policy.autopilot import AutopilotState, autopilot_state
from specscope.policy.events import event
from specscope.policy.rollback import stopped
from specscope.policy.stored import StoredPolicy, read_policies
from specscope.store.connection import Store

if TYPE_CHECKING:
    from specscope.assess import Assessment
    from specscope.gate.progress import ExperimentProgress

log = logging.getLogger(__name__)

AUTHOR = "specscope"
HOUR_NS = 3600 * 10**9
LEAST_PAIRS = 4  # below which a cost is noise

Apply = Callable[[Mapping[str, Any], str], object]
"""Puts a policy in force, with a note."""


WATCHED = (
    "epoch", "engine", "engine_version", "target", "draft", "method", "k_max",
    "configuration_digest",
)  # fmt: skip
"""What makes a start of a replica a deploy, if it differs from the start before."""


class Steward:
    """Supervise the newest experiment, and record deploys and guardrails as events."""

    def __init__(self, store: Store, apply: Apply) -> None:
        self._store, self._apply = store, apply
        self._noted: set[tuple[Any, ...]] | None = None  # keys of the store's events, once read
        self._looked = (0, 0)  # policy and blocks of the autopilot's last look
        self._rested = 0  # when it was looked after while it rests, ns since 1970

    def tick(self, judged: Assessment | None, now: int | None = None) -> str | None:
        """Write new events, and end the experiment if its rules demand it.

        judged: the newest assessment; None if there is none yet. now: ns since 1970. Returns the
        reason for an end or for a step of the autopilot; None without either. Raises StoreError;
        the next tick tries again.
        """
        now = time.time_ns() if now is None else now
        policies = read_policies(self._store)
        self._note([*_begun_and_over(policies, now), *self._deploys(), *self._guardrails()])
        state = autopilot_state(policies[-1].body) if policies else None
        if state is not None:
            return self._pilot(policies, state, now)
        experiment = next((one for one in reversed(policies) if one.runs(now)), None)
        if experiment is None or experiment.number != policies[-1].number:
            return None
        return self._end(policies, experiment, judged, now)

    def _end(
        self,
        policies: Sequence[StoredPolicy],
        experiment: StoredPolicy,
        judged: Assessment | None,
        now: int,
    ) -> str | None:
        # numpy and scipy take a second to load; a service without experiments does without.
        from specscope.gate.progress import progress

        seen = progress(self._store, policies, experiment, judged, now)
        why = reason_to_stop(experiment, seen)
        if why is None:
            return None
        body = stopped(policies, experiment, now=now, author=AUTHOR)
        try:
            self._apply(body, f"experiment {experiment.number}: {why}")
        except NumberTaken:
            return None  # a person was faster; the next tick looks at the new policy
        log.info("experiment %d ends: %s", experiment.number, why)
        return why

    def _pilot(
        self, policies: Sequence[StoredPolicy], state: AutopilotState, now: int
    ) -> str | None:
        """Take the autopilot's next step, if there is one. Returns the reason for it."""
        from specscope.gate.autopilot import next_step, worth_a_look
        from specscope.gate.sight import look

        current = policies[-1]
        ran = self._store.rows(queries.block_count(f"policy >= {state.first}"))
        blocks = sum(int(row["blocks"]) for row in ran)
        if self._looked[0] != current.number:
            self._looked = current.number, 0
        idle = state.rests and now - self._rested < HOUR_NS
        due = worth_a_look(state, current.ended(now), blocks, self._looked[1])
        if idle or not (state.rests or due):
            return None
        self._looked, self._rested = (current.number, blocks), now
        sight = look(self._store, state, policies, current.table_at(now), now)
        step = next_step(state, current, policies, sight, now)
        if step is None:
            return None
        try:
            self._apply(step.body, step.why)
        except NumberTaken:
            return None
        log.info("autopilot: %s: %s", step.kind, step.why)
        return step.why

    def _note(self, events: Sequence[dict[str, Any]]) -> None:
        """Write the events that the store lacks; an event's key is everything but its words."""
        if not events:
            return
        if self._noted is None:
            self._noted = {_key(row) for row in self._store.rows(queries.events())}
        new = [one for one in events if _key(one) not in self._noted]
        if new:
            self._store.add("event", new)
            self._noted |= {_key(one) for one in new}

    def _deploys(self) -> list[dict[str, Any]]:
        return deploys(self._store.rows(queries.starts()))

    def _guardrails(self) -> list[dict[str, Any]]:
        return [
            event(
                row["lost_at"],
                "guardrail",
                row["boot"],
                replica=row["replica"],
                note=detail.get("reason", ""),
                policy=detail.get("policy"),
                detail=detail,
            )
            for row in self._store.rows(queries.guardrails())
            for detail in [_mapping(row["detail"])]
        ]


def reason_to_stop(experiment: StoredPolicy, seen: ExperimentProgress) -> str | None:
    """The reason to end an experiment now; None if it should continue."""
    rules = experiment.stop_rules
    if rules.when_decided and seen.exhausted and seen.pairs:
        rare = "" if seen.decided else " but those that are too rare for this window"
        return f"every segment has its answer{rare}"
    cost = seen.cost
    if rules.loss_budget is None or cost is None or cost.spent is None or cost.pairs < LEAST_PAIRS:
        return None
    if cost.spent >= rules.loss_budget:
        return f"{cost.spent:.1%} of its capacity is spent, of {rules.loss_budget:.1%}"
    return None


def deploys(starts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """An event for each boot of a replica with a new epoch or configuration.

    starts: rows of `queries.starts`, oldest first. The first known boot of a replica is no deploy.
    """
    found = []
    before: dict[str, Mapping[str, Any]] = {}
    for boot in starts:
        last = before.get(boot["replica"])
        before[boot["replica"]] = boot
        changed = [] if last is None else [name for name in WATCHED if boot[name] != last[name]]
        if last is not None and changed:
            found.append(
                event(
                    boot["started_at"],
                    "deploy",
                    boot["boot"],
                    replica=boot["replica"],
                    epoch=boot["epoch"],
                    detail={name: [last[name], boot[name]] for name in changed},
                )
            )
    return found


def _begun_and_over(policies: Sequence[StoredPolicy], now: int) -> list[dict[str, Any]]:
    """Events for begun experiments, and for those that reached their last pair."""
    found = []
    for index, policy in enumerate(policies):
        span = None if policy.fault else policy.span
        if span is None or span[1] is None:
            continue
        cut = min((one.created_at for one in policies[index + 1 :]), default=None)
        for at, what in ((span[0], "began"), (span[1], "ended")):
            if at <= now and (cut is None or at < cut):
                number = policy.number
                found.append(
                    event(
                        at, "experiment", f"{number} {what}", policy=number, author=policy.author,
                        detail={"experiment": number, "what": what},
                    )
                )  # fmt: skip
    return found


def _mapping(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["at"], row["kind"], row["subject"], row["replica"]
