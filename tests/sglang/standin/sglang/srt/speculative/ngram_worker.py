"""Lookup in what was said before, on the host."""


class NGRAMWorker:
    draft_worker = None

    def __init__(self, plan, target_worker):
        self.plan = plan
        self.target_worker = target_worker
        self.adaptive_controller = None
        self.topk = plan.topk
        self.speculative_num_steps = plan.steps
        self.speculative_num_draft_tokens = plan.width

    def _prepare_for_speculative_decoding(self, batch):
        if batch.forward_mode.is_decode():
            self.plan.spend("draft")

    def forward_batch_generation(self, batch, on_publish=None, pp_proxy_tensors=None):
        self._prepare_for_speculative_decoding(batch)
        result = self.target_worker.forward_batch_generation(batch, is_verify=True)
        if not batch.forward_mode.is_decode():
            return result
        self.plan.spend("sample")
        return self.plan.accept(batch, result)
