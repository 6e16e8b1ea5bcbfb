"""Thousands of requests, random arrivals, lengths, modes, cancels, with and without room for all in
the cache: all answered, nothing kept."""

import gc
import random
import resource

import pytest
from engine.tiny_models import random_gate

import specscope.engine.decode.scheduler as budgets
from specscope.engine.api import SamplingParams
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.drafters.ngram import NgramDrafter
from specscope.engine.decode.engine import Engine

REQUESTS = {None: 3000, 400: 600}  # by cache budget


class Ends:
    """Counts endings and tokens."""

    def __init__(self):
        self.reasons, self.emitted, self.told = {}, 0, 0
        self.preempt, self.preemptions, self.largest = 0, 0, 0

    def round_begins(self): ...

    def round_ended(self, report):
        self.emitted += sum(report.emitted)
        self.preempt += report.preempted
        self.largest = max(self.largest, sum(report.contexts) + 5 * len(report.contexts))

    def admitted(self, request): ...

    def ended(self, end):
        assert end.request.id not in self.reasons
        self.reasons[end.request.id] = end.reason
        self.told += end.output_tokens
        self.preemptions += end.preemptions


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "cache_tokens"), [("model", None), ("ngram", None), ("model", 400), ("ngram", 400)]
)
def test_a_long_random_life_answers_everybody_and_keeps_nothing(
    target, draft, kind, cache_tokens, monkeypatch
):
    # Texts are short: with room kept for the next rounds hardly anybody would have to go.
    monkeypatch.setattr(budgets, "HEADROOM_ROUNDS", 0)
    rng, ends, requests = random.Random(12), Ends(), REQUESTS[cache_tokens]
    drafter = ModelDrafter(draft) if kind == "model" else NgramDrafter(3, 1)
    engine = Engine(
        target, drafter, k_max=4, slots=12, capacity=90, gate=random_gate(4), observers=[ends],
        detokenize=lambda ids: "".join(chr(97 + t % 26) for t in ids),
        cache_tokens=cache_tokens, prefill_tokens=2048 if cache_tokens is None else 24,
    )  # fmt: skip
    submitted, peak_after_a_quarter = 0, 0

    while submitted < requests or not engine.idle:
        for _ in range(rng.choice((0, 0, 0, 1, 2, 6))):
            if submitted < requests:
                submit(engine, submitted, rng)
                submitted += 1
        if rng.random() < 0.1:
            engine.abort(str(rng.randrange(max(1, submitted - 40), submitted + 2)))
        engine.step()
        if submitted >= requests // 4 and not peak_after_a_quarter:
            peak_after_a_quarter = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    gc.collect()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_after_a_quarter
    assert len(ends.reasons) == requests
    assert set(ends.reasons.values()) == {"eos", "length", "abort", "stop"}
    assert ends.emitted == ends.told
    assert ends.preempt == ends.preemptions
    assert (ends.preemptions > requests // 50) == (cache_tokens is not None)
    assert cache_tokens is None or ends.largest <= cache_tokens
    assert not engine.rows
    assert not engine.aborts
    assert engine.idle
    assert not engine.known
    assert grown < 60_000  # KiB


def submit(engine, index, rng):
    params = SamplingParams(
        temperature=rng.choice((0.0, 0.7, 1.3)),
        top_p=rng.choice((1.0, 0.9)),
        mode=rng.choice(("greedy", "coupled", "rejection")),
        seed=index,
        max_new_tokens=rng.randint(1, 40),
        eos=(rng.randrange(61),),
        stop=rng.choice(((), ("ab",))),
    )
    prompt = [rng.randrange(61) for _ in range(rng.randint(1, 60))]
    engine.submit(str(index), prompt, params)
