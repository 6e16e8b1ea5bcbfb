"""The engine against a bare speculative loop over the same weights, batch 1, greedy, one thread.

    python bench/engine_bare.py [--prompts N] [--repeats N] [--tokens N] [--json]

The bare loop is the least that speculative decoding needs at batch 1: a static KV cache written
by slices, positions known to the host, no scheduler, no report, no sampling. It uses the engine's
joined projections, so that both sides run the same matrix products. Both decode the same prompts in
turn; each ratio is the engine's processor time over the bare loop's for one prompt.
Budget: the median ratio is at most 1.15 for k = 0 and k = 4. Exits 1 if a ratio is above its
budget or if two texts differ.
"""

import argparse
import json
import sys

import torch
import torch.nn.functional as F  # noqa: N812
from engine_transformers import engine_arm, ratio, take_turns

from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.pair import bundled_prompts, load_bundled

KS = (0, 4)
BUDGET = 1.15
LABELS = ("prose", "sql")


class BareModel:
    """One decoder with a static cache for one sequence."""

    def __init__(self, model, capacity):
        self.model, config = model, model.config
        shape = (config.layers, config.kv_heads, capacity, config.head_dim)
        self.keys, self.values = torch.zeros(shape), torch.zeros(shape)
        self.group = config.heads // config.kv_heads
        self.causal = torch.full((capacity, capacity), -torch.inf).triu(1)

    def hidden(self, ids, start):
        """Hidden states [T, hidden] of `ids` at positions start .. start + T - 1."""
        c, t = self.model.config, len(ids)
        x = self.model.embed_tokens(torch.tensor(ids))
        cos, sin = self.model.rotation[start : start + t].unbind(1)
        mask = self.causal[start : start + t, : start + t]
        mask = mask[:, None].expand(-1, self.group, -1).reshape(t * self.group, -1)
        for number, layer in enumerate(self.model.fused):
            joint = layer.attention.qkv(layer.norm(x)).view(t, -1, c.head_dim)
            turned, v = joint.split((c.heads + c.kv_heads, c.kv_heads), 1)
            turned = torch.addcmul(turned * cos, turned.roll(c.head_dim // 2, -1), sin)
            q, k = turned.split((c.heads, c.kv_heads), 1)
            self.keys[number, :, start : start + t] = k.transpose(0, 1)
            self.values[number, :, start : start + t] = v.transpose(0, 1)
            keys = self.keys[number, :, : start + t]
            values = self.values[number, :, : start + t]
            q = q.view(t, c.kv_heads, self.group, -1).transpose(0, 1).flatten(1, 2)
            scores = torch.baddbmm(mask, q, keys.transpose(1, 2), alpha=c.head_dim**-0.5)
            out = torch.bmm(scores.softmax(-1), values)
            layer.out.add(x, out.view(c.kv_heads, t, -1).transpose(0, 1).reshape(t, -1))
            gate, up = layer.gate_up(layer.ff_norm(x)).chunk(2, -1)
            layer.down.add(x, F.silu(gate) * up)
        return self.model.final_norm(x)

    def greedy(self, ids, start, last=None):
        """The most probable token after each of the last `last` of `ids`."""
        hidden = self.hidden(ids, start)
        return self.model.head(hidden if last is None else hidden[-last:]).argmax(-1).tolist()


def bare_arm(pair, k, tokens, capacity=256):
    """Decode one prompt with the bare loop; returns the new tokens."""
    target, draft = BareModel(pair.target, capacity), BareModel(pair.draft, capacity)

    @torch.inference_mode()
    def run(ids):
        text, end = list(ids), len(ids) + tokens
        target.hidden(text[:-1], 0)
        if k:
            draft.hidden(text[:-2], 0)
        while len(text) < end:
            pending, drafted = len(text) - 1, []
            for step in range(k):
                # The first step feeds two tokens: the last draft may have been accepted unread.
                fed = drafted[-1:] if step else text[-2:]
                drafted += draft.greedy(fed, pending + step - len(fed) + 1, 1)
            chosen = target.greedy(text[pending:] + drafted, pending)
            accepted = 0
            while accepted < k and drafted[accepted] == chosen[accepted]:
                accepted += 1
            text += chosen[: accepted + 1]
        return text[len(ids) : end]

    return run


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--prompts", type=int, default=4)
    arguments.add_argument("--repeats", type=int, default=4)
    arguments.add_argument("--tokens", type=int, default=64)
    arguments.add_argument("--json", action="store_true")
    args = arguments.parse_args()
    torch.set_num_threads(1)
    pair = load_bundled()
    arms = {}
    for k in KS:
        arms["engine", k] = engine_arm(pair.target, ModelDrafter(pair.draft), k, args.tokens)
        arms["bare", k] = bare_arm(pair, k, args.tokens)
    for run in arms.values():
        run([1, 2, 3])
    results = {}
    for label in LABELS:
        prompts = [pair.encode(p.text) for p in bundled_prompts() if p.label == label]
        took, equal, texts = take_turns(arms, prompts[: args.prompts], args.repeats)
        cpu = took["cpu"]
        results[label] = {f"k={k}": ratio(cpu["engine", k], cpu["bare", k]) for k in KS}
        results[label] |= {"equal": equal, "texts": texts}
    passed = all(
        row["equal"] == row["texts"] and all(row[f"k={k}"]["median"] <= BUDGET for k in KS)
        for row in results.values()
    )
    if args.json:
        print(json.dumps(results))
    else:
        for label, row in results.items():
            shown = ", ".join(
                f"k = {k}: {row[f'k={k}']['median']:.3f} "
                f"[{row[f'k={k}']['low']:.3f}, {row[f'k={k}']['high']:.3f}]"
                for k in KS
            )
            print(f"{label:8} engine / bare {shown} (budget {BUDGET})")
            print(f"{'':8} same text in {row['equal']} of {row['texts']}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
