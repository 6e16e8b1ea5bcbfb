"""A full cache puts the youngest back: nothing is lost, nothing hangs, no text changes."""

import random

import pytest
from engine.tiny_models import Record, near, prompts, random_gate, run, tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st

import specscope.engine.decode.scheduler as budgets
from specscope.engine.api import SamplingParams, fixed_gate
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.drafters.ngram import NgramDrafter
from specscope.engine.decode.engine import Engine
from specscope.engine.errors import BadRequest, BadSetting

LENGTHS = (20, 3, 12, 30, 1, 25, 8, 16, 40, 5)
K_MAX, CAPACITY = 4, 100
ALONE = CAPACITY + K_MAX + 1
TIGHT = 140


@pytest.fixture(autouse=True)
def _no_room_kept(monkeypatch):
    """Sequences are let in as soon as they fit, so that many must go again."""
    monkeypatch.setattr(budgets, "HEADROOM_ROUNDS", 0)


def params(index, mode=None):
    modes = ("greedy", "coupled", "rejection")
    return SamplingParams(
        temperature=1.0, mode=mode or modes[index % 3], seed=index, max_new_tokens=30 + index
    )


def tight_run(target, drafter, cache_tokens=TIGHT, mode=None, **more):
    """All of LENGTHS at once through six rows, and the engine that did it."""
    record = Record()
    sizes = {"k_max": K_MAX, "capacity": CAPACITY, "slots": 6, "gate": fixed_gate(3)} | more
    engine = Engine(target, drafter, observers=[record], cache_tokens=cache_tokens, **sizes)
    for index, text in enumerate(prompts(LENGTHS)):
        engine.submit(str(index), text, params(index, mode))
    while engine.step():
        pass
    return record, engine


def preemptions(record):
    return sum(end.preemptions for end in record.ends.values())


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("model", {}),
        ("model", {"prefill_tokens": 5, "depth": 2}),
        ("model", {"prefill_tokens": 9, "depth": 1, "graphs": True}),
        ("ngram", {"prefill_tokens": 7}),
    ],
)
def test_no_text_changes_when_sequences_are_put_back(target, draft, kind, more):
    def drafter():
        return ModelDrafter(draft) if kind == "model" else NgramDrafter(3, 1)

    free, _ = tight_run(target, drafter(), None)

    tight, _ = tight_run(target, drafter(), **more)

    assert preemptions(free) == 0
    assert preemptions(tight) >= 3
    assert tight.texts == free.texts
    assert {id: end.reason for id, end in tight.ends.items()} == {
        id: end.reason for id, end in free.ends.items()
    }


@pytest.mark.parametrize("depth", [0, 1])
def test_after_a_text_is_read_again_a_target_that_drafts_for_itself_accepts_everything(
    target, depth
):
    record, _ = tight_run(target, ModelDrafter(target), depth=depth, gate=random_gate(K_MAX))

    assert preemptions(record) >= 3
    assert record.acceptance == 1.0


def test_a_draft_cache_that_is_not_read_again_shows_in_acceptance_but_not_in_the_text(target):
    class Forgetful(ModelDrafter):
        def admitted(self, row, prompt):
            super().admitted(row, prompt)
            if len(prompt) > max(n for n in LENGTHS if list(prompt[:n]) in fresh):
                self.unread[row] = 0

    fresh = prompts(LENGTHS)
    sound, _ = tight_run(target, ModelDrafter(target), mode="coupled")
    planted, _ = tight_run(target, Forgetful(target), mode="coupled")

    assert planted.texts == sound.texts
    assert planted.acceptance < 0.98 < sound.acceptance == 1.0


def test_the_cache_never_holds_more_than_its_budget(target, draft):
    held = []

    def gate(sequences, waiting):
        held.append(sum(len(row.text) + K_MAX + 1 for row in engine.rows))
        return [3] * len(sequences)

    engine = Engine(
        target, ModelDrafter(draft), k_max=K_MAX, slots=6, capacity=CAPACITY, gate=gate,
        cache_tokens=TIGHT, prefill_tokens=8,
    )  # fmt: skip
    for index, text in enumerate(prompts(LENGTHS)):
        engine.submit(str(index), text, params(index))
    while engine.step():
        pass

    assert 0.7 * TIGHT < max(held) <= TIGHT


