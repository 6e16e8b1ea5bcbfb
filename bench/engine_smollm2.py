"""The engine on real public weights: SmolLM2-135M-Instruct, Apache-2.0, against transformers.

    make smollm2        builds .venv-smollm2 and runs this
    python bench/engine_smollm2.py DIRECTORY [--tokens N] [--repeats N] [--json]

Logits against transformers' (largest difference in float32), greedy texts of both, plain and with
prompt lookup, and the ratios of their times at batch 1 as engine_transformers.py takes them. Exits
1 where logits differ by more than 1e-3, a text differs, or an interval lies below 1.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
import transformers
from engine_transformers import compare, engine_arm, exit_code, generate_arm, show

from specscope.engine.decode.drafters.ngram import NgramDrafter
from specscope.engine.pair import load_checkpoints

KS = (2, 4)
CLOSEST = 1e-3
TURN = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
PROMPTS = {
    "json edit": """Add "active": true to every entry and print the whole list again.
[{"id": 1, "name": "Ada", "role": "admin"}, {"id": 2, "name": "Ben", "role": "user"},
 {"id": 3, "name": "Cleo", "role": "user"}, {"id": 4, "name": "Dan", "role": "guest"}]""",
    "code edit": """Rename the variable total to amount and print the function again.
def mean(values):
    total = 0.0
    for value in values:
        total = total + value
    return total / len(values)""",
    "prose": "Write a short paragraph about the harbour of a small town in the early morning.",
    "question": "Why does a kettle whistle when the water boils? Answer in two sentences.",
}


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("directory", type=Path, nargs="?", default=Path(".venv-smollm2"))
    arguments.add_argument("--tokens", type=int, default=48)
    arguments.add_argument("--repeats", type=int, default=2)
    arguments.add_argument("--json", action="store_true")
    args = arguments.parse_args()
    folder = args.directory / "checkpoint"
    if not folder.exists():
        print(f"skipped: no checkpoint in {folder}; `make smollm2` fetches it")
        return
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    pair = load_checkpoints(folder, None)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    # Both sides decode on to the same length: ends of text are not looked for.
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    arms = {("ours", k): engine_arm(pair.target, NgramDrafter(), k, args.tokens) for k in (0, *KS)}
    arms["transformers", 0] = generate_arm(model, args.tokens)
    for k in KS:
        arms["transformers", k] = generate_arm(
            model, args.tokens, prompt_lookup_num_tokens=k, max_matching_ngram_size=4
        )
    for run in arms.values():
        run([1, 2, 3])
    results, furthest = {}, 0.0
    for label, text in PROMPTS.items():
        ids = pair.encode(TURN.format(text))
        with torch.inference_mode():
            ours, theirs = pair.target.score(torch.tensor([ids])), model(torch.tensor([ids])).logits
        furthest = max(furthest, float((ours - theirs).abs().max()))
        results[label] = compare(arms, [ids], args.repeats, KS)
        if not args.json:
            show(label, results[label])
    if args.json:
        print(json.dumps({"logit_difference": furthest, "classes": results}))
    else:
        print(f"largest difference of logits {furthest:.1e}, at most {CLOSEST:.0e} allowed")
    sys.exit(exit_code(results) or int(furthest > CLOSEST))


if __name__ == "__main__":
    main()
