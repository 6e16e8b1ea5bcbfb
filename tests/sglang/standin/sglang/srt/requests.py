"""Requests, batches and results: the attributes that the adapter reads, and a tally of truth."""

from array import array
from dataclasses import dataclass, field
from enum import Enum
from types import SimpleNamespace


class ForwardMode(Enum):
    EXTEND = 1
    DECODE = 2
    MIXED = 3
    IDLE = 4

    def is_decode(self):
        return self is ForwardMode.DECODE

    def is_idle(self):
        return self is ForwardMode.IDLE


class Finish:
    def __init__(self, **said):
        self.said = said

    def to_json(self):
        return self.said


class Req:
    def __init__(self, rid, prompt=10, **sampling):
        plain = {"temperature": 0.5, "top_p": 1.0, "top_k": -1, "max_new_tokens": 20}
        guides = dict.fromkeys(("json_schema", "regex", "ebnf", "structural_tag"))
        more = {"custom_params": None, "stop_token_ids": None}
        self.sampling_params = SimpleNamespace(**plain | guides | more | sampling)
        self.rid = rid
        self.origin_input_ids = array("q", [5] * prompt)
        self.output_ids = array("q")
        self.finished_reason = self.finished_len = self.to_finish = None
        self.is_retracted, self.retracted_in = False, 0
        self.lora_id = self.session_id = self.session = None
        self.cached_tokens = 3
        self.truth = []  # (k, accepted, emitted, context) of each of its rounds

    def finished(self):
        return self.finished_reason is not None

    @property
    def output_ids_through_stop(self):
        return self.output_ids[: self.finished_len]

    def give(self, tokens, eos):
        """Its new tokens; some of them may end it."""
        self.output_ids.extend(tokens)
        if self.to_finish:
            self.finished_reason, self.to_finish = self.to_finish, None
            return
        stops = {eos, *(self.sampling_params.stop_token_ids or ())}
        limit = self.sampling_params.max_new_tokens
        for place in range(len(self.output_ids) - len(tokens), len(self.output_ids)):
            if self.output_ids[place] in stops and place < limit:
                self.finished_reason = Finish(type="stop", matched=self.output_ids[place])
                self.finished_len = place + 1
                return
        if len(self.output_ids) >= limit:
            self.finished_reason, self.finished_len = Finish(type="length", length=limit), limit


@dataclass
class ScheduleBatch:
    reqs: list
    forward_mode: ForwardMode
    decoding_reqs: list | None = None
    extend_lens: list | None = None
    after_idle_gap: bool = False


@dataclass
class GenerationBatchResult:
    tokens: list = field(default_factory=list)
    accept_lens: list | None = None
    num_correct_drafts_per_req_cpu: list | None = None
    speculative_num_draft_tokens: int | None = None
    depth: int = 0  # how many of them could be kept, for the tally of truth