def test_reports_say_who_was_put_back_and_how_often(target, draft):
    record, _ = tight_run(target, ModelDrafter(draft))

    preempt = sum(report.preempted for report in record.rounds)
    marked = [
        id
        for report in record.rounds
        for id, end in zip(report.requests, report.ends, strict=True)
        if end == "preempt"
    ]
    assert preempt == preemptions(record) == len(marked)
    for id, end in record.ends.items():
        assert marked.count(id) == end.preemptions
        ends = [r.ends[r.requests.index(id)] for r in record.rounds if id in r.requests]
        assert ends[-1] == end.reason
        assert set(ends[:-1]) <= {"none", "preempt"}
        emitted = sum(r.emitted[r.requests.index(id)] for r in record.rounds if id in r.requests)
        assert emitted == end.output_tokens
    assert [info.id for info in record.admissions] == [str(i) for i in range(len(LENGTHS))]


def test_a_row_marked_as_put_back_is_not_in_the_next_round_and_is_read_again(target, draft):
    record, _ = tight_run(target, ModelDrafter(draft))

    read = sum(report.prefill_tokens for report in record.rounds)
    again = 0
    for before, after in zip(record.rounds, record.rounds[1:], strict=False):
        for place, end in enumerate(before.ends):
            if end == "preempt":
                assert before.requests[place] not in after.requests
                assert before.emitted[place] == before.accepted[place] + 1
                again += before.contexts[place] + before.emitted[place] - 1
    assert read == sum(LENGTHS) - len(LENGTHS) + again


def test_the_oldest_is_never_put_back_and_the_put_back_come_first(target, draft):
    record, _ = tight_run(target, ModelDrafter(draft))

    assert record.ends["0"].preemptions == 0
    order = [int(id) for report in record.rounds for id in report.requests]
    firsts = list(dict.fromkeys(order))
    assert firsts == sorted(firsts)
    for report in record.rounds:
        for place, end in enumerate(report.ends):
            if end == "preempt":
                staying = [
                    int(id)
                    for id, other in zip(report.requests, report.ends, strict=True)
                    if other == "none"
                ]
                assert all(other < int(report.requests[place]) for other in staying)


@pytest.mark.parametrize("depth", [0, 1])
def test_a_cache_of_one_sequence_serves_everybody_in_turn(target, draft, depth):
    free, _ = tight_run(target, ModelDrafter(draft), None)

    record, _ = tight_run(target, ModelDrafter(draft), ALONE, depth=depth)

    assert record.texts == free.texts
    assert any(len(report.requests) > 1 for report in record.rounds)


def test_enough_cache_for_all_rows_puts_nobody_back(target, draft):
    full = SamplingParams(max_new_tokens=1000)

    record = run(target, ModelDrafter(draft), prompts((3, 9, 30, 59)), full, gate=4, capacity=60)

    assert preemptions(record) == 0
    assert all(len(report.requests) == 4 for report in record.rounds[:1])
    assert {end.reason for end in record.ends.values()} == {"length"}


def test_what_can_never_fit_is_refused(target, draft):
    with pytest.raises(BadSetting, match="cache_tokens 104 cannot hold one sequence"):
        tight_run(target, ModelDrafter(draft), ALONE - 1)

    _, engine = tight_run(target, ModelDrafter(draft), ALONE)
    with pytest.raises(BadRequest, match="at most 99 fit"):
        engine.submit("long", [1] * CAPACITY, params(0))


def test_a_request_aborted_while_it_is_put_back_keeps_what_it_had_emitted(target, draft):
    class Impatient(Record):
        def round_ended(self, report):
            super().round_ended(report)
            for id, end in zip(report.requests, report.ends, strict=True):
                if end == "preempt":
                    self.engine.abort(id)
                    self.gone = id

    record = Impatient()
    engine = record.engine = Engine(
        target, ModelDrafter(draft), k_max=K_MAX, slots=6, capacity=CAPACITY, gate=fixed_gate(3),
        observers=[record], cache_tokens=TIGHT,
    )  # fmt: skip
    for index, text in enumerate(prompts(LENGTHS)):
        engine.submit(str(index), text, params(index))
    while engine.step():
        pass

    free, _ = tight_run(target, ModelDrafter(draft), None)
    end = record.ends[record.gone]
    assert (end.reason, end.preemptions) == ("abort", 1)
    assert 0 < end.output_tokens < len(free.texts[record.gone])
    assert end.token_ids == free.texts[record.gone][: end.output_tokens]
    assert len(record.ends) == len(LENGTHS)
    assert not engine.known


