"""Runs real vLLM offline and writes what it says of itself: `vllm_run.py JOB.json OUT.json`.

Runs inside vLLM's environment. A job: model, speculative_config or null, prompts (token ids),
max_tokens, temperature, waves (how often the prompts are sent), regex (every second request has
to match it), lora (an adapter's directory, for every second request), and engine (more LLM
arguments).
"""

import json
import sys
from pathlib import Path


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    from vllm import LLM, SamplingParams

    spec = job.get("speculative_config")
    llm = LLM(
        model=job["model"],
        speculative_config=spec,
        enforce_eager=True,
        max_model_len=512,
        max_num_seqs=job.get("max_num_seqs", 8),
        disable_log_stats=False,
        seed=0,
        **({"per_request_spec_decode_metrics": "detailed"} if spec else {}),
        **job.get("engine", {}),
    )
    outputs = []
    for _ in range(job.get("waves", 1)):
        prompts = [{"prompt_token_ids": ids} for ids in job["prompts"]]
        numbers = range(len(prompts))
        outputs += llm.generate(
            prompts,
            [_sampling(SamplingParams, job, number) for number in numbers],
            use_tqdm=False,
            lora_request=[_lora(job, number) for number in numbers] if job.get("lora") else None,
        )
    metrics = {}
    for metric in llm.get_metrics():
        values = getattr(metric, "values", None)
        metrics[metric.name] = values if values is not None else getattr(metric, "value", None)
        if metrics[metric.name] is None:
            metrics[metric.name] = {"count": metric.count, "sum": metric.sum}
    result = {
        "requests": [
            {
                "id": output.request_id,
                "prompt": len(output.prompt_token_ids),
                "tokens": list(output.outputs[0].token_ids),
                "reason": output.outputs[0].finish_reason,
                "spec": _spec(output.outputs[0]),
            }
            for output in outputs
        ],
        "metrics": metrics,
    }
    Path(sys.argv[2]).write_text(json.dumps(result))
    # At its exit vLLM gives its core 5 s to end the ring, which a busy machine may need.
    llm.llm_engine.engine_core.shutdown(timeout=300)


def _sampling(kind: type, job: dict, number: int) -> object:
    more = {}
    if job.get("regex") and number % 2:
        from vllm.sampling_params import StructuredOutputsParams

        more["structured_outputs"] = StructuredOutputsParams(regex=job["regex"])
    return kind(
        temperature=job.get("temperature", 0.0),
        max_tokens=job["max_tokens"],
        ignore_eos=job.get("ignore_eos", False),
        seed=1,
        **more,
    )


def _lora(job: dict, number: int) -> object:
    from vllm.lora.request import LoRARequest

    return LoRARequest("acme-tiny", 1, job["lora"]) if number % 2 else None


def _spec(completion) -> dict | None:
    spec = getattr(completion, "spec_decode_metrics", None)
    if spec is None:
        return None
    return {"drafted": list(spec.per_step_drafted), "accepted": list(spec.per_step_accepted)}


if __name__ == "__main__":
    main()
