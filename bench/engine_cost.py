"""What a round of the reference engine costs as the gate closes and the batch grows.

    python bench/engine_cost.py [ROUNDS]

Two engines run the bundled models turn by turn, a round each, so that whatever else the machine
does falls on both; prints the median of the rounds' ratios, in processor time of this thread.
Budgets: half the rows at k = 0 cost at most 0.75 of all rows at k = 4, and at most 0.8 if each
round draws another half, so that no order of the rows helps; a closed gate costs at most 1.1 of an
engine without a draft; a row of a batch of 8 at most 0.6 of a row alone, and of 32 at most 0.9 of a
row of 8. Exits 1 where one is missed.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from statistics import median

import torch

from specscope.engine.api import Gate, SamplingParams, SequenceState, fixed_gate
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.drafters.drafter import Drafter, NoDrafter
from specscope.engine.decode.engine import Engine
from specscope.engine.decode.scheduler import SETTLED_ROUNDS
from specscope.engine.pair import Pair, bundled_prompts, load_bundled

BATCH, K = 32, 4


def busy(pair: Pair, gate: Gate, batch: int = BATCH, drafter: Drafter | None = None) -> Engine:
    """An engine with every row in use, its prompts read and its rows where their k puts them."""
    assert pair.draft is not None
    drafter = drafter or ModelDrafter(pair.draft)
    engine = Engine(pair.target, drafter, k_max=K, slots=batch, capacity=400, gate=gate)
    for place, prompt in enumerate(bundled_prompts()[:batch]):
        params = SamplingParams(temperature=1.0, seed=place, max_new_tokens=300, eos=())
        engine.submit(str(place), pair.encode(prompt.text), params)
    for _ in range(2 + SETTLED_ROUNDS):
        engine.step()
    return engine


def ratio(one: Engine, other: Engine, rounds: int) -> float:
    """Median over rounds of the time of `one` in terms of `other`'s."""
    ratios = []
    for turn in range(rounds):
        spent = {}
        for engine in (one, other) if turn % 2 else (other, one):
            began = time.thread_time()
            engine.step()
            spent[engine] = time.thread_time() - began
        ratios.append(spent[one] / spent[other])
    return median(ratios)


def half(k: int) -> Gate:
    """k for every other request, 0 for the rest."""
    return lambda sequences, _: [k * (int(one.request.id) % 2) for one in sequences]


def any_half(k: int) -> Gate:
    """k for one half of the rows, drawn anew each round, 0 for the rest."""
    chance = random.Random(1)

    def gate(sequences: Sequence[SequenceState], _: int) -> list[int]:
        ks = [k * (place % 2) for place in range(len(sequences))]
        chance.shuffle(ks)
        return ks

    return gate


def main(rounds: int) -> int:
    """Print a line a budget; 1 where one is missed."""
    torch.set_num_threads(1)
    pair = load_bundled()
    closed, some = fixed_gate(0), fixed_gate(2)
    one, few, many = (busy(pair, some, batch) for batch in (1, 8, BATCH))
    undrafted = busy(pair, closed, drafter=NoDrafter())
    lines = [
        ("half the rows at k = 0", busy(pair, half(K)), busy(pair, fixed_gate(K)), 1, 0.75),
        ("another half each round", busy(pair, any_half(K)), busy(pair, fixed_gate(K)), 1, 0.8),
        ("closed gate, to no draft", busy(pair, closed), undrafted, 1, 1.1),
        ("a row of 8, to one alone", few, one, 8, 0.6),
        ("a row of 32, to one of 8", many, few, 4, 0.9),
    ]
    missed = 0
    for name, engine, other, rows, budget in lines:
        found = ratio(engine, other, rounds) / rows
        missed += found > budget
        sys.stdout.write(f"{name:26} {found:6.3f}  (budget {budget})\n")
    return int(missed > 0)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("rounds", type=int, nargs="?", default=20, help="of each engine")
    sys.exit(main(arguments.parse_args().rounds))
