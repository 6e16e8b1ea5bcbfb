"""The guardrail: switch to target-only decoding if speculation does harm. It never raises k.

A policy may contain limits:

    "guardrail": {"gap_p95_ms": 60, "ttft_p95_ms": 800, "tokens_per_round": 1.4}

A minute breaches a limit in two cases: over 10 % of its chunk gaps or first tokens exceed the limit
(twice as many as a p95 allows), or speculative rounds emit under 90 % of the break-even tokens per
round. After three such minutes in a row k = 0 is in force, outside any experiment, so no estimate
uses the following rounds. After half an hour the original policy gets another try. Each further
wait doubles, up to a day. Each boot records each action once, as a loss of the interrupted pairs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from specscope_agent import files
from specscope_hook.errors import PolicyError

MINUTE_S = 60.0
MINUTES = 3  # in a row, so that one bad minute is not a verdict
LONGER_SHARE = 0.1  # of gaps over a p95's limit: twice the twentieth that it allows
BREAK_EVEN_SHARE = 0.9
FEWEST = 20  # gaps, first tokens or request-rounds; fewer say nothing about a minute
FIRST_WAIT_S, LONGEST_WAIT_S = 1800.0, 86_400.0
LARGEST = 1_000_000_000  # of a limit: ms of eleven days


def machine_start() -> str:
    """Identifier of this boot of the machine; its monotonic clock is valid for this boot only."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for a minute; None is no limit."""

    gap_p95_ms: float | None = None
    ttft_p95_ms: float | None = None
    tokens_per_round: float | None = None

    @classmethod
    def of(cls, policy: str) -> Self:
        """Read the limits of a policy's JSON.

        Raises PolicyError for a limit that is no number above 0 and up to 10^9.
        """
        named = (json.loads(policy) if policy else {}).get("guardrail") or {}
        if not isinstance(named, dict):
            raise PolicyError(f"a guardrail of {str(named)[:40]!r} names no limits")
        return cls(**{name: _limit(named.get(name), name) for name in cls.__dataclass_fields__})


