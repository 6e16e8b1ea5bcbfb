"""A fault of ours at each point where vLLM calls us: `vllm_faults.py MODEL OUT.json`.

Runs inside vLLM's environment, with scheduler and worker in this process (ONE_PROCESS), so that
one engine serves all points. At each, a new probe and new wrappers are put in, the call below them
is made to raise, requests are served, and what came out, what the probe is and what its ring is
called are written down.
"""

import itertools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from specscope_hook.adapters import vllm_lengths, vllm_requests, vllm_rows
from specscope_hook.adapters import vllm_scheduler as scheduling
from specscope_hook.adapters.vllm_boot import vllm_boot
from specscope_hook.adapters.vllm_worker import WorkerProbe
from specscope_hook.blocks import Blocks
from specscope_hook.ring import Ring, RingReader
from specscope_hook.settings import HookSettings
from specscope_hook.timers import HostTimer

MOMENTS = (
    "_model_forward",
    "execute_model",
    "sample_tokens",
    "propose_draft_token_ids",
    "propose_draft_token_ids, behind",
    "sample_tokens, behind",
)
"""Where the worker reads its clock, in the order of a step."""
POINTS = {
    "add_request": (vllm_requests.Requests, "admit"),
    "schedule, before": (Blocks, "look"),
    "schedule, before, block": (Blocks, "advance"),
    "schedule, after": (vllm_requests.Requests, "scheduled"),
    "_update_after_schedule": (vllm_lengths.Lengths, "plan"),
    "update_from_output, rows": (vllm_rows.RowReader, "read"),
    "update_from_output, after": (scheduling, "TOGETHER_NS"),
    "get_grammar_bitmask, taken": (scheduling, "taken"),
    "get_grammar_bitmask": (scheduling.SchedulerProbe, "_read_steps"),
    "update_from_output, ends": (vllm_requests.Requests, "given"),
    "update_draft_token_ids": (vllm_lengths.Lengths, "trim"),
    "finish_requests": (vllm_requests.Requests, "abort"),
    "ring": (Ring, "push"),
    **dict.fromkeys(MOMENTS, (HostTimer, "__init__")),
    "sample_tokens, sealing": (WorkerProbe, "_end_step"),
    "sample_tokens, carrying": (WorkerProbe, "_put"),
    "sample_tokens, output": (WorkerProbe, "_carry"),
}


def broken(*args: object, **kwargs: object) -> None:
    raise RuntimeError("planted")


class Unusable:
    """A number that cannot be added to another."""

    __radd__ = broken


def clock_that_fails(at: int) -> Callable[[HostTimer], None]:
    """Of a worker's timer: one whose clock cannot be read the so manieth time."""

    def init(timer: HostTimer) -> None:
        made(timer)
        moment, readings = timer.moment, itertools.count()
        timer.moment = lambda: moment() if next(readings) != at else broken()

    return init


made = HostTimer.__init__


def main() -> None:
    from vllm import LLM, SamplingParams

    ngram = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3}
    llm = LLM(
        model=sys.argv[1],
        speculative_config=ngram,
        enforce_eager=True,
        max_model_len=256,
        max_num_seqs=8,
        seed=0,
    )
    engine = llm.llm_engine
    core = engine.engine_core.engine_core
    scheduler = core.scheduler
    worker = core.model_executor.driver_worker.worker
    runner = worker.model_runner
    settings = HookSettings.from_env(os.environ)
    sampling = SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True)
    prompts = [{"prompt_token_ids": [5 + n, 6, 7, 5 + n, 6, 7]} for n in range(3)]

    def serve() -> list[list[int]]:
        engine.add_request("given up", prompts[0], sampling)
        engine.step()
        engine.abort_request(["given up"])
        outputs = llm.generate(prompts, sampling, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]

    def attach() -> None:
        scheduler._specscope.close()
        boot = vllm_boot(scheduler.vllm_config, scheduler.kv_cache_config, settings, "0.32.0")
        probe = scheduler._specscope = scheduling.SchedulerProbe(scheduler, settings, boot)
        # Under a policy, so that what runs only then is run; its k is the engine's own.
        policy = {"policy": 1, "kind": "table", "table": [], "default_k": 4}
        reader = RingReader.open(probe._ring.path)
        reader.control_write(json.dumps(policy))
        reader.close()
        for name in [n for n, v in vars(runner).items() if getattr(v, "__name__", "") == "timed"]:
            delattr(runner, name)
        WorkerProbe.attach(worker)

    found = {"untouched": {"tokens": serve(), "on": scheduler._specscope.on}}
    for point, (owner, name) in POINTS.items():
        kept = vars(owner)[name]
        # First, since the worker's wrappers keep their timer's methods.
        fault = Unusable() if name == "TOGETHER_NS" else broken
        setattr(owner, name, clock_that_fails(MOMENTS.index(point)) if point in MOMENTS else fault)
        attach()
        probe = scheduler._specscope
        if owner is Ring:
            probe._recorder._push = broken
        tokens = serve()
        setattr(owner, name, kept)
        ring = probe._ring.path.name
        again = serve()
        found[point] = {"tokens": tokens, "again": again, "on": probe.on, "ring": ring}
    attach()
    Ring.close = broken
    core.shutdown()
    found["shutdown"] = {"ring": scheduler._specscope._ring.path.name}
    Path(sys.argv[2]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
