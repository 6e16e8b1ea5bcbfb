"""The engine against transformers' generate, batch 1, greedy, the bundled pair, one thread.

    python bench/engine_transformers.py [--prompts N] [--repeats N] [--tokens N] [--json]

Both sides run the same weights and prompts, in turn and in turned order; the ratio of their times
is taken prompt by prompt, in this thread's processor time, which a busy machine stretches least,
and in wall time. Both may choose their best k of 1, 2 and 4. Medians with bootstrap intervals.
Exits 1 where an interval of processor time lies below 1, or two texts differ.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from importlib.resources import files
from pathlib import Path
from random import Random

import torch
import transformers

from specscope.engine.api import SamplingParams, fixed_gate
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.engine import Engine
from specscope.engine.pair import bundled_prompts, load_bundled

KS = (1, 2, 4)
LABELS = ("prose", "python", "sql", "json")
CLOCKS = {"cpu": time.thread_time, "wall": time.perf_counter}
RESAMPLES = 2000


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


def engine_arm(target, drafter, k, tokens, capacity=256):
    """Decode one prompt with the engine; what it said."""
    last, count = Last(), 0
    engine = Engine(
        target, drafter, k_max=max(k, 1), slots=1, capacity=capacity, gate=fixed_gate(k),
        observers=[last],
    )  # fmt: skip

    def run(ids):
        nonlocal count
        count += 1
        engine.submit(str(count), ids, SamplingParams(max_new_tokens=tokens))
        while engine.step():
            pass
        return last.ids

    return run


def generate_arm(model, tokens, **more):
    """The same with transformers; `more` may be a function of nothing, called before each run."""

    def run(ids):
        with torch.inference_mode():
            out = model.generate(
                torch.tensor([ids]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                max_new_tokens=tokens,
                do_sample=False,
                **more,
            )
        return out[0, len(ids) :].tolist()

    return run


def take_turns(arms, prompts, repeats):
    """Times of each arm by clock, prompt by prompt, and in how many of all texts it agreed."""
    took = {clock: {arm: [] for arm in arms} for clock in CLOCKS}
    equal = texts = 0
    for repeat in range(repeats):
        for ids in prompts:
            said = {}
            for arm in arms if repeat % 2 == 0 else reversed(arms):
                began = {name: clock() for name, clock in CLOCKS.items()}
                said[arm] = arms[arm](ids)
                for name, clock in CLOCKS.items():
                    took[name][arm].append(clock() - began[name])
            first = next(iter(arms))
            equal += sum(text == said[first] for text in said.values())
            texts += len(said)
    return took, equal, texts


def ratio(theirs, ours):
    """Median of the pairs' ratios with its 95 % bootstrap interval: above 1, ours is quicker."""
    ratios = [t / o for t, o in zip(theirs, ours, strict=True)]
    rng = Random(0)
    medians = sorted(
        statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES)
    )
    low, high = medians[RESAMPLES // 40], medians[-RESAMPLES // 40]
    return {"median": statistics.median(ratios), "low": low, "high": high}


def compare(arms, prompts, repeats, ks):
    """Target-only and speculative ratios for one class; arms are named (side, k)."""
    took, equal, texts = take_turns(arms, prompts, repeats)
    best = {
        side: min(ks, key=lambda k: statistics.median(took["cpu"][side, k]))
        for side in ("ours", "transformers")
    }
    row = {"best_k": best, "equal": equal, "texts": texts}
    for clock, of in took.items():
        row[f"plain_{clock}"] = ratio(of["transformers", 0], of["ours", 0])
        row[f"speculative_{clock}"] = ratio(
            of["transformers", best["transformers"]], of["ours", best["ours"]]
        )
    row["cpu_seconds"] = {
        f"{side} k={k}": statistics.median(times) for (side, k), times in took["cpu"].items()
    }
    return row


def show(label, row):
    """Print one class."""
    shown = {
        name: f"{row[name]['median']:.2f} [{row[name]['low']:.2f}, {row[name]['high']:.2f}]"
        for name in ("plain_cpu", "plain_wall", "speculative_cpu", "speculative_wall")
    }
    print(f"{label:10} target only {shown['plain_cpu']} (wall {shown['plain_wall']})")
    print(f"{'':10} speculative {shown['speculative_cpu']} (wall {shown['speculative_wall']})")
    print(
        f"{'':10} same text in {row['equal']} of {row['texts']}; best k {row['best_k']}", flush=True
    )


def exit_code(results):
    """1 where texts differ, or an interval of processor time lies below 1."""
    sound = all(
        row["equal"] == row["texts"]
        and min(row["plain_cpu"]["high"], row["speculative_cpu"]["high"]) >= 1
        for row in results.values()
    )
    return 0 if sound else 1


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
    arguments.add_argument("--prompts", type=int, default=4)
    arguments.add_argument("--repeats", type=int, default=4)
    arguments.add_argument("--tokens", type=int, default=96)
    arguments.add_argument("--json", action="store_true")
    args = arguments.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    pair = load_bundled()
    with tempfile.TemporaryDirectory() as directory:
        target, draft = theirs(directory, "target"), theirs(directory, "draft")

        def assisted(k):
            run = generate_arm(target, args.tokens, assistant_model=draft)

            def tuned(ids):
                draft.generation_config.num_assistant_tokens = k
                return run(ids)

            return tuned

        arms = {
            ("ours", k): engine_arm(pair.target, ModelDrafter(pair.draft), k, args.tokens)
            for k in (0, *KS)
        }
        arms["transformers", 0] = generate_arm(target, args.tokens)
        arms |= {("transformers", k): assisted(k) for k in KS}
        for run in arms.values():
            run([1, 2, 3])
        results = {}
        for label in LABELS:
            prompts = [pair.encode(p.text) for p in bundled_prompts() if p.label == label]
            results[label] = compare(arms, prompts[: args.prompts], args.repeats, KS)
            if not args.json:
                show(label, results[label])
    if args.json:
        print(json.dumps(results))
    sys.exit(exit_code(results))


if __name__ == "__main__":
    main()
