"""The numbered, immutable policies in the store, and the next one.

A new table, an experiment and a rollback each get a new number. Sidecars receive the newest policy;
a hook that cannot read it keeps the one before.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specscope import queries
from specscope.errors import UsageError
from specscope.policy.arms import PolicyArm
from specscope.policy.events import policy_event
from specscope.policy.remote import Remote
from specscope.policy.row import policy_row
from specscope.policy.table import GateTable, read_table
from specscope.store.connection import Store
from specscope_hook.errors import PolicyError
from specscope_hook.gate import Gate

# A cohort driver runs fixed lengths and has no table in force.
WITH_TABLE = ("table", "blocks")
LONGEST_BLOCK_S = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class StopRules:
    """Conditions on which the service ends an experiment before its last pair.

    when_decided: every segment has an answer on which a gate may change. loss_budget: the arms have
    cost this share of the capacity of the whole window; None for no limit.
    """

    when_decided: bool = False
    loss_budget: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The JSON values in a policy."""
        return {"stop": {"when_decided": self.when_decided, "loss_budget": self.loss_budget}}


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """A policy of the store. created_at: ns since 1970."""

    number: int
    created_at: int
    kind: str
    body: Mapping[str, Any]
    note: str

    @property
    def table(self) -> GateTable:
        """Its gate table. Raises UsageError if it cannot be read."""
        return read_table(self.body)

    @property
    def author(self) -> str:
        """The author; empty if unknown."""
        author = self.body.get("author")
        return author if isinstance(author, str) else ""

    @property
    def closed_loop(self) -> bool:
        """Whether the policy declares that clients wait for their answers."""
        return says_closed_loop(self.body)

    @property
    def restores(self) -> int | None:
        """Number of the policy that it restores; None if it is no rollback."""
        return _number(self.body.get("restores"))

    @property
    def stops(self) -> int | None:
        """Number of the experiment that it ends early; None if it ends none."""
        return _number(self.body.get("stops"))

    @property
    def stop_rules(self) -> StopRules:
        """Conditions for an early end; unreadable ones are ignored."""
        raw = self.body.get("stop")
        if not isinstance(raw, dict):
            return StopRules()
        budget = raw.get("loss_budget")
        if isinstance(budget, bool) or not isinstance(budget, (int, float)):
            budget = None
        return StopRules(raw.get("when_decided") is True, budget)

    @property
    def detaches(self) -> bool:
        """Whether it turns the hooks off."""
        return self.body.get("detach") is True

    @property
    def span(self) -> tuple[int, int | None] | None:
        """Begin and end of its blocks, ns since 1970; None without blocks.

        The end is None for blocks that continue until the next policy.
        """
        gate = Gate.from_policy(dict(self.body))
        if gate.kind != "blocks" or not gate.block_ms:
            return None
        pair_ns = gate.block_ms * len(gate.arms) * 10**6
        last = gate.last_pair
        return gate.first_pair * pair_ns, None if last is None else (last + 1) * pair_ns

    def ended(self, now: int) -> bool:
        """Whether its last pair has ended at a time, ns since 1970."""
        span = self.span
        return span is not None and span[1] is not None and now >= span[1]

    def runs(self, now: int) -> bool:
        """Whether it is an experiment that ends after a time, ns since 1970."""
        span = self.span
        return span is not None and span[1] is not None and now < span[1]

    def table_at(self, now: int) -> GateTable:
        """The table in force at a time, ns since 1970; after its end, its fallback."""
        fallback = self.body.get("fallback")
        return read_table(fallback) if fallback and self.ended(now) else self.table

    @property
    def fault(self) -> str:
        """The reason for an unreadable table; empty if it is readable."""
        try:
            read_table(self.body)
        except UsageError as error:
            return str(error)
        return ""


@dataclass(frozen=True, slots=True)
class Change:
    """A table that was in force, and its begin in ns since 1970."""

    created_at: int
    table: GateTable


def read_policies(store: Store) -> list[StoredPolicy]:
    """All policies, oldest first. Raises StoreError if the store cannot be read."""
    found = []
    for row in store.rows(queries.policies()):
        try:
            body = json.loads(row["table"])
        except ValueError:
            body = None
        if isinstance(body, dict):
            number, at = int(row["policy"]), int(row["created_at"])
            found.append(StoredPolicy(number, at, row["kind"], body, row["note"]))
    return found


def history(policies: Sequence[StoredPolicy]) -> list[Change]:
    """The tables that were in force, oldest first; policies without a readable table are left
    out."""
    return [Change(policy.created_at, policy.table) for policy in with_table(policies)]


def newest_with_table(policies: Sequence[StoredPolicy]) -> StoredPolicy | None:
    """The policy whose table is in force; None without a table."""
    tables = with_table(policies)
    return tables[-1] if tables else None


def with_table(policies: Sequence[StoredPolicy]) -> list[StoredPolicy]:
    """The policies that put a table in force, oldest first. Unreadable policies are left out,
    because hooks keep the one before."""
    return [policy for policy in policies if policy.kind in WITH_TABLE and not policy.fault]


def unread(policies: Sequence[StoredPolicy]) -> list[str]:
    """A note for each policy after the table in force that no hook follows."""
    found = newest_with_table(policies)
    newer = [policy for policy in policies if found is None or policy.number > found.number]
    return [
        f"policy {policy.number} cannot be read ({policy.fault}): engines keep the one before"
        for policy in newer
        if policy.kind in WITH_TABLE and policy.fault
    ]


