"""What the vLLM adapter and the recorder together cost: a step over all sequences, a request.

    python bench/vllm_adapter.py

Budget: under 80 us at batch 256. vLLM's objects are stood in for by plain ones of the same
shape, since only our share is measured; a step of a real engine takes 5 to 50 ms.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

from specscope_hook.adapters.vllm_requests import _SHAPES
from specscope_hook.adapters.vllm_scheduler import SchedulerProbe
from specscope_hook.boot import new_boot
from specscope_hook.layout import Cursor
from specscope_hook.reader import RingReader
from specscope_hook.settings import HookSettings
from specscope_hook.timers import MOMENTS

BUDGET_US = 80.0
BATCH = 256
TOGETHER_HERE = 8  # steps that are written together: those of 250 ms, if one takes 31 ms
K = 4


class Engine:
    """As much of vLLM's scheduler and its requests as the adapter looks at."""

    vllm_config = None
    finished_req_ids: frozenset[str] = frozenset()

    def __init__(self, batch: int) -> None:
        self.running = [object()]
        self._batch = batch

    def get_request_counts(self) -> tuple[int, int]:
        return self._batch, 0


def request(id_: str) -> SimpleNamespace:
    """A greedy request: a thousand tokens of prompt, two hundred came out."""
    return SimpleNamespace(
        request_id=id_,
        sampling_params=SimpleNamespace(
            **dict.fromkeys(_SHAPES), temperature=0.0, top_p=1.0, extra_args=None
        ),
        prompt_token_ids=list(range(100_000, 101_000)),
        lora_request=None,
        structured_output_request=None,
        session_id=None,
        num_prompt_tokens=1000,
        max_tokens=200,
        arrival_time=time.time(),
        all_token_ids=[0] * 1200,
        output_token_ids=list(range(100_000, 100_200)),
        num_preemptions=0,
    )


def step_of(probe: SchedulerProbe, ids: list[str]) -> Callable[[], None]:
    """A function that runs one steady decode step through the probe."""
    planned = SimpleNamespace(
        num_scheduled_tokens=dict.fromkeys(ids, K + 1),
        total_num_scheduled_tokens=len(ids) * (K + 1),
        scheduled_spec_decode_tokens={id_: [-1] * K for id_ in ids},
        num_invalid_spec_tokens=None,
        preempted_req_ids=set(),
        scheduled_new_reqs=[],
        scheduled_cached_reqs=SimpleNamespace(resumed_req_ids=set()),
    )
    made = SimpleNamespace(
        req_ids=list(ids),
        req_id_to_index={id_: place for place, id_ in enumerate(ids)},
        sampled_token_ids=[[1, 2, 3]] * len(ids),
    )
    outputs = [
        SimpleNamespace(
            request_id=id_, new_token_ids=[1, 2, 3], finish_reason=None, prefill_stats=None
        )
        for id_ in ids
    ]
    given = {0: SimpleNamespace(outputs=outputs)}
    tag = 0
    moments = [1000 * place for place in range(MOMENTS)]

    def step() -> None:
        nonlocal tag
        tag += 1
        made._specscope = (tag, [(tag, moments)], 0, "", None)
        if probe.due:
            probe.catch_up()
        probe.after_update(planned, made, bytes(map(len, made.sampled_token_ids)), given)

    return step


def requests_of(probe: SchedulerProbe) -> tuple[float, float]:
    """Microseconds that a request's admission and its end cost, over a few hundred; on the critical
    path an admission is only put on a list."""
    requests = [request(f"cmpl-{number}-more") for number in range(300)]
    ends = [
        SimpleNamespace(
            request_id=each.request_id,
            new_token_ids=[1],
            finish_reason=1,
            stop_reason=None,
            prefill_stats=None,
        )
        for each in requests
    ]
    began = time.perf_counter_ns()
    for each in requests:
        probe.admitted(each)
    probe._read_arrivals()
    admitted = time.perf_counter_ns()
    probe._requests.given(ends, admitted)
    ended = time.perf_counter_ns()
    return (admitted - began) / 3e5, (ended - admitted) / 3e5


def serving(directory: str, batch: int) -> tuple[SchedulerProbe, Callable[[], None]]:
    """A probe whose requests all decode, and a function that runs a step of theirs through it."""
    settings = HookSettings(Path(directory), "bench", 64 << 20)
    boot = new_boot(settings, engine="vllm", engine_version="0", target="x", k_max=K)
    probe = SchedulerProbe(Engine(batch), settings, boot)
    ids = [f"cmpl-{number}" for number in range(batch)]
    for id_ in ids:
        probe.admitted(request(id_))
    probe.flush()
    for state in probe._requests.running.values():
        state.scheduled = state.first_token = 1
    return probe, step_of(probe, ids)


def from_cold_caches(batch: int, megabytes: int) -> tuple[float, float]:
    """Microseconds of a step on the critical path, and while the worker computes, if between two
    steps something reads so much memory, as a model does. Means over the cheapest nine tenths."""
    with tempfile.TemporaryDirectory() as directory:
        probe, step = serving(directory, batch)
        model = bytearray(megabytes << 20)
        costs: dict[bool, list[int]] = {False: [], True: []}
        for _ in range(40):
            for number in range(TOGETHER_HERE + 1):
                bytes(model)
                began = time.perf_counter_ns()
                if last := number == TOGETHER_HERE:
                    probe.flush()
                else:
                    step()
                costs[last].append(time.perf_counter_ns() - began)
        assert probe.on
        probe.close()
    path, shadow = (sorted(each)[: len(each) * 9 // 10] for each in costs.values())
    return sum(path) / len(path) / 1e3, sum(shadow) / len(shadow) / TOGETHER_HERE / 1e3


def main() -> int:
    """Measure and print, for small and large batches."""
    cost = 0.0
    for batch in (1, 64, BATCH):
        with tempfile.TemporaryDirectory() as directory:
            probe, step = serving(directory, batch)
            reader = RingReader.open(next(Path(directory).glob("*.ring")))
            costs = []
            for _ in range(200):
                began = time.perf_counter_ns()
                for _ in range(32):
                    step()
                costs.append((time.perf_counter_ns() - began) / 32e3)
                reader.release(Cursor(reader.pull(Cursor(), 1 << 40)[1].position))
            admissions, ends = zip(*(requests_of(probe) for _ in range(20)), strict=True)
            assert probe.on
            assert reader.dropped == 0
            probe.close()
            cost = min(costs)
        print(f"step of {batch:3d} sequences: {cost:6.1f} us")
    print(f"a request: {min(admissions):.1f} us at its admission, {min(ends):.1f} us at its end")
    for megabytes in (3, 25):
        for batch in (1, 64):
            path, shadow = from_cold_caches(batch, megabytes)
            print(
                f"step of {batch:3d} sequences after {megabytes} MB: {path:.1f} us on the critical "
                f"path, {shadow:.1f} while the worker computes"
            )
    print(f"budget at {BATCH}: {BUDGET_US} us")
    return 0 if cost < BUDGET_US else 1


if __name__ == "__main__":
    sys.exit(main())
