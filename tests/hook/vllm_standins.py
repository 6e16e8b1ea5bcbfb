"""What the vLLM adapter touches of vLLM's scheduler, as plain objects: no vLLM is installed here.

The real thing is in tests/vllm; these are for orders of events that a CPU build cannot show.
"""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any

from hook_fakes import a_boot, flush_rings

from specscope_hook.adapters.vllm_scheduler import SchedulerProbe
from specscope_hook.layout import Cursor
from specscope_hook.payload import decode
from specscope_hook.reader import RingReader
from specscope_hook.ring_records import RingRequest, RingRound
from specscope_hook.settings import HookSettings


class Request:
    """A request of vLLM's."""

    def __init__(self, id_: str, prompt: int = 10) -> None:
        self.request_id = id_
        self.sampling_params = SimpleNamespace(temperature=0.5, top_p=1.0, extra_args=None)
        self.lora_request = self.structured_output_request = self.session_id = None
        self.num_prompt_tokens = prompt
        self.max_tokens = 100
        self.arrival_time = time.time()
        self.num_preemptions = 0
        self.output_token_ids: list[int] = []
        self.all_token_ids = [0] * prompt

    @property
    def num_tokens(self) -> int:
        return len(self.all_token_ids)


def a_config(method: str = "ngram", ranks: int = 1, full_graphs: bool = False) -> Any:
    """As much of vLLM's configuration as decides whether a step's draft length may be lowered."""
    return SimpleNamespace(
        speculative_config=SimpleNamespace(method=method, parallel_drafting=False),
        parallel_config=SimpleNamespace(data_parallel_size=ranks),
        compilation_config=SimpleNamespace(
            cudagraph_mode=SimpleNamespace(has_full_cudagraphs=lambda: full_graphs)
        ),
        use_v2_model_runner=False,
    )


class Scheduler:
    """A scheduler that runs steps as a test says, telling a probe as the wrappers do."""

    def __init__(self, directory: Any, **settings: Any) -> None:
        self.running: list[Request] = []
        self.finished_req_ids: set[str] = set()
        self.requests: dict[str, Request] = {}
        self.tag = 0
        self.vllm_config = a_config()
        values = HookSettings(directory, "r0", 1 << 22, **settings)
        self.probe = SchedulerProbe(self, values, a_boot())
        self.path = next(directory.glob("*.ring"))

    def get_request_counts(self) -> tuple[int, int]:
        return len(self.running), 0

    def add(self, id_: str, prompt: int = 10) -> Request:
        request = Request(id_, prompt)
        self.requests[id_] = request
        self.running.append(request)
        self.probe.admitted(request)
        return request

    def plan(self, drafts: dict[str, int], prompts: tuple[str, ...] = (), **more: Any) -> Any:
        """A step over prompts, and over sequences with so many proposals each."""
        self.probe.before_schedule()  # told in each step, where vLLM's wrapper asks `watching`
        self.finished_req_ids = set()
        scheduled = {id_: self.requests[id_].num_tokens for id_ in prompts}
        scheduled |= {id_: k + 1 for id_, k in drafts.items()}
        planned = SimpleNamespace(
            num_scheduled_tokens=scheduled,
            total_num_scheduled_tokens=sum(scheduled.values()),
            scheduled_spec_decode_tokens={id_: [-1] * k for id_, k in drafts.items() if k},
            num_invalid_spec_tokens=None,
            preempted_req_ids=set(),
            scheduled_new_reqs=[SimpleNamespace(req_id=id_) for id_ in prompts],
            num_spec_tokens_to_schedule=4,
            scheduled_cached_reqs=SimpleNamespace(resumed_req_ids=set()),
        )
        vars(planned).update(more)
        self._update_after_schedule(planned)
        self.probe.after_schedule(planned)
        if self.probe.due:  # the worker computes
            self.probe.catch_up()
        return planned

    def _update_after_schedule(self, scheduler_output: Any) -> None:
        """vLLM's own; under a policy it is wrapped."""

    def update_draft_token_ids(self, draft_token_ids: Any) -> None:
        """vLLM's own; under a policy it is wrapped."""

    def follow(self, policy: dict[str, Any]) -> None:
        """A policy comes from the sidecar, and is seen when steps are written together."""
        RingReader.open(self.path).control_write(json.dumps(policy))
        self.probe.flush()

    def finish_step(
        self,
        planned: Any,
        accepted: dict[str, int] | None = None,
        ended: dict[str, int] | None = None,
        steps: list[tuple[int, float, float, float, float]] | None = None,
        source: int = 0,
        dropped: tuple[str, ...] = (),
        verified: dict[str, int] | None = None,
    ) -> None:
        """Give out the step's tokens. ended: FinishReason by id; steps: times that are known;
        dropped: whose tokens the scheduler throws away; verified: drafts that the target checked.
        """
        self.tag += 1
        ids = list(planned.num_scheduled_tokens)
        order = ids[1:] + ids[:1]  # the runner's own; its index by id keeps the plan's
        made = SimpleNamespace(
            req_ids=order,
            req_id_to_index={id_: order.index(id_) for id_ in ids},
            sampled_token_ids=[[7] * ((accepted or {}).get(id_, 0) + 1) for id_ in order],
        )
        known = [(self.tag, 1.0, 2.0, 3.0, 4.0)] if steps is None else steps
        made._specscope = (self.tag, known, source, "", verified)
        lengths = bytes(map(len, made.sampled_token_ids))
        outputs = []
        for id_ in ids:
            tokens = made.sampled_token_ids[order.index(id_)]
            request = self.requests.get(id_)
            if request is None or id_ in dropped:
                continue
            first = not request.output_token_ids
            request.all_token_ids += tokens
            request.output_token_ids += tokens
            reason = (ended or {}).get(id_)
            if reason is not None:
                self.leave(request)
            outputs.append(
                SimpleNamespace(
                    request_id=id_,
                    new_token_ids=tokens,
                    finish_reason=reason,
                    stop_reason=None,
                    prefill_stats=SimpleNamespace(num_cached_tokens=3) if first else None,
                )
            )
        self.probe.after_update(planned, made, lengths, {0: SimpleNamespace(outputs=outputs)})

    def leave(self, request: Request) -> None:
        del self.requests[request.request_id]
        self.running.remove(request)
        self.finished_req_ids.add(request.request_id)

    def records(self) -> tuple[list[RingRound], list[RingRequest]]:
        """What is on the ring, with the rounds that only wait to be written together."""
        self.probe.flush()
        reader = RingReader.open(self.path)
        assert reader.fault_text == ""
        flush_rings()
        found = [decode(record) for record in reader.pull(Cursor(), 1 << 40)[0]]
        rounds = [record for record in found if isinstance(record, RingRound)]
        return rounds, [record for record in found if isinstance(record, RingRequest)]
