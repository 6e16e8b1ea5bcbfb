"""The recorder writes an engine's rounds and requests to the ring.

It never raises into the engine. After the first fault every method is replaced by one that does
nothing. The ring contains the reason, and the engine keeps serving.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import get_ident
from typing import Any

from specscope_hook.admission import Admission, packed
from specscope_hook.clock import Clock, SystemClock
from specscope_hook.columns import End, TimingSource
from specscope_hook.digest import token_bytes
from specscope_hook.payload import ALL_VERIFIED, pack_single, round_payload
from specscope_hook.ring import NAME_ADAPTER, NAME_ARM, NAME_CLASS, OTHER, REQUEST, ROUND, Ring

log = logging.getLogger("specscope")

NAN = math.nan
UNKNOWN_U32 = 0xFFFFFFFF
F32_MOST = 3.4e38
_ALL_OF_ONE = (ALL_VERIFIED,)

Mark = tuple[int, int, int, int]
"""A block: policy, pair, arm by the ring's dictionary, when it began (monotonic ns)."""


class Recorder:
    """Write one process's rounds and requests; for one thread only.

    The sidecar sees records after at most 20 ms. The end of a request, and records written while no
    request runs, are visible at once. An engine may call `flush` when it goes idle.

    salt: key of the hash of request ids, up to 64 bytes.
    """

    def __init__(self, ring: Ring, *, salt: bytes | str, clock: Clock | None = None) -> None:
        self._ring = ring
        self._salt = (salt.encode() if isinstance(salt, str) else salt)[:64]
        self._clock = clock or SystemClock()
        self._now = self._clock.monotonic_ns
        self._unix = self._clock.unix_ns
        self._push = ring.push
        self.mark: Mark = (0, 0, OTHER, self._now())
        """The block in force. A round that is planned in it and written later carries it along."""
        self._running = 0  # requests that were admitted and have not ended
        self._owner = 0  # the thread that wrote first; no other may
        self._forgets: list[Callable[[], None]] = []
        self.on = True

    # --- names ---------------------------------------------------------------------------

    def request_hash(self, id: str) -> int:
        """Salted hash of a request's (or a session's) id; never 0."""
        text = str(id).encode(errors="replace")
        raw = hashlib.blake2b(text, digest_size=8, key=self._salt).digest()
        return int.from_bytes(raw, "little") or 1

    def content_hash(self, prompt: Sequence[int], *settings: object) -> int:
        """Salted hash of the prompt's token ids and all parameters of the output; never 0.

        It is only for deterministic requests: greedy or coupled sampling.
        """
        text = token_bytes(prompt) + repr(settings).encode(errors="replace")
        raw = hashlib.blake2b(text, digest_size=8, key=self._salt).digest()
        return int.from_bytes(raw, "little") or 1

    def class_id(self, label: str) -> int:
        """A class's id in the ring's dictionary; 255, `other`, if it already has 64."""
        return self._name_id(NAME_CLASS, str(label) if label else "unlabelled")

    def adapter_id(self, name: str) -> int:
        """A LoRA adapter's id in the ring's dictionary; 255 for none."""
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
        """Set the block of the following rounds; (0, 0, "") is outside an experiment."""
        if not self.on:
            return
        self.mark = policy, pair, self._name_id(NAME_ARM, arm) if arm else OTHER, self._now()

    # --- rounds ----------------------------------------------------------------------------
    # HOT PATH. No lock, no allocation that outlives the call, no system call but the clock,
    # no logging while it works.

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
        verified: Any = None,
        mark: Mark | None = None,
        ended_ns: int = 0,
    ) -> None:
        """Write a round with the engine's times; see ring_records.RingRound for each value.

        verified: verified tokens of each draft; None if whole drafts were verified.

        mark: block of the round, if it is not the current one.
        ended_ns: end of the round (monotonic), if it is not now.
        """
        if get_ident() != self._owner and not self._owned():
            return
        try:
            policy, pair, arm, block_began = mark or self.mark
            age_ms = max(0, (ended_ns or self._now()) - block_began) // 1_000_000 if pair else 0
            batch = len(requests)
            if (
                batch == 1
            ):  # alone, a sequence leaves nothing to spread the cost of general code over
                (r,), (c,), (d,), (n,) = requests, contexts, classes, k
                (a,), (e,), (f,) = accepted, emitted, ends
                (v,) = _ALL_OF_ONE if verified is None else verified
                payload = pack_single(  # in the order of ring_records.RingRound
                    started_at, waiting, wall_us, draft_us, verify_us, sample_us, idle_us,
                    catchup_us, prefill_us, prefill_tokens, padded_tokens, invalid, preempted,
                    policy, pair, age_ms, arm, timing_source, r, c, d, n, a, e, f, v,
                )  # fmt: skip
            else:
                if verified is None:
                    verified = b"\xff" * batch
                payload = round_payload(
                    (requests, contexts, classes, k, accepted, emitted, ends, verified),
                    started_at, waiting, wall_us, draft_us, verify_us, sample_us, idle_us,
                    catchup_us, prefill_us, prefill_tokens, padded_tokens, invalid, preempted,
                    policy, pair, age_ms, arm, timing_source,
                )  # fmt: skip
            self._push(ROUND, payload, batch)
            if not self._running:
                self._ring.flush()
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
        """Write a request's admission; pass the result to `ended`. None after a detach."""
        if get_ident() != self._owner and not self._owned():
            return None
        try:
            policy, pair, arm, _ = self.mark
            admission = Admission(
                request,
                session,
                self._unix() if admitted_at is None else admitted_at,
                policy,
                pair,
                prompt_tokens,
                cached_tokens,
                # What a client asked for may be larger than a record says, and is no fault.
                min(requested_output, UNKNOWN_U32),
                max(-F32_MOST, min(temperature, F32_MOST)),
                max(-F32_MOST, min(top_p, F32_MOST)),
                class_,
                adapter,
                arm,
                int(guided),
                content,
            )
            self._push(REQUEST, packed(admission))
            self._running += 1
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
        at_once: bool = True,
    ) -> None:
        """Write a request's end, with all values of its admission.

        at_once: make it visible now; False for a caller that calls `flush` soon.
        """
        if handle is None or (get_ident() != self._owner and not self._owned()):
            return
        try:
            payload = packed(
                handle,
                ended_at=self._unix() if ended_at is None else ended_at,
                digest=digest,
                last_pair=self.mark[1],
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
            self._running = max(0, self._running - 1)
            if at_once:
                self._ring.flush()
        except Exception as error:
            self.detach(f"recording a request's end: {error!r}")

    def flush(self) -> None:
        """Make all records visible to the sidecar; for an engine that goes idle."""
        if not self.on or (get_ident() != self._owner and not self._owned()):
            return
        try:
            self._ring.flush()
        except Exception as error:
            self.detach(f"writing to the ring: {error!r}")

    # --- one thread ------------------------------------------------------------------------

    def claim(self) -> None:
        """Make this thread the writer, for an engine with several threads that take turns.

        The caller must hold a lock around all of its calls.
        """
        self._owner = get_ident()

    def _owned(self) -> bool:
        """Whether this thread owns the ring; the first writing thread does. Two threads would
        corrupt it silently, so a second one turns the recorder off."""
        if not self._owner:
            self._owner = get_ident()
        elif self._owner != get_ident():
            self.detach("a second thread wrote; a recorder belongs to one")
        return self.on

    # --- the fuse ------------------------------------------------------------------------

    def on_detach(self, forget: Callable[[], None]) -> None:
        """Register a function for the recorder's end by a fault, so that the caller can release its
        objects."""
        self._forgets.append(forget)

    def detach(self, reason: str) -> None:
        """Turn the hook off, with the reason on the ring and once in the log."""
        if not self.on:
            return
        self.on = False
        with suppress(Exception):
            self._ring.fault(reason)
            log.error("specscope is off, serving goes on: %s", reason)
        if get_ident() == self._owner or not self._owner:
            self._last_words()
        else:  # what the owner has in its buffer only the owner may write
            self._replace_methods(self._last_words)
        forgets, self._forgets = self._forgets, []
        for forget in forgets:
            with suppress(Exception):
                forget()

    def _last_words(self, *_: Any, **__: Any) -> None:
        """Write the buffer, and do nothing from then on."""
        if self._owner in (0, get_ident()):
            self._replace_methods(_off)
            with suppress(Exception):
                self._ring.flush()

    def _replace_methods(self, by: Callable[..., None]) -> None:
        for name in ("round", "admitted", "ended", "block", "flush"):
            setattr(self, name, by)

    def close(self) -> None:
        """Close the ring, which marks its tail as complete."""
        self.on = False
        self._ring.close()


def _off(*_: Any, **__: Any) -> None:
    """The replacement of every method after a detach."""
