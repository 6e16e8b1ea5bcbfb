"""SGLang: read the sequences of one batch, before and after they receive its tokens.

Consecutive batches usually have the same sequences. Then constant values are reused.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import add, sub
from typing import Any

from specscope_hook.adapters.sglang_requests import Requests, end_of


@dataclass(slots=True)
class Rows:
    """One value per decoding sequence, and the batch's prefill and padding."""

    reqs: list[Any] = field(default_factory=list)
    places: list[int] | None = None  # in the batch; None where it holds no others
    given: list[int] = field(default_factory=list)  # tokens given out before the batch
    requests: Sequence[int] = ()
    classes: Sequence[int] = ()
    contexts: list[int] = field(default_factory=list)
    k: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    emitted: list[int] = field(default_factory=list)
    ends: Sequence[int] = ()
    turns: list[Any] = field(default_factory=list)  # requests that may have begun or ended
    gone: int = 0  # sequences that had ended before the batch's results were read
    prompt_tokens: int = 0
    padded_tokens: int = 0


class RowReader:
    """Read batches, and keep the sequences of the last one."""

    def __init__(self, requests: Requests) -> None:
        self._running = requests.running
        self._live: list[Any] = []
        self._known: list[Any] = []
        self._prompts: list[int] = []
        self._requests = array("Q")
        self._classes = b""

    # HOT PATH. Once a batch over all its sequences.
    def before(self, batch: Any) -> Rows:
        """Read the decoding sequences of the batch before they receive its tokens."""
        rows = Rows()
        decoding = batch.reqs
        if not batch.forward_mode.is_decode():
            decoding = batch.decoding_reqs or ()
            rows.prompt_tokens = sum(batch.extend_lens or ()) - len(decoding)
            rows.turns = batch.reqs
        # With overlap a sequence is in one batch more than it needed.
        live = [req for req in decoding if req.finished_reason is None and not req.is_retracted]
        if live != self._live:
            self._keep(live)
        known = rows.reqs = self._known
        rows.gone = len(decoding) - len(live)
        if len(known) != len(batch.reqs):
            places = {id(req): place for place, req in enumerate(batch.reqs)}
            rows.places = [places[id(req)] for req in known]
        rows.given = [len(req.output_ids) for req in known]
        rows.contexts = list(map(add, rows.given, self._prompts))
        rows.requests, rows.classes = self._requests, self._classes
        return rows

    def _keep(self, live: list[Any]) -> None:
        """Keep the requests of a batch, without the engine's health checks."""
        self._live = live
        self._known = [req for req in live if req.rid in self._running]
        states = [self._running[req.rid] for req in self._known]
        # The newest token of a sequence is not in its cache yet.
        self._prompts = [len(req.origin_input_ids) - 1 for req in self._known]
        self._requests = array("Q", [state.hashed for state in states])
        self._classes = bytes([state.class_ for state in states])

    def after(self, rows: Rows, result: Any, depth: int | None) -> None:
        """Complete the rows after the sequences received the batch's tokens.

        depth: depth of the tree of proposals; None for a chain. Proposals outside one path cannot
        be accepted, so they count as padding and not as k.
        """
        reqs, kept, k, width = rows.reqs, result.num_correct_drafts_per_req_cpu, 0, 0
        count = len(reqs)
        if kept is None:  # no speculation, or a batch that also worked on prompts
            rows.accepted = [0] * count
        else:
            width = int(result.speculative_num_draft_tokens) - 1
            k = width if depth is None else min(depth, width)
            rows.accepted = kept if rows.places is None else [kept[n] for n in rows.places]
        rows.k = [k] * count
        rows.padded_tokens = (width - k) * count + rows.gone * (width + 1)
        made = [len(req.output_ids) for req in reqs]
        ended = [place for place, req in enumerate(reqs) if req.finished_reason is not None]
        ends = bytearray(count)
        for place in ended:
            req = reqs[place]
            ends[place] = end_of(req)
            if req.finished_len is not None:  # tokens behind a stop are cut off
                made[place] = req.finished_len
        rows.ends = bytes(ends)
        rows.emitted = list(map(sub, made, rows.given))
        rows.turns = rows.turns or [reqs[place] for place in ended]
        if ended:
            self.forget()  # what they hold is not ours to keep

    def forget(self) -> None:
        """Drop the last batch's sequences."""
        self._live, self._known = [], []
