"""What the hook costs real vLLM: the same wave of requests with the scheduler's probe on and off.

    export VLLM_TARGET_DEVICE=cpu SPECSCOPE_RINGS=/dev/shm/rings
    PYTHON_OF_VLLM bench/vllm_overhead.py MODEL

Runs inside vLLM's environment, see tests/vllm/environment.sh; MODEL is a directory. Waves on and
off alternate in random order within pairs; printed is the median slowdown over pairs with a
95 % interval of the median. The worker's timers (some clock readings a step) stay on in both.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import time

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the scheduler in this process

PAIRS = 40
TOKENS = 32


def wave(llm, batch: int) -> float:  # type: ignore[no-untyped-def]
    """Seconds that a wave of so many requests takes."""
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True)
    prompts = [{"prompt_token_ids": [5 + n % 200, 6, 7, 5 + n % 200, 6, 7]} for n in range(batch)]
    began = time.perf_counter()
    llm.generate(prompts, sampling, use_tqdm=False)
    return time.perf_counter() - began


def main() -> None:
    """Measure at batch 1 and 64, and print."""
    from vllm import LLM

    ngram = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3}
    llm = LLM(
        model=sys.argv[1],
        speculative_config=ngram,
        enforce_eager=True,
        max_model_len=256,
        max_num_seqs=64,
        enable_prefix_caching=False,
    )
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    probe = scheduler._specscope
    assert probe, "the hook is not attached: is SPECSCOPE_RINGS set?"
    draw = random.Random(0)
    for batch in (1, 64):
        for on in (False, True):
            scheduler._specscope = probe if on else False
            wave(llm, batch)
        ratios = []
        for _ in range(PAIRS):
            took = {}
            for on in draw.sample([False, True], 2):
                scheduler._specscope = probe if on else False
                took[on] = wave(llm, batch)
            ratios.append(took[True] / took[False])
        ratios.sort()
        # Order statistics that hold the median in 95 of 100 samples of 40.
        low, high = ratios[13], ratios[26]
        middle = statistics.median(ratios)
        print(
            f"batch {batch:2d}: slowdown {100 * (middle - 1):+.2f} %"
            f" (95 % from {100 * (low - 1):+.2f} to {100 * (high - 1):+.2f}, {PAIRS} pairs)"
        )
    assert probe, "the hook detached itself"


if __name__ == "__main__":
    main()
