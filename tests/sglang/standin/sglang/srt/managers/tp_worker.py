"""The target's worker; `plan` is the script that stands for the models."""

from sglang.srt.requests import GenerationBatchResult


class TpModelWorker:
    def __init__(self, plan):
        self.plan = plan

    def forward_batch_generation(
        self,
        batch,
        forward_batch=None,
        pp_proxy_tensors=None,
        is_verify=False,
        skip_attn_backend_init=None,
        *,
        capture_hidden_mode=None,
        return_kv_loc_plan=False,
    ):
        work = batch or forward_batch
        self.plan.spend("forward" if work.forward_mode.is_decode() else "prompt")
        return GenerationBatchResult(tokens=[[self.plan.token(req)] for req in work.reqs])
