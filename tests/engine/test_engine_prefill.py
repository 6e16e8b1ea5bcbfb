"""Prompts are read a budget at a time between rounds: nobody waits longer, and no text changes."""

import pytest
from engine.tiny_models import Record, prompts, random_gate, run

from specscope.engine.api import SamplingParams, fixed_gate
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.drafters.ngram import NgramDrafter
from specscope.engine.decode.engine import Engine
from specscope.engine.errors import BadSetting

LENGTHS = (1, 40, 3, 90, 2, 17, 1, 61, 33)
BUDGETS = (1, 7, 32, 1000)


def params(index):
    modes = ("greedy", "coupled", "rejection")
    return SamplingParams(
        temperature=1.0, mode=modes[index % 3], seed=index, max_new_tokens=10 + index
    )


def staggered(target, draft, budget, **more):
    """Requests that come in one every other round."""
    record = Record()
    settings = {"k_max": 4, "slots": 4, "capacity": 120, "gate": fixed_gate(2)} | more
    engine = Engine(
        target, ModelDrafter(draft), observers=[record], prefill_tokens=budget, **settings
    )
    for index, text in enumerate(prompts(LENGTHS)):
        engine.submit(str(index), text, params(index))
        engine.step()
        engine.step()
    while engine.step():
        pass
    return record


@pytest.mark.parametrize(("depth", "graphs"), [(0, None), (1, True)])
@pytest.mark.parametrize("budget", BUDGETS)
def test_the_budget_changes_no_text(target, draft, budget, depth, graphs):
    alone = [
        run(target, ModelDrafter(draft), [text], params(index), gate=2, slots=1).texts["0"]
        for index, text in enumerate(prompts(LENGTHS))
    ]

    record = staggered(target, draft, budget, depth=depth, graphs=graphs)

    assert [record.texts[str(index)] for index in range(len(LENGTHS))] == alone


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("budget", BUDGETS)
def test_a_target_that_drafts_for_itself_still_accepts_everything(target, budget, depth):
    record = staggered(target, target, budget, depth=depth, gate=random_gate(4))

    assert record.acceptance == 1.0


@pytest.mark.parametrize("budget", BUDGETS)
def test_a_sequence_waits_for_one_budget_of_others_prompts_between_two_rounds(
    target, draft, budget
):
    record = staggered(target, draft, budget)

    before: set[str] = set()
    for report in record.rounds:
        if before & set(report.requests):
            assert report.prefill_tokens <= budget
        before = set(report.requests)
    for id, text in record.texts.items():
        present = [id in report.requests for report in record.rounds]
        first = present.index(True)
        last = len(present) - 1 - present[::-1].index(True)
        assert all(present[first : last + 1])
        spans = [report for report in record.rounds if id in report.requests]
        assert sum(r.emitted[r.requests.index(id)] for r in spans) == len(text)


@pytest.mark.parametrize("budget", BUDGETS)
def test_every_token_but_a_prompts_last_is_read_once(target, draft, budget):
    record = staggered(target, draft, budget)

    assert sum(report.prefill_tokens for report in record.rounds) == sum(LENGTHS) - len(LENGTHS)
    for report in record.rounds:
        assert (report.prefill_us > 0) >= (report.prefill_tokens > 0)


def test_others_go_on_while_a_long_prompt_is_read_and_a_short_one_waits_behind_it(target, draft):
    record = Record()
    engine = Engine(
        target, ModelDrafter(draft), k_max=2, slots=3, capacity=120, gate=fixed_gate(0),
        observers=[record], prefill_tokens=10,
    )  # fmt: skip
    engine.submit("first", [1, 2], SamplingParams(max_new_tokens=50))
    engine.step()
    engine.submit("long", prompts((95,))[0], SamplingParams(max_new_tokens=3))
    engine.submit("short", [3, 4], SamplingParams(max_new_tokens=3))

    for _ in range(10):
        engine.step()

    assert [report.requests for report in record.rounds[1:10]] == [["first"]] * 9
    assert [report.prefill_tokens for report in record.rounds] == [1, *[10] * 9, 5]
    assert record.rounds[9].waiting == 1
    assert record.rounds[10].requests == ["first", "long", "short"]
    assert [info.id for info in record.admissions] == ["first", "long", "short"]