def says_closed_loop(body: Mapping[str, Any]) -> bool:
    """Whether a policy's JSON says that clients wait for their answers."""
    return body.get("closed_loop") is True


def table_in_force(
    policies: Sequence[StoredPolicy], now: int, default_k: int | None
) -> GateTable | None:
    """The table in force at a time, ns since 1970; before the first table, the table of
    `default_k`.

    None if neither is known.
    """
    newest = newest_with_table(policies)
    if newest is not None:
        return newest.table_at(now)
    return None if default_k is None else GateTable((), default_k)


def next_table(
    policies: Sequence[StoredPolicy],
    table: GateTable,
    *,
    now: int,
    hold_out: HoldOut | None = None,
    author: str = "",
    **words: Any,
) -> dict[str, Any]:
    """A policy that puts a table in force and keeps all other parts of the previous policy.

    hold_out: blocks for a share of pairs that keep comparing the table with target-only, for
    continuous evidence; None for none. author: author of the change. words: further parts of the
    policy, which hooks ignore.
    """
    before = newest_with_table(policies)
    kept = {} if before is None else {k: v for k, v in before.body.items() if k == "guardrail"}
    body: dict[str, Any] = {
        "policy": _next_number(policies),
        "kind": "table",
        "seed": secrets.randbits(63),
        "arms": [],
        "block_ms": None,
        "burn_in_ms": None,
        "first_pair": 0,
        "share": 0.0,
        **table.as_json(),
        **kept,
    }
    if hold_out is not None:
        body |= {
            "kind": "blocks",
            "arms": hold_out.arms_json(),
            "block_ms": round(1e3 * hold_out.block_s),
            "burn_in_ms": round(1e3 * hold_out.burn_in_s),
            "first_pair": first_pair(now, hold_out.block_s, len(hold_out.arms)),
            "share": hold_out.share,
        }
        if hold_out.pairs is not None:
            body |= until(body["first_pair"], hold_out.pairs, table)
    if author:
        body["author"] = author
    return checked(body | words)


def until(first: int, pairs: int, table: GateTable) -> dict[str, Any]:
    """The parts of a policy that end it: its last pair, and the table for afterwards.

    Hooks apply them without the service, so an experiment always ends.
    """
    return {"last_pair": first + max(pairs, 1) - 1, "fallback": table.as_json()}


def detached(policies: Sequence[StoredPolicy], *, author: str = "") -> dict[str, Any]:
    """A policy that turns every hook off until its process restarts; the table stays."""
    before = newest_with_table(policies)
    table = GateTable() if before is None else before.table
    return checked({**next_table(policies, table, now=0, author=author), "detach": True})


@dataclass(frozen=True, slots=True)
class HoldOut:
    """Blocks for comparison under a policy.

    share: experimental share of pairs. block_s, burn_in_s: seconds of a block and of its burn-in.
    pairs: number of pairs after which the policy ends and its table holds; None for no end. tables:
    the arms that bring their own table, because their name does not define one.

    Raises UsageError if a block is too short or too long: a pair takes a second at least, a block a
    week at most. The hook accepts no other numbers.
    """

    share: float
    block_s: float
    burn_in_s: float
    arms: tuple[str, ...] = ("current", "k0")
    pairs: int | None = None
    tables: tuple[PolicyArm, ...] = ()

    def arms_json(self) -> list[dict[str, Any]]:
        """The JSON values of the arms in a policy."""
        defined = {arm.name: arm.as_json() for arm in self.tables}
        return [defined.get(name, {"name": name}) for name in self.arms]

    def __post_init__(self) -> None:
        if self.block_s * len(self.arms) < 1.0 or self.block_s > LONGEST_BLOCK_S:
            raise UsageError(
                f"blocks of {self.block_s:g} s: a pair takes a second at least, a block a week at "
                "most"
            )


def first_pair(now: int, block_s: float, arms: int) -> int:
    """The first pair that begins at least two block lengths from now (ns since 1970).

    On every replica, pair p of n arms begins p * n * block after 1970.
    """
    block_ns = round(block_s * 1e9)
    return math.ceil((now + 2 * block_ns) / (arms * block_ns))


def checked(body: dict[str, Any]) -> dict[str, Any]:
    """Check that the hook can read a policy. Raises UsageError with the fault."""
    try:
        Gate.from_policy(body)
    except PolicyError as error:
        raise UsageError(str(error)) from error
    return body


def write_policy(
    store: Store, body: Mapping[str, Any], note: str, now: int, service: Remote | None = None
) -> int:
    """Add a policy, through the service if one is given; sidecars receive it within seconds.

    Returns its number. Raises StoreError if the store cannot be written, UsageError for a read
    endpoint without its service, ServiceError if the service refuses it.
    """
    if service is not None:
        return service.apply(body, note)
    if store.dsn.startswith("http"):
        raise UsageError(
            "a read endpoint accepts no policies: name its service too (--service host:port or "
            "SPECSCOPE_SERVICE), or apply to the ClickHouse server"
        )
    insert_policy(store, body, note, now)
    return int(body["policy"])


def insert_policy(store: Store, body: Mapping[str, Any], note: str, now: int) -> None:
    """Add a policy and its event to a store that this process may write.

    now: ns since 1970. Raises PolicyError if no hook can follow it, StoreError if the store cannot
    be written.
    """
    store.insert("policy", policy_row(body, note, now))
    store.add("event", [policy_event(body, note, now)])


def _number(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _next_number(policies: Sequence[StoredPolicy]) -> int:
    return max((policy.number for policy in policies), default=0) + 1
