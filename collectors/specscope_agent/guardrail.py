"""Target-only decoding, at once, where speculation hurts: lowers k, never raises it.

A policy may carry limits:

    "guardrail": {"gap_p95_ms": 60, "ttft_p95_ms": 800, "tokens_per_round": 1.4}

A minute breaches where more than a tenth of its chunk gaps or first tokens took longer than
the limit (twice what a p95 allows), or where speculative rounds emitted under nine tenths of
the tokens per round that break even. Three such minutes in a row put k = 0 in force, outside
any experiment, so that no estimate uses what follows. After half an hour the policy as it
was written gets another try; each further time the wait doubles, up to a day. Each time is said
once a boot, as a loss of the pairs that it cut short.
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
    """Identifier of this start of the machine, within which the monotonic clock goes on."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a minute may not exceed; None is no limit."""

    gap_p95_ms: float | None = None
    ttft_p95_ms: float | None = None
    tokens_per_round: float | None = None

    @classmethod
    def of(cls, policy: str) -> Self:
        """The limits in a policy's JSON; none when it names none.

        Raises PolicyError for one that is no number above 0 and up to 10^9.
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
        """Count a batch's rows. Rounds at k = 0 are not speculation's doing."""
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
        """What it exceeded; empty if nothing or where it saw too little."""
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
    """One time that k = 0 was put in force. fired_at, until: ns since 1970."""

    policy: int
    fired_at: int
    until: int
    reason: str

    @property
    def name(self) -> str:
        """What it is known by among the things that are said once a boot."""
        return f"guardrail {self.fired_at}"

    @property
    def detail(self) -> str:
        """For the row of `loss`, as JSON: which policy was lowered, until when, and why."""
        return json.dumps({"policy": self.policy, "until": self.until, "reason": self.reason})


@dataclass(slots=True)
class Guardrail:
    """Watches what is drained; `lowered` is the policy to follow while it holds."""

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
        """Watch over another policy; a new one starts with a clean slate."""
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
        """Count rows that have just been drained."""
        if self._limits != Limits():
            self._minute.add(tables, self._limits)

    def turn(self) -> bool:
        """Close a minute that is over; True if this has just lowered k."""
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
        """Whether k = 0 is in force; no longer than the longest wait, whatever a file said."""
        return 0 < self._until - self.clock() <= LONGEST_WAIT_S

    @property
    def lowered(self) -> str:
        """The policy with every k at 0 and no experiment; empty while the guardrail is quiet."""
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
    """A column as float64, unknown as nan."""
    return table.column(name).cast(pa.float64()).to_numpy()
