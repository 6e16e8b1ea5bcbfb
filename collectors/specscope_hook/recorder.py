"""The recorder: an engine's rounds and requests onto the ring, and nothing into the engine.

Nothing escapes from it. The first fault is the last: every method is then replaced by one
that does nothing, the ring carries the reason, and serving goes on.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from specscope_hook.admission import Admission, packed
from specscope_hook.clock import Clock, SystemClock
from specscope_hook.columns import End, TimingSource
from specscope_hook.digest import token_bytes
from specscope_hook.payload import pack_single, round_payload
from specscope_hook.ring import NAME_ADAPTER, NAME_ARM, NAME_CLASS, OTHER, REQUEST, ROUND, Ring

log = logging.getLogger("specscope")

NAN = math.nan
UNKNOWN_U32 = 0xFFFFFFFF
F32_MOST = 3.4e38

Mark = tuple[int, int, int, int]
"""A block: policy, pair, arm by the ring's dictionary, when it began (monotonic ns)."""


class Recorder:
    """Writes one process's rounds and requests; one thread only.

    salt: key of the hash that stands for a request's id, up to 64 bytes.
    """

    def __init__(self, ring: Ring, *, salt: bytes | str, clock: Clock | None = None) -> None:
        self._ring = ring
        self._salt = (salt.encode() if isinstance(salt, str) else salt)[:64]
        self._clock = clock or SystemClock()
        self._now = self._clock.monotonic_ns
        self._unix = self._clock.unix_ns
        self._push = ring.push
        self._policy = self._pair = 0
        self._arm = OTHER
        self._block_began = self._now()
        self._last_end = self._began = self._drafted = self._verified = 0
        self._began_unix = 0
        self._forgets: list[Callable[[], None]] = []
        self.on = True

    # --- names ---------------------------------------------------------------------------

    def request_hash(self, id: str) -> int:
        """Salted hash of a request's (or a session's) id; never 0."""
        text = str(id).encode(errors="replace")
        raw = hashlib.blake2b(text, digest_size=8, key=self._salt).digest()
        return int.from_bytes(raw, "little") or 1

    def content_hash(self, prompt: Sequence[int], *settings: object) -> int:
        """Salted hash of prompt token ids and all else that shapes the output; never 0.

        Only for requests whose output these decide: greedy or coupled sampling.
        """
        text = token_bytes(prompt) + repr(settings).encode(errors="replace")
        raw = hashlib.blake2b(text, digest_size=8, key=self._salt).digest()
        return int.from_bytes(raw, "little") or 1

    def class_id(self, label: str) -> int:
        """A class by the ring's dictionary; 255, `other`, where it has 64 already."""
        return self._name_id(NAME_CLASS, str(label) if label else "unlabelled")

    def adapter_id(self, name: str) -> int:
        """A LoRA adapter by the ring's dictionary; 255 for none."""
        return self._name_id(NAME_ADAPTER, str(name)) if name else OTHER

    def _name_id(self, kind: int, name: str) -> int:
        if not self.on:
            return OTHER
        try:
            return self._ring.name_id(kind, name)
        except Exception as error:
            self.detach(f"naming {name!r}: {error!r}")
            return OTHER

    def block(self, policy: int, pair: int, arm: str) -> None:
        """Rounds from here on belong to this block; (0, 0, "") is outside an experiment."""
        if not self.on:
            return
        self._policy, self._pair = policy, pair
        self._arm = self._name_id(NAME_ARM, arm) if arm else OTHER
        self._block_began = self._now()

    @property
    def mark(self) -> Mark:
        """The block in force, for a round that is planned in it and written later."""
        return self._policy, self._pair, self._arm, self._block_began

    # --- rounds that the recorder times itself, on the host's clock ----------------------
    # HOT PATH. No lock, no allocation that outlives the call, no system call but the clock,
    # no logging while it works.

    def begin(self, idled: bool = False) -> None:
        """A round begins. idled: the engine had nothing to do since the round before."""
        self._began = self._drafted = self._verified = self._now()
        self._began_unix = self._unix()
        if idled:
            self._last_end = 0

    def drafted(self) -> None:
        """The drafts of the round are there."""
        self._drafted = self._verified = self._now()

    def verified(self) -> None:
        """The target's forward pass of the round is done."""
        self._verified = self._now()

    def end(
        self,
        *,
        requests: Any,
        contexts: Any,
        classes: Any,
        k: Any,
        accepted: Any,
        emitted: Any,
        ends: Any,
        waiting: int = 0,
        prefill_tokens: int = 0,
        padded_tokens: int = 0,
        invalid: int = 0,
        preempted: int = 0,
        catchup_us: float = NAN,
        prefill_us: float = NAN,
    ) -> None:
        """The round is over; arrays hold one value a sequence. Writes it.

        Idle is the host's time between the end of the round before and this one's begin.
        """
        now = self._now()
        began, drafted, verified = self._began, self._drafted, self._verified
        since = self._last_end or began
        self._last_end = now
        try:
            alone = len(requests) == 1
        except Exception as error:
            self.detach(f"recording a round: {error!r}")
            return
        if not alone:
            self.round(
                started_at=self._began_unix,
                waiting=waiting,
                wall_us=(now - since) / 1e3,
                draft_us=(drafted - began) / 1e3,
                verify_us=(verified - drafted) / 1e3,
                sample_us=(now - verified) / 1e3,
                idle_us=(began - since) / 1e3,
                catchup_us=catchup_us,
                prefill_us=prefill_us,
                prefill_tokens=prefill_tokens,
                padded_tokens=padded_tokens,
                invalid=invalid,
                preempted=preempted,
                requests=requests,
                contexts=contexts,
                classes=classes,
                k=k,
                accepted=accepted,
                emitted=emitted,
                ends=ends,
            )
            return
        try:  # alone, a sequence leaves nothing to spread the cost of general code over
            (q,), (c,), (d,), (n,) = requests, contexts, classes, k
            (a,), (e,), (f,) = accepted, emitted, ends
            payload = pack_single(
                self._began_unix,
                self._policy,
                self._pair,
                (now - self._block_began) // 1_000_000 if self._pair else 0,
                waiting,
                (now - since) / 1e3,
                (drafted - began) / 1e3,
                (verified - drafted) / 1e3,
                (now - verified) / 1e3,
                (began - since) / 1e3,
                catchup_us,
                prefill_us,
                prefill_tokens,
                padded_tokens,
                invalid,
                preempted,
                self._arm,
                0,
                q,
                c,
                d,
                n,
                a,
                e,
                f,
            )
            self._push(ROUND, payload, 1)
        except Exception as error:
            self.detach(f"recording a round: {error!r}")

    def round(
        self,
        *,
        started_at: int,
        wall_us: float,
        requests: Any,
        contexts: Any,
        classes: Any,
        k: Any,
        accepted: Any,
        emitted: Any,
        ends: Any,
        waiting: int = 0,
        draft_us: float = NAN,
        verify_us: float = NAN,
        sample_us: float = NAN,
        idle_us: float = NAN,
        catchup_us: float = NAN,
        prefill_us: float = NAN,
        prefill_tokens: int = 0,
        padded_tokens: int = 0,
        invalid: int = 0,
        preempted: int = 0,
        timing_source: int = TimingSource.HOST,
        mark: Mark | None = None,
        ended_ns: int = 0,
    ) -> None:
        """Write a round that the engine timed; see records.RingRound for each value.

        mark: the block that it ran in, where that is not the one in force.
        ended_ns: when it ended (monotonic), where that is not now.
        """
        try:
            batch = len(requests)
            policy, pair, arm, block_began = mark or self.mark
            payload = round_payload(
                (requests, contexts, classes, k, accepted, emitted, ends),
                started_at,
                policy,
                pair,
                max(0, (ended_ns or self._now()) - block_began) // 1_000_000 if pair else 0,
                waiting,
                wall_us,
                draft_us,
                verify_us,
                sample_us,
                idle_us,
                catchup_us,
                prefill_us,
                prefill_tokens,
                padded_tokens,
                invalid,
                preempted,
                arm,
                timing_source,
            )
            self._push(ROUND, payload, batch)
        except Exception as error:
            self.detach(f"recording a round: {error!r}")

    # --- requests ------------------------------------------------------------------------

    def admitted(
        self,
        *,
        request: int,
        class_: int,
        prompt_tokens: int,
        admitted_at: int | None = None,
        session: int = 0,
        cached_tokens: int = UNKNOWN_U32,
        requested_output: int = UNKNOWN_U32,
        temperature: float = 1.0,
        top_p: float = 1.0,
        adapter: int = OTHER,
        guided: bool = False,
        content: int = 0,
    ) -> Admission | None:
        """Write a request's admission; what comes back goes to `ended`. None once detached."""
        try:
            admission = Admission(
                request,
                session,
                self._unix() if admitted_at is None else admitted_at,
                self._policy,
                self._pair,
                prompt_tokens,
                cached_tokens,
                # What a client asked for may be larger than a record says, and is no fault.
                min(requested_output, UNKNOWN_U32),
                max(-F32_MOST, min(temperature, F32_MOST)),
                max(-F32_MOST, min(top_p, F32_MOST)),
                class_,
                adapter,
                self._arm,
                int(guided),
                content,
            )
            self._push(REQUEST, packed(admission))
        except Exception as error:
            self.detach(f"recording an admission: {error!r}")
            return None
        return admission

    def ended(
        self,
        handle: Admission | None,
        *,
        output_tokens: int,
        reason: int = End.STOP,
        ended_at: int | None = None,
        preemptions: int = 0,
        queue_ms: float = NAN,
        prefill_ms: float = NAN,
        ttft_ms: float = NAN,
        decode_ms: float = NAN,
        e2e_ms: float = NAN,
        digest: int = 0,
    ) -> None:
        """Write a request's end, however it ended, with all that its admission said."""
        if handle is None:
            return
        try:
            payload = packed(
                handle,
                ended_at=self._unix() if ended_at is None else ended_at,
                digest=digest,
                last_pair=self._pair,
                output_tokens=output_tokens,
                preemptions=preemptions,
                queue_ms=queue_ms,
                prefill_ms=prefill_ms,
                ttft_ms=ttft_ms,
                decode_ms=decode_ms,
                e2e_ms=e2e_ms,
                reason=reason,
            )
            self._push(REQUEST, payload)
        except Exception as error:
            self.detach(f"recording a request's end: {error!r}")

    # --- the fuse ------------------------------------------------------------------------

    def on_detach(self, forget: Callable[[], None]) -> None:
        """Have something called once, when a fault turns the recorder off: what is then of no
        more use is not held for the rest of the server's life."""
        self._forgets.append(forget)

    def detach(self, reason: str) -> None:
        """Be off from here on, say why on the ring and once in the log."""
        if not self.on:
            return
        self.on = False
        for name in ("begin", "drafted", "verified", "end", "round", "admitted", "ended", "block"):
            setattr(self, name, _off)
        with suppress(Exception):
            self._ring.fault(reason)
            log.error("specscope is off, serving goes on: %s", reason)
        forgets, self._forgets = self._forgets, []
        for forget in forgets:
            with suppress(Exception):
                forget()

    def close(self) -> None:
        """End the ring on purpose: its tail is then known to be whole."""
        self.on = False
        self._ring.close()


def _off(*_: Any, **__: Any) -> None:
    """What every method is once the hook is off."""
