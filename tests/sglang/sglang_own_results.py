"""Run with SGLang's own package: its Req and its result processor give out tokens, we watch.

sglang_own_results.py DIRECTORY: prints one JSON line, what SGLang counted and what our ring holds.
Everything of SGLang that needs a device or a configuration is mocked; what gives tokens to
requests, counts them and ends requests is its own.
"""

from __future__ import annotations

import dataclasses
import json
import random
import sys
from array import array
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import torch
from without_pictures import pretend_pictures

pretend_pictures()

from sglang.srt import runtime_context  # noqa: E402
from sglang.srt.managers.schedule_batch import ForwardMode, Req, ScheduleBatch  # noqa: E402
from sglang.srt.managers.scheduler_components import batch_result_processor  # noqa: E402
from sglang.srt.managers.utils import GenerationBatchResult  # noqa: E402
from sglang.srt.sampling.sampling_params import SamplingParams  # noqa: E402
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1] / "hook"))

from hook_fakes import a_boot  # noqa: E402
from sglang_serving import read_ring  # noqa: E402

from specscope_hook.adapters.sglang import check  # noqa: E402
from specscope_hook.adapters.sglang_scheduler import SchedulerProbe  # noqa: E402
from specscope_hook.settings import HookSettings  # noqa: E402

WIDTH, EOS, STOP = 4, 2, 9


class Off:
    """A configuration in which everything is off, at any depth."""

    def __getattr__(self, name):
        return self

    def __bool__(self):
        return False


def a_processor():
    runtime_context.RuntimeContext.config_bag = lambda self, name: Off()
    for name in ("release_kv_cache", "checkpoint_kv_cache"):
        setattr(batch_result_processor, name, lambda *_, **__: None)
    kind = batch_result_processor.SchedulerBatchResultProcessor
    for name in ("_maybe_update_reasoning_tokens", "_get_prefill_hidden_capture_mode"):
        setattr(kind, name, lambda *_: None)
    parts = {each.name: MagicMock() for each in dataclasses.fields(kind)}
    parts |= {"is_generation": True, "enable_overlap": True, "enable_overlap_mlx": False}
    parts["beam_coordinator"].commit_decode.return_value = set()
    return kind(**parts)


def requests(rng):
    for number in range(24):
        sampling = SamplingParams(
            max_new_tokens=rng.randint(1, 40),
            temperature=rng.choice([0.0, 0.7]),
            stop_token_ids=[STOP] if number % 3 == 0 else None,
            custom_params={"route": "sql"} if number % 4 == 0 else None,
        )
        sampling.normalize(None)
        yield Req(
            f"r{number}", "", array("q", range(10, 10 + rng.randint(1, 60))), sampling,
            eos_token_ids={EOS}, vocab_size=100,
        )  # fmt: skip


def run(probe, processor, reqs, algorithm, rng):
    """Both kinds of batch; as with overlap, who ended stays for one more."""

    def token():
        return rng.choice([EOS, STOP] + [50] * 40)

    def prompts():
        lengths = [len(req.origin_input_ids) for req in reqs]
        batch = ScheduleBatch(reqs=reqs, forward_mode=ForwardMode.EXTEND, spec_algorithm=algorithm)
        batch.extend_lens = lengths
        result = GenerationBatchResult(next_token_ids=torch.tensor([token() for _ in reqs]))
        return batch, result, processor.process_batch_result_prefill

    def round_(reqs):
        batch = ScheduleBatch(reqs=reqs, forward_mode=ForwardMode.DECODE, spec_algorithm=algorithm)
        if algorithm.is_none():
            tokens = torch.tensor([token() for _ in reqs])
            result = GenerationBatchResult(next_token_ids=tokens)
        else:
            tokens = torch.tensor([token() for _ in range(len(reqs) * WIDTH)])
            result = GenerationBatchResult(
                next_token_ids=tokens,
                accept_lens=torch.tensor([rng.randint(1, WIDTH) for _ in reqs]),
                speculative_num_draft_tokens=WIDTH,
            )
        return batch, result, processor.process_batch_result_decode

    def step(batch, result, process):
        probe.before_launch(batch)
        probe.after_launch(batch, result)
        probe.before_results(batch, result)
        process(batch, result)
        probe.after_results(result)

    for req in reqs:
        probe.queued(req)
    step(*prompts())
    running = reqs
    while running:
        left = [req for req in running if not req.finished()]
        step(*round_(running))
        running = left


def main(directory):
    rng = random.Random(5)
    found = {}
    for name in ("NONE", "EAGLE"):
        algorithm = SpeculativeAlgorithm[name]
        rings = Path(directory) / name
        rings.mkdir()
        worker = None if name == "NONE" else SimpleNamespace(topk=1, draft_worker=None)
        scheduler = SimpleNamespace(
            device="npu", waiting_queue=[], tp_worker=None, draft_worker=worker
        )
        probe = SchedulerProbe(scheduler, HookSettings(rings, "r0", 1 << 20), a_boot(), check)
        reqs = list(requests(rng))
        run(probe, a_processor(), reqs, algorithm, rng)
        probe.close()
        ring = read_ring(rings)
        hashed = {probe._recorder.request_hash(req.rid): req for req in reqs}
        truth = ring.truth()
        ends = {end.request: end for end in ring.ends}
        found[name] = {"fault": ring.fault, "requests": []}
        for key, req in hashed.items():
            rows = truth.get(key, [])
            histogram = [0] * WIDTH
            for _, kept, _, _ in rows:
                histogram[kept] += 1
            kept = req.spec_correct_drafts_histogram
            theirs = {
                "rounds": req.spec_verify_ct,
                "accepted": req.spec_num_correct_drafts,
                "histogram": kept + [0] * (WIDTH - len(kept)),
                "output": len(req.output_ids_through_stop),
                "end": req.finished_reason.to_json(),
            }
            ours = {
                "rounds": len(rows),
                "accepted": sum(row[1] for row in rows),
                "histogram": histogram,
                "output": ends[key].output_tokens,
                "emitted": sum(row[2] for row in rows),
                "contexts": [row[3] for row in rows],
                "prompt": len(req.origin_input_ids),
                "end": ends[key].reason,
                "temperature": ends[key].temperature,
                "greedy": req.sampling_params.top_k == 1,
            }
            found[name]["requests"].append([theirs, ours])
    sys.stdout.write("RESULT" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
