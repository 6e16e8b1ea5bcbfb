"""A scheduler with SGLang's two loops: results at once, or while the next batch runs."""

from collections import deque
from enum import Enum
from types import SimpleNamespace

from sglang.srt.managers.tp_worker import TpModelWorker
from sglang.srt.requests import Finish, ForwardMode, ScheduleBatch
from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2
from sglang.srt.speculative.ngram_worker import NGRAMWorker
from sglang.srt.speculative.standalone_worker_v2 import StandaloneWorkerV2


class SpeculativeAlgorithm(Enum):
    NONE = 0
    EAGLE = 1
    STANDALONE = 2
    NGRAM = 3
    DFLASH = 4

    def is_none(self):
        return self is SpeculativeAlgorithm.NONE

    def is_eagle(self):
        return self is SpeculativeAlgorithm.EAGLE

    def is_standalone(self):
        return self is SpeculativeAlgorithm.STANDALONE

    def is_ngram(self):
        return self is SpeculativeAlgorithm.NGRAM


WORKERS = {"EAGLE": EAGLEWorkerV2, "STANDALONE": StandaloneWorkerV2, "NGRAM": NGRAMWorker}


class Scheduler:
    def __init__(self, server_args, port_args):
        plan = self.plan = server_args
        self.is_generation = True
        self.dllm_config, self.enable_pdmux = None, False
        self.device = "cpu"
        self.spec_algorithm = SpeculativeAlgorithm[plan.algorithm]
        config = SimpleNamespace(num_hidden_layers=4)
        self.model_config = SimpleNamespace(hf_text_config=config, dtype="torch.bfloat16")
        pool = SimpleNamespace(size=96, page_size=4, get_kv_size_bytes=lambda: (6400, 6400))
        self.token_to_kv_pool_allocator = SimpleNamespace(get_kvcache=lambda: pool)
        self.tp_worker = TpModelWorker(plan)
        self.tp_worker.model_runner = SimpleNamespace()
        self.draft_worker = None
        if plan.algorithm in WORKERS:
            self.draft_worker = WORKERS[plan.algorithm](plan, self.tp_worker)
        self.waiting_queue, self.running, self.aborts = [], [], []
        self.result_queue = deque()
        self._sched_idled = True

    def run_event_loop(self):
        """Until there is nothing to do; what the plan says happens before each batch."""
        while True:
            self.plan.happens(self)
            batch = self._next_batch()
            if batch is not None:
                result = self.run_batch(batch)
                self.result_queue.append((batch, result))
            else:
                self._sched_idled = True
            if batch is None and not self.result_queue:
                self.on_idle()
                if self.plan.over():
                    return
                continue
            keep = 1 if self.plan.overlap and batch is not None else 0
            while len(self.result_queue) > keep:
                self.process_batch_result(*self.result_queue.popleft())

    def _next_batch(self):
        self.running = [req for req in self.running if not (req.finished() or req.is_retracted)]
        # One that was retracted for this batch comes back with the next at the earliest.
        new = [req for req in self.waiting_queue if req.retracted_in != self.plan.turns]
        if new:
            self.waiting_queue = [req for req in self.waiting_queue if req not in new]
            for req in new:
                req.is_retracted = False
            lengths = [len(req.origin_input_ids) + len(req.output_ids) for req in new]
            old, self.running = self.running, [*self.running, *new]
            if self.plan.mixed and old:
                lengths += [1] * len(old)
                return ScheduleBatch([*new, *old], ForwardMode.MIXED, old, lengths)
            return ScheduleBatch(new, ForwardMode.EXTEND, None, lengths)
        if self.running:
            return ScheduleBatch([*self.running], ForwardMode.DECODE)
        return None

    def on_idle(self):
        pass

    def _add_request_to_queue(self, req, is_retracted=False):
        if self.plan.queue_is_full:
            self.send_abort_output(SimpleNamespace(rid=req.rid), req)
            return
        self.waiting_queue.append(req)

    def send_abort_output(self, abort_req, req):
        self.aborts.append(abort_req)

    def run_batch(self, batch, pp_proxy_tensors=None):
        batch.after_idle_gap, self._sched_idled = self._sched_idled, False
        worker = self.draft_worker or self.tp_worker
        return worker.forward_batch_generation(batch)

    def process_batch_result(self, batch, result):
        self.plan.spend("process")
        decoding = batch.reqs if batch.forward_mode.is_decode() else batch.decoding_reqs or []
        if result.accept_lens is not None:
            result.num_correct_drafts_per_req_cpu = [n - 1 for n in result.accept_lens]
        for place, req in enumerate(batch.reqs):
            if req.finished() or req.is_retracted:
                continue
            given = len(req.output_ids)
            context = len(req.origin_input_ids) + given - 1
            req.give(result.tokens[place], self.plan.eos)
            if req in decoding:
                kept = (result.num_correct_drafts_per_req_cpu or [0] * len(batch.reqs))[place]
                emitted = len(req.output_ids_through_stop) - given
                req.truth.append((result.depth, kept, emitted, context))

    # What happens from outside.

    def abort(self, req):
        """A client goes away: one that waits ends at once, one in a batch with it."""
        if req in self.waiting_queue:
            self.waiting_queue.remove(req)
            self.send_abort_output(SimpleNamespace(rid=req.rid), req)
        else:
            req.to_finish = Finish(type="abort", message="Aborted")

    def retract(self, req):
        """No room for its cache: it waits again."""
        req.is_retracted, req.retracted_in = True, self.plan.turns
        self.running.remove(req)
        self._add_request_to_queue(req, is_retracted=True)
