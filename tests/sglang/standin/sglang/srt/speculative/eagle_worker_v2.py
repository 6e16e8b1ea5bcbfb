"""EAGLE: drafts, verifies, brings the drafter up to date."""

from sglang.srt.managers.tp_worker import TpModelWorker


class EagleDraftWorker:
    def __init__(self, plan):
        self.plan = plan
        self.runner = TpModelWorker(plan)  # the draft model's worker is of the target's class

    def draft(self, batch, *, with_topology=False):
        self.runner.forward_batch_generation(batch)
        self.plan.spend("draft")

    def _draft_extend_for_decode(self, batch, batch_result, *, kv_loc_plan=None):
        self.plan.spend("draft_extend")


class EAGLEWorkerV2:
    drafter = EagleDraftWorker

    def __init__(self, plan, target_worker):
        self.plan = plan
        self.target_worker = target_worker
        self._draft_worker = self.drafter(plan)
        self.adaptive_controller = plan.adaptive
        self.topk = plan.topk
        self.speculative_num_steps = plan.steps
        self.speculative_num_draft_tokens = plan.width

    @property
    def draft_worker(self):
        return self._draft_worker

    def forward_batch_generation(
        self, batch, on_publish=None, grammar_barrier=None, pp_proxy_tensors=None
    ):
        if not batch.forward_mode.is_decode():
            return self.target_worker.forward_batch_generation(batch)
        self.speculative_num_steps = self.plan.steps
        self.speculative_num_draft_tokens = self.plan.width
        if self.speculative_num_steps:
            self.draft_worker.draft(batch)
        result = self.verify(batch)
        self.draft_worker._draft_extend_for_decode(batch, result)
        return result

    def verify(self, batch, pp_proxy_tensors=None, grammar_barrier=None):
        self.plan.spend("prepare")
        result = self.target_worker.forward_batch_generation(
            batch=None, forward_batch=batch, is_verify=True
        )
        self.plan.spend("sample")
        return self.plan.accept(batch, result)