def test_stop_strings_and_limits_count_from_the_prompt_though_a_text_was_read_again(target, draft):
    def letters(ids):
        return "".join(chr(97 + token % 26) for token in ids)

    free, _ = tight_run(target, ModelDrafter(draft), None)
    last = letters(free.texts["9"])[-4:]
    texts = {}
    for tokens in (None, TIGHT):
        record = Record()
        engine = Engine(
            target, ModelDrafter(draft), k_max=K_MAX, slots=6, capacity=CAPACITY,
            gate=fixed_gate(3), observers=[record], cache_tokens=tokens, detokenize=letters,
        )  # fmt: skip
        for index, text in enumerate(prompts(LENGTHS)):
            own = params(index)
            stop = SamplingParams(
                1.0, mode=own.mode, seed=index, max_new_tokens=own.max_new_tokens, stop=(last, "ab")
            )
            engine.submit(str(index), text, stop)
        while engine.step():
            pass
        texts[tokens] = {id: (end.token_ids, end.reason) for id, end in record.ends.items()}
    assert preemptions(record) > 0
    assert texts[None] == texts[TIGHT]
    assert {reason for _, reason in texts[TIGHT].values()} == {"stop", "length"}


@settings(max_examples=12)
@given(
    st.integers(0, 10_000), st.integers(ALONE, 3 * ALONE), st.integers(1, 60), st.integers(0, 2),
    st.sampled_from((0, 4)), st.booleans(),
)  # fmt: skip
def test_any_life_under_any_budget_ends_as_it_would_with_room_for_all(
    seed, cache_tokens, prefill_tokens, depth, room, ngram
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budgets, "HEADROOM_ROUNDS", room)
        tight, engine = a_life(seed, ngram, cache_tokens, prefill_tokens, depth)
        free, _ = a_life(seed, ngram, None, 2048, 0)

    assert engine.idle
    assert not engine.rows
    assert not engine.queue
    assert not engine.known
    assert not engine.aborts
    assert tight.ends.keys() == free.ends.keys()
    for id, end in tight.ends.items():
        other = free.ends[id].token_ids
        if end.reason == free.ends[id].reason != "abort":
            assert end.token_ids == other
        else:
            length = min(end.output_tokens, len(other))
            assert end.token_ids[:length] == other[:length]
        whole = sum(r.emitted[r.requests.index(id)] for r in tight.rounds if id in r.requests)
        assert whole == end.output_tokens
    assert sum(report.preempted for report in tight.rounds) == preemptions(tight)


def a_life(seed, ngram, cache_tokens, prefill_tokens, depth):
    """Requests of random kinds that arrive, and are cancelled, at random rounds."""
    rng, record = random.Random(seed), Record()
    engine = Engine(
        TARGET, NgramDrafter(3, 1) if ngram else ModelDrafter(DRAFT), k_max=K_MAX, slots=5,
        capacity=CAPACITY, gate=fixed_gate(rng.randint(0, K_MAX)), observers=[record],
        cache_tokens=cache_tokens, prefill_tokens=prefill_tokens, depth=depth,
    )  # fmt: skip
    arrivals = sorted(rng.randint(0, 30) for _ in range(9))
    cancels = {rng.randint(0, 60): str(rng.randrange(9)) for _ in range(2)}
    requests = []
    for index in range(9):
        own = SamplingParams(
            rng.choice((0.0, 1.0)), mode=rng.choice(("coupled", "rejection")), seed=index,
            max_new_tokens=rng.randint(1, 60), eos=(rng.randrange(61),),
        )  # fmt: skip
        requests.append((prompts((rng.randint(1, 80),), seed=index)[0], own))
    clock = 0
    while clock <= 60 or not engine.idle:
        for index, at in enumerate(arrivals):
            if at == clock:
                engine.submit(str(index), *requests[index])
        if clock in cancels:
            engine.abort(cancels[clock])
        engine.step()
        clock += 1
        assert clock < 3000
    return record, engine


TARGET = tiny_model(0)
DRAFT = near(TARGET, 0.05)
