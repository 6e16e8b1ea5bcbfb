"""What only a GPU can tell about the engine, in one run of a few minutes; prints JSON.

python bench/engine_gpu.py            on the first GPU
python bench/engine_gpu.py --small    on the CPU, to see that the script itself works

Has not run on a GPU yet. Exit code 1 if a check fails.
"""

import argparse
import json
import sys
import time

import torch

from specscope.engine.api import SamplingParams, fixed_gate
from specscope.engine.bandwidth import copy_bandwidth
from specscope.engine.bundled import bundled_prompts, load_bundled
from specscope.engine.card import card_of
from specscope.engine.config import ModelConfig
from specscope.engine.draft import ModelDrafter
from specscope.engine.engine import Engine
from specscope.engine.model import Decoder

MARGIN = {torch.float32: 1e-3, torch.bfloat16: 0.25}
BILLION = ModelConfig(32_000, 2048, 22, 32, 4, 64, 5632, 2048)
LITTLE = ModelConfig(512, 64, 2, 4, 2, 16, 128, 2048)


class Record:
    def __init__(self):
        self.rounds, self.texts = [], {}

    def round_begins(self):
        pass

    def round_ended(self, report):
        self.rounds.append(report)

    def admitted(self, request):
        pass

    def ended(self, end):
        self.texts[int(end.request.id)] = end.token_ids


def run(target, draft, prompts, k, device, tokens, watch_syncs=False):
    record = Record()
    engine = Engine(
        target, ModelDrafter(draft), k_max=8, slots=len(prompts), capacity=tokens + 80,
        gate=fixed_gate(k), observers=[record], device=device,
    )  # fmt: skip
    for index, prompt in enumerate(prompts):
        engine.submit(str(index), prompt, SamplingParams(max_new_tokens=tokens))
    engine.step()
    if watch_syncs:
        torch.cuda.set_sync_debug_mode("error")
        running = engine.seats.running
        engine._launch(running, engine._run(running), time.time_ns(), [])
        torch.cuda.set_sync_debug_mode("default")
    while engine.step():
        pass
    return record


def greatest_shortfall(target, prompts, texts):
    """How far an emitted token's logit fell behind the largest, in one pass over the text."""
    worst = 0.0
    for index, prompt in enumerate(prompts):
        row = torch.tensor([prompt + texts[index]], device=target.embed_tokens.weight.device)
        logits = target.score(row)[0, len(prompt) - 1 : -1].float()
        said = logits.gather(1, row[0, len(prompt) :, None])
        worst = max(worst, float((logits.amax(1, keepdim=True) - said).max()))
    return worst


def equality(device, dtype):
    """Speculative greedy text against the target's own logits, by the margin rule."""
    pair = load_bundled(dtype, device)
    prompts = [pair.encode(prompt.text) for prompt in bundled_prompts()[::16]]
    record = run(
        pair.target, pair.draft, prompts, 4, device, 64, watch_syncs=device.startswith("cuda")
    )
    rounds = record.rounds[4:]
    return {
        "shortfall": greatest_shortfall(pair.target, prompts, record.texts),
        "allowed": MARGIN[dtype],
        "timing": rounds[0].timing_source,
        "idle_share": sum(r.idle_us for r in rounds) / sum(r.wall_us for r in rounds),
    }


def bandwidth(device, config, dtype):
    """Target-only decode at batch 1 on a random model, against a plain copy."""
    with torch.device(device):
        model = Decoder(config).to(dtype).ready()
    record = run(model, model, [[1, 2, 3]], 0, device, 128)
    card = card_of(model)
    read = card["parameters"] * card["bytes_per_weight"]
    walls = sorted(report.wall_us for report in record.rounds[8:])
    achieved, copy = read / walls[len(walls) // 2] / 1e3, copy_bandwidth(device)
    return {"achieved_gb_s": achieved, "copy_gb_s": copy, "share": achieved / copy}


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--small", action="store_true")
    small = arguments.parse_args().small
    device = "cpu" if small else "cuda"
    result = {
        "device": "cpu" if small else torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "float32": equality(device, torch.float32),
        "bfloat16": equality(device, torch.bfloat16),
        "decode": bandwidth(device, LITTLE if small else BILLION, torch.bfloat16),
    }
    print(json.dumps(result, indent=2))
    sound = all(result[d]["shortfall"] <= result[d]["allowed"] for d in ("float32", "bfloat16"))
    sys.exit(0 if sound and (small or result["decode"]["share"] >= 0.6) else 1)


if __name__ == "__main__":
    main()
