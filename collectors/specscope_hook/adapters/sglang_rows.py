"""SGLang: the sequences of one batch, read before and after its tokens are given to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from specscope_hook.adapters.sglang_requests import Requests, end_of


@dataclass(slots=True)
class Rows:
    """One value a sequence that decodes, and what else the batch worked on."""

    reqs: list[Any] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    given: list[int] = field(default_factory=list)  # tokens given out before the batch
    requests: list[int] = field(default_factory=list)
    classes: list[int] = field(default_factory=list)
    contexts: list[int] = field(default_factory=list)
    k: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    emitted: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    gone: int = 0  # sequences that had ended before the batch's results were read
    prompt_tokens: int = 0
    padded_tokens: int = 0


class RowReader:
    """Reads batches; nothing is kept from one to the next."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    # HOT PATH. Once a batch over all its sequences.
    def before(self, batch: Any) -> Rows:
        """The sequences that decode in the batch, as they are before it gives them tokens."""
        rows = Rows()
        if batch.forward_mode.is_decode():
            decoding = batch.reqs
        else:
            decoding = batch.decoding_reqs or ()
            rows.prompt_tokens = sum(batch.extend_lens or ()) - len(decoding)
        running = self._requests.running
        for place, req in enumerate(decoding):
            # With overlap a sequence is in one batch more than it needed.
            if req.finished() or req.is_retracted:
                rows.gone += 1
                continue
            state = running.get(req.rid)
            if state is None:
                continue
            given = len(req.output_ids)
            rows.reqs.append(req)
            rows.places.append(place)
            rows.given.append(given)
            rows.requests.append(state.hashed)
            rows.classes.append(state.class_)
            rows.contexts.append(len(req.origin_input_ids) + given - 1)
        return rows

    def after(self, rows: Rows, result: Any, depth: int | None) -> None:
        """Complete the rows from what the batch made of its sequences.

        depth: of the tree of proposals, where they form one; None for a chain. Proposals
        beside the deepest path can never be kept, so they are padding and not k.
        """
        kept = result.num_correct_drafts_per_req_cpu
        if kept is None:  # no speculation, or a batch that also worked on prompts
            k = width = 0
        else:
            width = int(result.speculative_num_draft_tokens) - 1
            k = width if depth is None else min(depth, width)
        count = len(rows.reqs)
        rows.k = [k] * count
        rows.accepted = [0] * count if kept is None else [kept[place] for place in rows.places]
        rows.padded_tokens = (width - k) * count + rows.gone * (width + 1)
        for req, given in zip(rows.reqs, rows.given, strict=True):
            visible = req.finished_len  # tokens behind a stop are cut off
            rows.emitted.append((len(req.output_ids) if visible is None else visible) - given)
            rows.ends.append(0 if req.finished_reason is None else int(end_of(req)))