def test_while_nobody_runs_a_prompt_is_read_to_its_end_before_the_round(target, draft):
    record = Record()
    engine = Engine(
        target, ModelDrafter(draft), k_max=2, slots=2, capacity=120, gate=fixed_gate(0),
        observers=[record], prefill_tokens=10,
    )  # fmt: skip
    engine.submit("long", prompts((96,))[0], SamplingParams(max_new_tokens=3))
    engine.submit("next", prompts((21,))[0], SamplingParams(max_new_tokens=3))

    while engine.step():
        pass

    assert [report.prefill_tokens for report in record.rounds[:3]] == [95, 10, 10]
    for end in record.ends.values():
        assert end.prefill_ms > 0
        assert end.queue_ms + end.prefill_ms <= end.ttft_ms


def test_a_request_that_is_aborted_while_it_is_read_leaves_its_row_to_others(target, draft):
    record = Record()
    engine = Engine(
        target, ModelDrafter(draft), k_max=2, slots=2, capacity=120, gate=fixed_gate(2),
        observers=[record], prefill_tokens=4,
    )  # fmt: skip
    texts = prompts((5, 80, 9))
    for name, text in zip(("stays", "goes", "comes"), texts, strict=True):
        engine.submit(name, text, SamplingParams(max_new_tokens=30))
    engine.step()
    engine.step()
    assert [row.info.id for row in engine.rows] == ["stays", "goes"]

    engine.abort("goes")
    while engine.step():
        pass

    assert record.ends["goes"].reason == "abort"
    assert record.ends["goes"].output_tokens == 0
    assert record.ends["goes"].prefill_ms > 0
    for name, text in (("stays", texts[0]), ("comes", texts[2])):
        alone = run(target, ModelDrafter(draft), [text], SamplingParams(max_new_tokens=30))
        assert record.texts[name] == alone.texts["0"]


def test_a_request_aborted_while_it_alone_is_read_ends_and_the_next_begins(target, draft):
    record = Record()

    class Impatient(Record):
        def admitted(self, request):
            super().admitted(request)
            if request.id == "goes":
                engine.abort("goes")

    record = Impatient()
    engine = Engine(
        target, ModelDrafter(draft), k_max=2, slots=2, capacity=120, gate=fixed_gate(2),
        observers=[record], prefill_tokens=4,
    )  # fmt: skip
    engine.submit("goes", prompts((80,))[0], SamplingParams(max_new_tokens=5))
    assert engine.step() is True
    assert record.ends["goes"].reason == "abort"
    assert record.rounds == []
    assert engine.step() is False

    engine.submit("comes", [1, 2], SamplingParams(max_new_tokens=5))
    while engine.step():
        pass
    assert record.ends["comes"].reason == "length"


@pytest.mark.parametrize("drafter", ["model", "ngram"])
def test_a_row_that_is_read_moves_when_others_leave(target, draft, drafter):
    texts = prompts((3, 4, 5, 100))
    record = Record()
    kind = ModelDrafter(draft) if drafter == "model" else NgramDrafter(2, 1)
    engine = Engine(
        target, kind, k_max=3, slots=4, capacity=120, gate=fixed_gate(3), observers=[record],
        prefill_tokens=9,
    )  # fmt: skip
    limits = (4, 30, 7, 12)
    for index, (text, limit) in enumerate(zip(texts, limits, strict=True)):
        engine.submit(str(index), text, SamplingParams(max_new_tokens=limit))
    places = []
    while engine.step():
        places += [place for place, row in enumerate(engine.rows) if row.info.id == "3"]

    assert len(set(places)) > 1
    for index, (text, limit) in enumerate(zip(texts, limits, strict=True)):
        own = SamplingParams(max_new_tokens=limit)
        assert record.texts[str(index)] == run(target, NgramDrafter(), [text], own).texts["0"]


def test_a_budget_of_nothing_is_refused(target, draft):
    with pytest.raises(BadSetting, match="prefill_tokens must be at least 1"):
        Engine(
            target, ModelDrafter(draft), k_max=1, slots=1, capacity=20, gate=fixed_gate(1),
            prefill_tokens=0,
        )  # fmt: skip
