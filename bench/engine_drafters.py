"""Draft model and draft head against target-only decoding, batch 1, greedy, k = 4, one thread.

    python bench/engine_drafters.py [--prompts N] [--repeats N] [--tokens N] [--json]

All arms decode the same prompts in turn and in turned order. Speed-ups are medians of the prompts'
ratios in this thread's processor time, with 95 % bootstrap intervals; above 1 the first one named
is the faster one. Tokens per second are medians in processor time. Exits 1 if two texts differ.
"""

import argparse
import json
import statistics
import sys

import torch
from engine_transformers import LABELS, engine_arm, ratio, take_turns

from specscope.engine.pair import bundled_prompts, load_bundled

K = 4
DRAFTERS = ("none", "model", "eagle")
RATIOS = (("model", "none"), ("eagle", "none"), ("eagle", "model"))


def compare(arms, prompts, repeats, tokens):
    """Tokens per second by drafter, and the ratios of speeds, for one class."""
    took, equal, texts = take_turns(arms, prompts, repeats)
    cpu = took["cpu"]
    return {
        "equal": equal,
        "texts": texts,
        "tokens_per_s": {arm: tokens / statistics.median(times) for arm, times in cpu.items()},
        "speedup": {f"{one}/{other}": ratio(cpu[other], cpu[one]) for one, other in RATIOS},
    }


def show(label, row):
    """Print one class."""
    speeds = ", ".join(f"{arm} {speed:.0f}" for arm, speed in row["tokens_per_s"].items())
    ratios = ", ".join(
        f"{name} {own['median']:.2f} [{own['low']:.2f}, {own['high']:.2f}]"
        for name, own in row["speedup"].items()
    )
    same = f"same text in {row['equal']} of {row['texts']}"
    print(f"{label:8} tokens/s: {speeds}; {ratios}; {same}", flush=True)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--prompts", type=int, default=4)
    arguments.add_argument("--repeats", type=int, default=2)
    arguments.add_argument("--tokens", type=int, default=96)
    arguments.add_argument("--json", action="store_true")
    args = arguments.parse_args()
    torch.set_num_threads(1)
    pair = load_bundled()
    arms = {
        name: engine_arm(pair.target, pair.drafter(name), K * (name != "none"), args.tokens)
        for name in DRAFTERS
    }
    for run in arms.values():
        run([1, 2, 3])
    results = {}
    for label in LABELS:
        prompts = [pair.encode(p.text) for p in bundled_prompts() if p.label == label]
        results[label] = compare(arms, prompts[: args.prompts], args.repeats, args.tokens)
        if not args.json:
            show(label, results[label])
    if args.json:
        print(json.dumps(results))
    sys.exit(any(row["equal"] < row["texts"] for row in results.values()))


if __name__ == "__main__":
    main()
