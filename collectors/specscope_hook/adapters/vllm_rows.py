"""vLLM: read the sequences of one step from its scheduler's plan and its runner's output.

Usually a step has the same decoding sequences as the step before; then lists are built at once from
the values of that step. All other steps are read sequence by sequence.

Steps are read in order, after they ran. So the reader never uses state that vLLM changes later: it
counts each sequence's tokens from its prompt and its outputs.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from operator import add

from specscope_hook.adapters.vllm_requests import Requests, Running, end_of
from specscope_hook.adapters.vllm_steps import Taken
from specscope_hook.payload import ALL_VERIFIED

_ONE_LESS = bytes([0, *range(255)])
"""To translate bytes by: each less one."""
_ALL_BITS = bytes([0] + [255] * 255)
"""To translate bytes by: each but 0 becomes all ones."""
_WIDE = 24 if sys.byteorder == "little" else sys.maxsize
"""Sequences from which on adding one by one costs more."""


@dataclass(slots=True)
class Rows:
    """One value per sequence, and the step's prefill and padding."""

    requests: Sequence[int]
    classes: Sequence[int]
    contexts: Sequence[int]
    k: Sequence[int]
    accepted: Sequence[int]
    emitted: Sequence[int]
    ends: Sequence[int]
    verified: Sequence[int] | None = None
    """Of each draft, checked by the target; None if all of each was."""
    prompt_tokens: int = 0
    invalid: int = 0
    padded: int = 0  # tokens planned for sequences that had ended by then, or for nothing


class RowReader:
    """Read steps, and keep the sequences of the last one."""

    def __init__(self, requests: Requests) -> None:
        self._known = requests
        self._ended = 0  # requests that had ended when the last step was read
        self._ids: list[str] = []
        self._states: list[Running] = []
        self._contexts: Sequence[int] = []  # of `_ids`, when the next step begins
        self._requests = array("Q")
        self._classes = b""
        self._no_ends = b""

    # HOT PATH. Once a step over all its sequences.
    def read(self, step: Taken) -> Rows:
        """Read the step's rows. Steps must come in the order of execution."""
        ids, lengths, k = self._ids, step.lengths, step.k
        if (
            step.given is not None
            or not ids
            or step.ids != ids
            or 0 in lengths
            or not lengths
            or step.scheduled is not None
            or step.anew
            or step.refused
            or self._known.ended != self._ended  # a step in flight may hold one that is gone
        ):
            return self._any(step)
        accepted = lengths.translate(_ONE_LESS)
        if 0 in k:
            drafted = int.from_bytes(k.translate(_ALL_BITS), "little")
            accepted = (int.from_bytes(accepted, "little") & drafted).to_bytes(len(k), "little")
        contexts, verified = self._contexts, None
        self._contexts = _sums(contexts, lengths)
        if step.carried is not None and step.carried[4] is not None:
            verified = _verified(ids, step.carried[4])
        return Rows(
            self._requests, self._classes, contexts, k, accepted, lengths, self._no_ends, verified
        )

    def forget(self) -> None:
        """Keep nothing of vLLM's."""
        self._ids, self._states = [], []

    def _any(self, step: Taken) -> Rows:
        """Read sequence by sequence: count prefill tokens, and skip sequences without output."""
        self._settle()
        lengths, anew, refused = step.lengths or bytes(len(step.ids)), step.anew, step.refused
        running = self._known.running
        given = None
        if step.given is not None:
            given = {each.request_id: len(each.new_token_ids) for each in step.given}
        scheduled = step.scheduled or [k + 1 for k in step.k]
        contexts, k_, accepted, emitted = list[int](), list[int](), list[int](), list[int]()
        rows = Rows((), (), contexts, k_, accepted, emitted, ())
        ids, states = list[str](), list[Running]()
        for id_, computed, k, made in zip(step.ids, scheduled, step.k, lengths, strict=True):
            state = running.get(id_)
            if state is None:
                rows.padded += computed
                continue
            out = made if given is None else given.get(id_)
            held = state.held
            state.held += out or 0
            if not state.first_token or computed != k + 1 or id_ in anew:
                # One token of a prompt is scheduled with k more, so that all are alike; vLLM
                # counts these as proposals that were refused.
                rows.prompt_tokens += computed - k
                rows.padded += k
                continue
            if not made:
                continue
            kept = made - 1 if k else 0
            if refused and id_ in refused:
                k -= refused[id_]
                rows.invalid += refused[id_]
            if out is None:  # vLLM drops what was made for a request that it put back
                rows.padded += k + 1
                continue
            ids.append(id_)
            states.append(state)
            contexts.append(held - 1)  # its last token is in no cache yet
            k_.append(k)
            accepted.append(kept)
            emitted.append(out)
        self._keep(ids, states)
        rows.requests, rows.classes, rows.ends = self._requests, self._classes, self._no_ends
        if step.carried is not None and step.carried[4] is not None:
            rows.verified = _verified(ids, step.carried[4])
        if step.turns:
            over = [each for each in step.turns if each.finish_reason is not None]
            reasons = {each.request_id: end_of(each) for each in over}
            rows.ends = bytes([reasons.get(id_, 0) for id_ in ids])
        return rows

    def _settle(self) -> None:
        """Write the counts back to the requests."""
        for state, context in zip(self._states, self._contexts, strict=True):
            state.held = context + 1

    def _keep(self, ids: list[str], states: list[Running]) -> None:
        self._ids, self._states, self._ended = ids, states, self._known.ended
        self._contexts = [state.held - 1 for state in states]
        self._requests = array("Q", [state.hashed for state in states])
        self._classes = bytes([state.class_ for state in states])
        self._no_ends = bytes(len(ids))


def _sums(contexts: Sequence[int], lengths: bytes) -> Sequence[int]:
    """Contexts, each increased by its sequence's length."""
    if len(lengths) < _WIDE:
        return list(map(add, contexts, lengths))
    # All of them at once, as one number of 32-bit digits.
    longer = bytearray(4 * len(lengths))
    longer[::4] = lengths
    before = contexts if isinstance(contexts, memoryview) else array("I", contexts)
    total = int.from_bytes(before, "little") + int.from_bytes(longer, "little")
    return memoryview(total.to_bytes(len(longer), "little")).cast("I")


def _verified(ids: list[str], admitted: dict[str, int]) -> bytes:
    """Verified length of each sequence's draft; the whole draft if unknown."""
    return bytes([admitted.get(id_, ALL_VERIFIED) for id_ in ids])
