"""The engine against transformers' generate, batch 1, greedy, the bundled pair, one thread.

Both sides run the same weights and prompts in turn; the ratio of their times is taken prompt by
prompt. Both may choose their best k of 1, 2 and 4. Run: python bench/engine_transformers.py
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from importlib.resources import files
from pathlib import Path

import torch
import transformers

from specscope.engine.api import SamplingParams, fixed_gate
from specscope.engine.bundled import bundled_prompts, load_bundled
from specscope.engine.draft import ModelDrafter
from specscope.engine.engine import Engine

KS = (1, 2, 4)
LABELS = ("prose", "python", "sql", "json")


class Last:
    """Keeps the last text."""

    def round_begins(self):
        pass

    def round_ended(self, report):
        pass

    def admitted(self, request):
        pass

    def ended(self, end):
        self.ids = end.token_ids


def theirs(directory, name):
    """One of the bundled models as transformers loads it."""
    folder = Path(directory) / name
    folder.mkdir()
    source = Path(str(files("specscope.engine"))) / "bundled"
    shutil.copy(source / f"{name}.json", folder / "config.json")
    shutil.copy(source / f"{name}.safetensors", folder / "model.safetensors")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    model.generation_config.num_assistant_tokens_schedule = "constant"
    model.generation_config.assistant_confidence_threshold = 0.0
    return model


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--prompts", type=int, default=3)
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--tokens", type=int, default=96)
    arguments.add_argument("--json", action="store_true")
    args = arguments.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    pair, last = load_bundled(), Last()

    def ours(k):
        engine = Engine(
            pair.target, ModelDrafter(pair.draft), k_max=4, slots=1, capacity=200,
            gate=fixed_gate(k), observers=[last],
        )  # fmt: skip
        count = 0

        def run(ids):
            nonlocal count
            count += 1
            engine.submit(str(count), ids, SamplingParams(max_new_tokens=args.tokens))
            while engine.step():
                pass
            return last.ids

        return run

    with tempfile.TemporaryDirectory() as directory:
        target, draft = theirs(directory, "target"), theirs(directory, "draft")

        def generate(k):
            draft.generation_config.num_assistant_tokens = max(k, 1)

            def run(ids):
                draft.generation_config.num_assistant_tokens = max(k, 1)
                more = {"assistant_model": draft} if k else {}
                with torch.inference_mode():
                    out = target.generate(
                        torch.tensor([ids]),
                        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                        max_new_tokens=args.tokens,
                        do_sample=False,
                        **more,
                    )
                return out[0, len(ids) :].tolist()

            return run

        arms = {("ours", k): ours(k) for k in (0, *KS)}
        arms |= {("transformers", k): generate(k) for k in (0, *KS)}
        results = {label: measure(pair, arms, label, args) for label in LABELS}
    if args.json:
        print(json.dumps(results))
        return
    print("ours against transformers, best of each side; median over prompts and repeats")
    for label, row in results.items():
        print(
            f"{label:8} target only {row['plain']:.2f}x   speculative {row['speculative']:.2f}x   "
            f"same text in {row['equal']} of {row['texts']}"
        )


def measure(pair, arms, label, args):
    """Ratios of times, transformers' over ours, for one class."""
    prompts = [pair.encode(p.text) for p in bundled_prompts() if p.label == label]
    prompts = prompts[: args.prompts]
    took = {arm: [] for arm in arms}
    equal = texts = 0
    for run in arms.values():
        run(prompts[0][:8])
    for repeat in range(args.repeats):
        for ids in prompts:
            said = {}
            order = list(arms) if repeat % 2 == 0 else list(reversed(arms))
            for arm in order:
                began = time.thread_time()
                said[arm] = arms[arm](ids)
                took[arm].append(time.thread_time() - began)
            equal += sum(text == said["ours", 0] for text in said.values())
            texts += len(said)
    plain = [t / o for t, o in zip(took["transformers", 0], took["ours", 0], strict=True)]
    best = {
        side: min(KS, key=lambda k: statistics.median(took[side, k]))
        for side in ("ours", "transformers")
    }
    pairs = zip(took["transformers", best["transformers"]], took["ours", best["ours"]], strict=True)
    return {
        "plain": statistics.median(plain),
        "speculative": statistics.median(t / o for t, o in pairs),
        "best_k": best,
        "seconds": {f"{side} k={k}": statistics.median(v) for (side, k), v in took.items()},
        "equal": equal,
        "texts": texts,
    }


if __name__ == "__main__":
    main()
