"""The policy in force and the block that it puts us in, for engines that follow one.

Pairs of a `blocks` policy are numbered by time: pair p of n arms begins p · n · block_ms
after 1970, on a clock that was compared with the wall's once, when the hook attached. So no
state is kept, and ranks that step together agree.
"""

from __future__ import annotations

from specscope_hook.clock import Clock, SystemClock
from specscope_hook.errors import PolicyError
from specscope_hook.gate import CURRENT, Gate
from specscope_hook.recorder import Recorder
from specscope_hook.ring import Ring


class Blocks:
    """Reads the control page when it changes, and tells the recorder when a block begins."""

    def __init__(
        self, ring: Ring, recorder: Recorder, replica: str, boot: str, clock: Clock | None = None
    ) -> None:
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
        """Once per round: one word is compared; more happens only when something changed."""
        if self._ring.control_version != self._seen:
            self._read()
        if self.gate is None and self._waiting is None:
            return
        now = self._clock.monotonic_ns()
        if now >= self._until_ns:
            self._step(now + self._offset_ns)

    def k(self, class_: str, context: int, output: int, batch: int, queue: int) -> int | None:
        """Draft length under the arm in force; None where no policy is."""
        if self.gate is None:
            return None
        return self.gate.k(class_, context, output, batch, queue, self.arm)

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
        self._waiting = gate
        self._until_ns = 0

    def _step(self, unix_ns: int) -> None:
        gate = self._due(unix_ns)
        if gate is None:
            return
        self.gate = gate
        if gate.block_ms is None or not gate.arms or gate.kind != "blocks":
            self._until_ns = 1 << 62
            self._enter(gate.policy, 0, "")
            return
        block_ns = gate.block_ms * 1_000_000
        pair, within = divmod(unix_ns // block_ns, len(gate.arms))
        self._until_ns = (unix_ns // block_ns + 1) * block_ns - self._offset_ns
        if gate.experimental(self._replica, self._boot, pair):
            self._enter(gate.policy, pair, gate.order(self._replica, self._boot, pair)[within])
        else:
            self._enter(gate.policy, 0, "")

    def _due(self, unix_ns: int) -> Gate | None:
        """The policy to follow now; a waiting one takes effect with its first pair."""
        waiting = self._waiting
        if waiting is None:
            return self.gate
        if waiting.kind == "blocks" and waiting.block_ms:
            starts = waiting.first_pair * len(waiting.arms) * waiting.block_ms * 1_000_000
            if unix_ns < starts:
                if self.gate is None:
                    self._until_ns = starts - self._offset_ns
                return self.gate
        self._waiting = None
        return waiting

    def _enter(self, policy: int, pair: int, arm: str) -> None:
        self.arm = arm or CURRENT
        self._recorder.block(policy, pair, arm)