def _limit(value: object, name: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LARGEST:
        raise PolicyError(f"the guardrail's {name} is not a number above 0 and up to {LARGEST}")
    return float(value)


@dataclass(slots=True)
class Minute:
    """Counts of one minute's speculative traffic."""

    gaps: int = 0
    long_gaps: int = 0
    first_tokens: int = 0
    late_first_tokens: int = 0
    request_rounds: int = 0
    emitted: int = 0

    def add(self, tables: Mapping[str, pa.Table], limits: Limits) -> None:
        """Count a batch's rows, except rounds at k = 0."""
        if "round" in tables:
            rows = {n: _numbers(tables["round"], n) for n in ("k", "batch", "emitted", "wall_us")}
            speculative = rows["k"] > 0
            batch = np.where(speculative, rows["batch"], 0)
            self.request_rounds += int(batch.sum())
            self.emitted += int(rows["emitted"][speculative].sum())
            self.gaps += int(batch[~np.isnan(rows["wall_us"])].sum())
            if limits.gap_p95_ms is not None:
                self.long_gaps += int(batch[rows["wall_us"] > limits.gap_p95_ms * 1e3].sum())
        if "request" in tables and limits.ttft_p95_ms is not None:
            waited = _numbers(tables["request"], "ttft_ms")
            self.first_tokens += int((~np.isnan(waited)).sum())
            self.late_first_tokens += int((waited > limits.ttft_p95_ms).sum())

    def breach(self, limits: Limits) -> str:
        """The exceeded limit; empty for none, or with too few rows."""
        if self.gaps >= FEWEST and self.long_gaps > LONGER_SHARE * self.gaps:
            return f"{self.long_gaps} of {self.gaps} chunk gaps over {limits.gap_p95_ms} ms"
        if (
            self.request_rounds >= FEWEST
            and self.first_tokens >= FEWEST
            and self.late_first_tokens > LONGER_SHARE * self.first_tokens
        ):
            late, all_ = self.late_first_tokens, self.first_tokens
            return f"{late} of {all_} first tokens after {limits.ttft_p95_ms} ms"
        if limits.tokens_per_round is not None and self.request_rounds >= FEWEST:
            mean = self.emitted / self.request_rounds
            if mean < BREAK_EVEN_SHARE * limits.tokens_per_round:
                return f"{mean:.2f} tokens per round where {limits.tokens_per_round} break even"
        return ""


class Held(NamedTuple):
    """One action of the guardrail. fired_at, until: ns since 1970."""

    policy: int
    fired_at: int
    until: int
    reason: str

    @property
    def name(self) -> str:
        """Its name among the notes that each boot sends once."""
        return f"guardrail {self.fired_at}"

    @property
    def detail(self) -> str:
        """Detail of its `loss` row, as JSON: the policy, the end and the reason."""
        return json.dumps({"policy": self.policy, "until": self.until, "reason": self.reason})


@dataclass(slots=True)
class Guardrail:
    """Watch the drained rows; `lowered` is the policy to follow while k = 0 is in force."""

    path: Path  # what it holds is kept here, so a restart does not raise k
    clock: Callable[[], float] = time.monotonic
    """Seconds of a clock that nobody sets: a wall clock that was put back would lift k = 0 or
    hold it on, one that was put forward would close a minute early."""
    wall: Callable[[], float] = time.time
    """Seconds since 1970, to label what it did."""
    machine: str = field(default_factory=machine_start)
    """Names the stretch of time that `clock` is good for, across processes."""
    held: Held | None = None
    """The last time it put k = 0 in force under the policy that it watches over."""
    _policy: str = ""
    _limits: Limits = Limits()
    _minute: Minute = field(default_factory=Minute)
    _minute_ends: float = 0.0
    _breaches: int = 0
    _times: int = 0
    _until: float = 0.0

    def follow(self, policy: str) -> None:
        """Watch another policy; a new one starts without history."""
        if policy == self._policy:
            return
        self._policy, self._limits = policy, Limits.of(policy)
        self._minute, self._breaches, self._times, self._until = Minute(), 0, 0, 0.0
        self._minute_ends = self.clock() + MINUTE_S
        self.held = None
        try:
            kept = json.loads(self.path.read_text())
            if kept["policy"] == policy:
                held, times, wait_s = Held(*kept["held"]), int(kept["times"]), float(kept["wait_s"])
                # After a restart of the machine nobody knows how long it was off: all of it again.
                same = kept["machine"] == self.machine
                self._until = float(kept["until"]) if same else self.clock() + wait_s
                self.held, self._times = held, times
        except (OSError, ValueError, KeyError, TypeError, OverflowError):
            pass  # it has never held here, or the file is not ours

    def observe(self, tables: Mapping[str, pa.Table]) -> None:
        """Count newly drained rows."""
        if self._limits != Limits():
            self._minute.add(tables, self._limits)

    def turn(self) -> bool:
        """Close a finished minute; True if this lowered k."""
        if self.clock() < self._minute_ends:
            return False
        minute, self._minute = self._minute, Minute()
        self._minute_ends = self.clock() + MINUTE_S
        if self.holds or minute.request_rounds < FEWEST:
            return False
        reason = minute.breach(self._limits)
        self._breaches = self._breaches + 1 if reason else 0
        if self._breaches < MINUTES:
            return False
        self._breaches = 0
        self._hold(reason)
        return True

    @property
    def holds(self) -> bool:
        """Whether k = 0 is in force, limited to the longest wait."""
        return 0 < self._until - self.clock() <= LONGEST_WAIT_S

    @property
    def lowered(self) -> str:
        """The policy with every k at 0 and no experiment; empty while the guardrail is inactive."""
        if not self.holds:
            return ""
        policy: dict[str, Any] = json.loads(self._policy)
        nothing = {"kind": "table", "arms": [], "share": 0.0, "table": [], "default_k": 0}
        return json.dumps({**policy, **nothing, "block_ms": None})

    def _hold(self, reason: str) -> None:
        wait_s = min(FIRST_WAIT_S * 2 ** min(self._times, 10), LONGEST_WAIT_S)
        self._times, self._until = self._times + 1, self.clock() + wait_s
        number = int(json.loads(self._policy).get("policy", 0))
        fired_at = round(self.wall() * 1e9)
        self.held = Held(number, fired_at, fired_at + round(wait_s * 1e9), reason)
        kept = {
            "policy": self._policy,
            "times": self._times,
            "until": self._until,
            "wait_s": wait_s,
            "machine": self.machine,
            "held": self.held,
        }
        files.replace(self.path, [json.dumps(kept).encode()], sync=True)


def _numbers(table: pa.Table, name: str) -> Any:
    """A column as float64, with nan for unknown values."""
    return table.column(name).cast(pa.float64()).to_numpy()
