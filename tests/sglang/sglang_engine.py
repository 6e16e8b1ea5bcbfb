"""SGLang's own engine on a CPU: sglang_engine.py JOB.json prints one JSON line.

Runs in an environment with torch, with SGLang and its dependencies on the path. Scheduler, worker
and model run in a process that SGLang starts, as in a server.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    import sglang

    job = json.loads(Path(sys.argv[1]).read_text())
    engine = sglang.Engine(
        device="cpu",
        attention_backend="torch_native",
        sampling_backend="pytorch",
        grammar_backend="none",
        dtype="float32",
        mem_fraction_static=0.2,
        max_total_tokens=4096,
        context_length=512,
        max_running_requests=4,
        skip_server_warmup=True,
        **job["engine"],
    )
    answers = engine.generate(input_ids=job["prompts"], sampling_params=job["sampling"])
    outputs = [
        [answer["output_ids"], answer["meta_info"]["finish_reason"]["type"]] for answer in answers
    ]
    sys.stdout.write(f"RESULT{json.dumps(outputs)}\n")
    sys.stdout.flush()
    engine.shutdown()


if __name__ == "__main__":
    main()
