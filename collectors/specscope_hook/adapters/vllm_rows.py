"""vLLM: the sequences of one step, read from its scheduler's plan and its runner's output.

A step over the same sequences as the step before, all decoding, is the rule; then lists are
built whole, from what is kept of the step before. Everything else goes sequence by sequence.
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

from specscope_hook.adapters.vllm_requests import Requests, Running

_ONE_LESS = bytes([0, *range(255)])
"""To translate bytes by: each less one."""


@dataclass(slots=True)
class Rows:
    """One value a sequence, and what else the step worked on."""

    ids: list[str]
    requests: Sequence[int]
    classes: Sequence[int]
    held: list[int]  # tokens that it holds, of which the last is in no cache yet
    k: Sequence[int]
    accepted: Sequence[int]
    made: Sequence[int]
    prompt_tokens: int = 0
    invalid: int = 0
    padded: int = 0  # tokens planned for sequences that had ended by then, or for nothing

    def only(self, given: Container[str]) -> Rows:
        """Of the sequences that were given something; what was planned for others is padding."""
        at = [place for place, id_ in enumerate(self.ids) if id_ in given]
        columns = (self.requests, self.classes, self.held, self.k, self.accepted, self.made)
        requests, classes, held, k, accepted, made = ([each[p] for p in at] for each in columns)
        rows = Rows([self.ids[place] for place in at], requests, classes, held, k, accepted, made)
        rows.prompt_tokens, rows.invalid = self.prompt_tokens, self.invalid
        rows.padded = self.padded + sum(self.k) + len(self.ids) - sum(k) - len(at)
        return rows


class RowReader:
    """Reads steps; keeps the sequences of the last one."""

    def __init__(self, requests: Requests) -> None:
        self._known = requests
        self._ended = 0  # requests that had ended when the last step was read
        self._ids: list[str] = []
        self._tokens: list[Any] = []
        self._requests = array("Q")
        self._classes = b""

    # HOT PATH. Once a step over all its sequences.
    def read(self, planned: Any, made: Any) -> Rows:
        """The step's rows, before its tokens are given to its requests."""
        ids, scheduled = self._ids, planned.num_scheduled_tokens
        if not ids or list(scheduled) != ids or planned.num_invalid_spec_tokens:
            return self._any(planned, made)
        if self._known.ended != self._ended:  # a step in flight may hold one that is gone
            return self._any(planned, made)
        if planned.scheduled_new_reqs or planned.scheduled_cached_reqs.resumed_req_ids:
            return self._any(planned, made)
        drafts, tokens = planned.scheduled_spec_decode_tokens, made.sampled_token_ids
        if list(drafts) == ids:
            k = bytes(map(len, drafts.values()))
        else:
            k = bytes([len(drafts[id_]) if id_ in drafts else 0 for id_ in ids])
        # A sequence is planned for k + 1 tokens or, with a prompt to compute, for more; so one
        # sum tells that all of them decode.
        if not tokens or planned.total_num_scheduled_tokens != sum(k) + len(ids):
            return self._any(planned, made)
        if made.req_ids == ids:  # the order of tokens; that of the index by id is another
            lengths = bytes(map(len, tokens))
        else:
            place = made.req_id_to_index
            lengths = bytes([len(tokens[place[id_]]) for id_ in ids])
        if 0 in lengths:
            return self._any(planned, made)
        accepted = lengths.translate(_ONE_LESS)
        if 0 in k:
            pairs = zip(accepted, k, strict=True)
            accepted = bytes([kept if k_ else 0 for kept, k_ in pairs])
        held = list(map(len, self._tokens))
        return Rows(ids, self._requests, self._classes, held, k, accepted, lengths)

    def forget(self) -> None:
        """Keep nothing of vLLM's."""
        self._ids, self._tokens = [], []

    def _any(self, planned: Any, made: Any) -> Rows:
        """Sequence by sequence: prompts are counted, what gave out nothing is left out."""
        drafts, refused = planned.scheduled_spec_decode_tokens, planned.num_invalid_spec_tokens
        place, tokens = made.req_id_to_index, made.sampled_token_ids
        running = self._known.running
        # The V2 runner is told of requests that come back as if they were new.
        anew = {new.req_id for new in planned.scheduled_new_reqs}
        anew |= planned.scheduled_cached_reqs.resumed_req_ids
        k_, accepted, lengths = list[int](), list[int](), list[int]()
        rows, states = Rows([], (), (), [], k_, accepted, lengths), []
        for id_, scheduled in planned.num_scheduled_tokens.items():
            state = running.get(id_)
            if state is None:
                rows.padded += scheduled
                continue
            draft = drafts.get(id_)
            k = len(draft) if draft else 0
            if not state.first_token or scheduled != k + 1 or id_ in anew:
                # One token of a prompt is scheduled with k more, so that all are alike; vLLM
                # counts these as proposals that were refused.
                rows.prompt_tokens += scheduled - k
                rows.padded += k
                continue
            made_here = tokens[place[id_]] if tokens else ()
            if not made_here:
                continue
            if refused and id_ in refused:
                k -= refused[id_]
                rows.invalid += refused[id_]
            states.append(state)
            rows.ids.append(id_)
            k_.append(k)
            accepted.append(len(made_here) - 1 if draft else 0)
            lengths.append(len(made_here))
        self._keep(rows, states)
        rows.held = list(map(len, self._tokens))
        return rows

    def _keep(self, rows: Rows, states: list[Running]) -> None:
        self._ids, self._ended = rows.ids, self._known.ended
        self._tokens = [state.request.all_token_ids for state in states]
        # The list behind vLLM's read-only view, whose length costs ten times as much.
        self._tokens = [getattr(each, "_x", each) for each in self._tokens]
        rows.requests = self._requests = array("Q", [state.hashed for state in states])
        rows.classes = self._classes = bytes([state.class_ for state in states])


def all_of(outputs: dict[int, Any]) -> list[Any]:
    """What a step gave out, over vLLM's front ends."""
    return [each for some in outputs.values() for each in some.outputs]
