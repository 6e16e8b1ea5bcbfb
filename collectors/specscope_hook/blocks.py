"""The policy in force and its current block, for engines that follow policies.

Pairs of a `blocks` policy are numbered by time: pair p of n arms begins p · n · block_ms after
1970. The clock is synchronised with the wall clock once, when the hook attaches. So no state is
necessary, and ranks that step together agree. After its last pair the policy's fallback table is in
force. A policy with `detach` turns the hook off until the process restarts.
"""

from __future__ import annotations

import logging

from specscope_hook.clock import Clock, SystemClock
from specscope_hook.errors import PolicyError
from specscope_hook.gate import CURRENT, Gate
from specscope_hook.recorder import Recorder
from specscope_hook.ring import Ring

_NEVER_NS = 1 << 63


class Blocks:
    """Read the control page after a change, and report the begin of blocks to the recorder."""

    def __init__(
        self,
        ring: Ring,
        recorder: Recorder,
        replica: str,
        boot: str,
        clock: Clock | None = None,
        *,
        follows: bool = True,
        log: logging.Logger | None = None,
    ) -> None:
        """Start without a policy.

        follows: whether the engine takes its k from here. Another engine is recorded in blocks only
        if `current` is the only arm, as in a crossover by router. log: receives one line for each
        policy that this engine does not follow.
        """
        self._log = log or logging.getLogger("specscope")
        self._follows = follows
        self._ring = ring
        self._recorder = recorder
        self._replica = replica
        self._boot = boot
        self._clock = clock or SystemClock()
        self._offset_ns = self._clock.unix_ns() - self._clock.monotonic_ns()
        self._seen = 0
        self._until_ns = 0
        self._waiting: Gate | None = None
        self.gate: Gate | None = None
        self.arm = CURRENT
        self.refused = ""
        """Why the last policy was not taken; the one before stays in force."""

    def turn(self) -> None:
        """Called once per round: compare one word, and do more only after a change."""
        self.look()
        if self.active:
            now = self._clock.monotonic_ns()
            if self.due(now):
                self.advance(now)

    def look(self) -> None:
        """Read the control page if it has changed: one system call. For an engine that cannot
        afford `turn` in every round.

        After recording has ended (a fault or a fork), there is no policy either, because an
        unrecorded block is no experiment and a table could not be withdrawn.
        """
        if not (self._recorder.on and self._ring.open):
            self.gate = self._waiting = None
        elif self._ring.control_version != self._seen:
            self._read()

    @property
    def active(self) -> bool:
        """Whether a policy is in force or waiting."""
        return self.gate is not None or self._waiting is not None

    def due(self, now_ns: int) -> bool:
        """Whether a block or a policy has begun or ended by this time of the monotonic clock."""
        return self.active and now_ns >= self._until_ns

    def advance(self, now_ns: int) -> None:
        """Enter the block at this time of the monotonic clock, if there is a policy."""
        self._step(now_ns + self._offset_ns)

    def k(self, class_: str, context: int, output: int, batch: int, queue: int) -> int | None:
        """Draft length under the arm in force; None if no policy is."""
        if self.gate is None:
            return None
        return self.gate.k(class_, context, output, batch, queue, self.arm)

    def fail(self, reason: str) -> None:
        """Turn the hook off, because the engine does not run the policy."""
        self._recorder.detach(reason)

    def _read(self) -> None:
        page = self._ring.control()
        if page is None:
            return
        self._seen, text = page
        try:
            gate = Gate.from_policy(text)
        except PolicyError as error:
            self.refused = str(error)
            return
        self.refused = ""
        if gate.detach:
            self.fail(f"policy {gate.policy} detaches the hook")
            self.gate = self._waiting = None
            return
        self._waiting = gate
        self._until_ns = 0

    def _step(self, unix_ns: int) -> None:
        due_ns = self._due_ns(self._waiting)
        if self._waiting is not None and unix_ns >= due_ns:
            self.gate, self._waiting = self._waiting, None
            due_ns = _NEVER_NS
        ends_ns = _NEVER_NS if self.gate is None else self._begin_block(self.gate, unix_ns)
        self._until_ns = min(ends_ns, due_ns) - self._offset_ns

    def _begin_block(self, gate: Gate, unix_ns: int) -> int:
        """Enter the block at a time; returns its end, ns since 1970."""
        if not self._follows and any(arm.name != CURRENT for arm in gate.arms):
            self._say_not_followed(gate)
            self._enter(0, 0, "")
            return _NEVER_NS
        if gate.kind != "blocks" or gate.block_ms is None:
            if not self._follows:
                self._say_not_followed(gate)
            self._enter(gate.policy if self._follows else 0, 0, "")
            return _NEVER_NS
        block_ns = gate.block_ms * 1_000_000
        number = unix_ns // block_ns
        pair, within = divmod(number, len(gate.arms))
        if gate.over(pair):
            # Nobody needs to be there for it: the end is the policy's own.
            self.gate = gate.ended()
            self._enter(gate.policy if self._follows else 0, 0, "")
            return _NEVER_NS
        if gate.experimental(self._replica, self._boot, pair):
            self._enter(gate.policy, pair, gate.order(self._replica, self._boot, pair)[within])
        else:
            self._enter(gate.policy, 0, "")
        return (number + 1) * block_ns

    def _say_not_followed(self, gate: Gate) -> None:
        self._log.warning(
            "specscope: policy %d sets draft lengths, and this engine follows no policy: it goes "
            "on as before, in no block; to follow, start it with SPECSCOPE_REQUEST_K=on",
            gate.policy,
        )

    def _due_ns(self, gate: Gate | None) -> int:
        """The time at which a waiting policy takes effect: its first pair, or now."""
        if gate is None:
            return _NEVER_NS
        if gate.kind != "blocks" or gate.block_ms is None:
            return 0
        return gate.first_pair * len(gate.arms) * gate.block_ms * 1_000_000

    def _enter(self, policy: int, pair: int, arm: str) -> None:
        self.arm = arm or CURRENT
        self._recorder.block(policy, pair, arm)
