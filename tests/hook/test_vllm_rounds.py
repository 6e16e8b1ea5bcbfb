"""The vLLM adapter: orders of events that its CPU build cannot show (the real one: tests/vllm)."""

import gc
import json
import math
import weakref
from types import SimpleNamespace

import pytest
import vllm_standins
from hook_fakes import ManualClock, flush_rings
from hypothesis import given
from hypothesis import strategies as st
from vllm_standins import Request, Scheduler, a_config

from specscope_hook.adapters.vllm import check
from specscope_hook.adapters.vllm_lengths import why_not_whole
from specscope_hook.adapters.vllm_requests import _SHAPES
from specscope_hook.adapters.vllm_steps import TOGETHER
from specscope_hook.clock import SystemClock
from specscope_hook.columns import End, TimingSource
from specscope_hook.errors import NotSupported
from specscope_hook.layout import Cursor
from specscope_hook.payload import decode
from specscope_hook.ring import NAME_ARM, NAME_CLASS, RingReader
from specscope_hook.ring_records import RingRound


@pytest.fixture
def scheduler(tmp_path):
    return Scheduler(tmp_path)


def started(scheduler, *ids):
    """Requests whose prompts are done."""
    for id_ in ids:
        scheduler.add(id_)
    scheduler.finish_step(scheduler.plan({}, prompts=ids))


def test_a_prompts_first_token_belongs_to_no_round(scheduler):
    started(scheduler, "a", "b")
    scheduler.finish_step(scheduler.plan({"a": 3, "b": 0}), accepted={"a": 2})

    first, second = scheduler.records()[0]
    assert (first.requests, first.prefill_tokens) == ([], 20)
    assert math.isnan(first.prefill_us)
    assert (second.k, second.accepted, second.emitted) == ([3, 0], [2, 0], [3, 1])
    assert second.contexts == [10, 10]
    assert second.prefill_us == 0


@given(st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=2, max_size=6))
def test_steady_steps_read_the_same_as_steps_read_one_by_one(tmp_path_factory, drafts):
    def run(steady):
        scheduler = Scheduler(tmp_path_factory.mktemp("rings"))
        if not steady:
            scheduler.probe._reader.read = scheduler.probe._reader._any
        started(scheduler, "a", "b", "c")
        for ks in drafts:
            plan = scheduler.plan(dict(zip("abc", ks, strict=True)))
            scheduler.finish_step(plan, accepted={"a": ks[0], "b": ks[1] // 2})
        return [
            (r.k, r.accepted, r.emitted, r.contexts, r.ends, r.classes, len(r.requests))
            for r in scheduler.records()[0]
        ]

    assert run(True) == run(False)


def test_draft_time_moves_to_the_round_that_verified_it(scheduler):
    started(scheduler, "a")
    for draft_us in (100.0, 200.0, 300.0):
        tag = scheduler.tag + 1
        plan = scheduler.plan({"a": 1})
        scheduler.finish_step(plan, steps=[(tag, draft_us, 20.0, 30.0, 0.0)])

    rounds = scheduler.records()[0]
    assert [round_.draft_us for round_ in rounds] == [0.0, 1.0, 100.0, 200.0]
    for round_ in rounds[1:]:
        parts = round_.draft_us + round_.verify_us + round_.sample_us + round_.idle_us
        assert parts == pytest.approx(round_.wall_us, rel=1e-3) or round_.idle_us == 0


def test_a_round_waits_for_its_times_and_keeps_its_order(scheduler):
    started(scheduler, "a")
    cuda = int(TimingSource.CUDA)
    scheduler.finish_step(scheduler.plan({"a": 2}), steps=[], source=cuda)
    scheduler.finish_step(scheduler.plan({"a": 3}), steps=[(2, 5.0, 6.0, 7.0, 8.0)], source=cuda)
    before = len(scheduler.records()[0])
    scheduler.probe.close()

    rounds = scheduler.records()[0]
    assert before == 2
    assert [round_.k for round_ in rounds[1:]] == [[2], [3]]
    assert rounds[1].verify_us == 6.0
    assert math.isnan(rounds[2].verify_us)
    assert rounds[1].timing_source == TimingSource.CUDA


def test_times_that_never_come_do_not_hold_rounds_back_for_ever(scheduler):
    started(scheduler, "a")
    for _ in range(100):
        scheduler.finish_step(scheduler.plan({"a": 1}), steps=[])

    rounds = scheduler.records()[0]
    assert 30 < len(rounds) < 101
    assert math.isnan(rounds[-1].verify_us)


def test_a_step_planned_before_the_one_before_is_read_belongs_to_its_own_block(tmp_path):
    scheduler = Scheduler(tmp_path, request_k=True)
    policy = {"policy": 4, "kind": "blocks", "block_ms": 60_000, "share": 1.0}
    policy["arms"] = [{"name": "k0"}]
    started(scheduler, "a")
    early = scheduler.plan({"a": 1})
    scheduler.follow(policy)
    late = scheduler.plan({"a": 2})
    scheduler.finish_step(early)
    scheduler.finish_step(late)

    rounds = scheduler.records()[0]
    arms = RingReader.open(scheduler.path).names(NAME_ARM)
    assert [(round_.policy, arms.get(round_.arm)) for round_ in rounds[1:]] == [
        (0, None),
        (4, "k0"),
    ]


def test_an_engine_that_does_not_follow_the_policy_is_no_arm_and_says_so_at_once(scheduler, caplog):
    policy = {"policy": 4, "kind": "blocks", "block_ms": 60_000, "share": 1.0}
    policy["arms"] = [{"name": "k0"}]
    started(scheduler, "a")
    scheduler.follow(policy)

    scheduler.finish_step(scheduler.plan({"a": 2}))

    scheduler.finish_step(scheduler.plan({"a": 2}))

    assert [round_.policy for round_ in scheduler.records()[0]] == [0, 0, 0]
    (said,) = (one.getMessage() for one in caplog.records if one.levelname == "WARNING")
    assert "policy 4" in said
    assert "SPECSCOPE_REQUEST_K=on" in said


def test_in_a_crossover_by_router_its_blocks_are_numbered_all_the_same(scheduler):
    policy = {"policy": 4, "kind": "blocks", "block_ms": 60_000, "share": 1.0}
    policy |= {"arms": [{"name": "current"}], "crossover": {"left": ["r0"], "right": ["r1"]}}
    started(scheduler, "a")
    scheduler.follow(policy)

    scheduler.finish_step(scheduler.plan({"a": 2}))

    rounds = scheduler.records()[0]
    arms = RingReader.open(scheduler.path).names(NAME_ARM)
    assert [(round_.policy, arms.get(round_.arm)) for round_ in rounds] == [
        (0, None),
        (4, "current"),
    ]
    assert rounds[1].pair > 0


def test_a_request_that_ended_while_its_next_step_was_in_flight_is_not_in_that_step(scheduler):
    started(scheduler, "a", "b")
    first = scheduler.plan({"a": 1, "b": 1})
    second = scheduler.plan({"a": 1, "b": 1})
    third = scheduler.plan({"a": 1, "b": 1})
    scheduler.finish_step(first)
    scheduler.finish_step(second, ended={"a": 1})
    scheduler.finish_step(third)

    rounds = scheduler.records()[0]
    assert [len(round_.requests) for round_ in rounds[1:]] == [2, 2, 1]
    assert rounds[2].ends == [End.LENGTH, End.NONE]


def test_content_is_of_greedy_requests_and_differs_with_what_shapes_their_output(tmp_path):
    scheduler = Scheduler(tmp_path)
    shapes = {
        "a": {"temperature": 0.0, "stop": ["x"]},
        "b": {"temperature": 0.0, "stop": ["x"]},
        "c": {"temperature": 0.0, "stop": ["y"]},
        "d": {"temperature": 0.5, "stop": ["x"]},
    }
    for whole in (False, True):  # a vLLM that lacks a parameter, one that has them all
        for id_, shape in shapes.items():
            more = dict.fromkeys(_SHAPES) if whole else {}
            request = Request(f"{id_}{whole}")
            request.prompt_token_ids = [1, 2, 3]
            request.sampling_params = SimpleNamespace(
                **{**more, "top_p": 1.0, "extra_args": None, **shape}
            )
            scheduler.probe.admitted(request)

    contents = [record.content for record in scheduler.records()[1]]
    assert contents[:4] == contents[4:]
    a, b, c, d = contents[:4]
    assert a == b
    assert len({a, c, d}) == 3
    assert d == 0


def test_an_aborted_request_ends_as_aborted(scheduler):
    started(scheduler, "a")
    request = scheduler.requests["a"]
    scheduler.leave(request)

    scheduler.probe.finished([request])

    end = scheduler.records()[1][-1]
    assert (end.reason, end.output_tokens, end.cached_tokens) == (End.ABORT, 1, 3)


def test_an_abort_of_a_request_with_stop_strings_may_be_a_stop(scheduler):
    started(scheduler, "a")
    request = scheduler.requests["a"]
    request.sampling_params.stop = ["\n\n"]
    scheduler.leave(request)

    scheduler.probe.finished([request])

    assert scheduler.records()[1][-1].reason == End.STOP_OR_ABORT


def test_what_a_grammar_refused_is_not_proposed(scheduler):
    started(scheduler, "a")

    plan = scheduler.plan({"a": 4}, num_invalid_spec_tokens={"a": 3})
    scheduler.finish_step(plan, accepted={"a": 1})

    round_ = scheduler.records()[0][-1]
    assert (round_.k, round_.accepted, round_.invalid) == ([1], [1], 3)


def test_what_was_scheduled_and_what_the_target_checked_are_both_recorded(scheduler):
    started(scheduler, "a", "b")
    scheduler.finish_step(scheduler.plan({"a": 4, "b": 4}), {"a": 1}, verified={"a": 2, "b": 0})
    scheduler.finish_step(scheduler.plan({"a": 4, "b": 4}), {"a": 1}, verified={"a": 2, "b": 0})
    scheduler.finish_step(scheduler.plan({"a": 4, "b": 4}))

    rounds = scheduler.records()[0][1:]
    assert [(r.k, r.verified) for r in rounds] == [([4, 4], [2, 0])] * 2 + [([4, 4], [255, 255])]


def test_a_prompts_last_token_is_padded_with_proposals_that_are_none(scheduler):
    scheduler.add("a", prompt=1)
    as_new = [SimpleNamespace(req_id="a")]
    first = scheduler.plan({"a": 4}, scheduled_new_reqs=as_new)
    scheduler.finish_step(first)
    scheduler.finish_step(scheduler.plan({"a": 2}))
    put_back = SimpleNamespace(resumed_req_ids={"a"})
    scheduler.finish_step(scheduler.plan({"a": 4}, scheduled_cached_reqs=put_back))
    # What the V2 runner is told of one that comes back.
    scheduler.finish_step(scheduler.plan({"a": 4}, scheduled_new_reqs=as_new))

    rounds = scheduler.records()[0]
    assert [(list(r.k), r.prefill_tokens, r.padded_tokens) for r in rounds] == [
        ([], 1, 4),
        ([2], 0, 0),
        ([], 1, 4),
        ([], 1, 4),
    ]


def test_time_without_requests_belongs_to_no_round(tmp_path, monkeypatch):
    clock = ManualClock()
    for name in ("monotonic_ns", "unix_ns"):
        monkeypatch.setattr(SystemClock, name, staticmethod(getattr(clock, name)))
    scheduler = Scheduler(tmp_path)

    started(scheduler, "a")
    clock.pass_ms(5)
    scheduler.finish_step(scheduler.plan({"a": 0}), ended={"a": 0})
    clock.pass_ms(200)
    started(scheduler, "b")

    rounds = scheduler.records()[0]
    assert max(round_.wall_us for round_ in rounds) == 5000


def test_drafts_are_cut_only_where_the_switch_is_on(tmp_path):
    policy = {"policy": 4, "kind": "table", "table": [], "default_k": 1}
    left = {}
    for switch in (False, True):
        directory = tmp_path / str(switch)
        directory.mkdir()
        scheduler = Scheduler(directory, request_k=switch)
        started(scheduler, "a")
        scheduler.follow(policy)
        planned = scheduler.plan({"a": 0})
        scheduler.finish_step(planned)
        drafts = SimpleNamespace(req_ids=["a"], draft_token_ids=[[1, 2, 3]])
        scheduler.update_draft_token_ids(drafts)
        left[switch] = (planned.num_spec_tokens_to_schedule, drafts.draft_token_ids)

    assert left == {False: (4, [[1, 2, 3]]), True: (1, [[1]])}


def test_a_step_drafts_for_its_longest_and_the_others_are_cut(tmp_path):
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps({"rules": [{"class": "sql", "request_id": "^sql"}]}))
    scheduler = Scheduler(tmp_path, request_k=True, classes=rules)
    policy = {"policy": 4, "kind": "table", "table": [{"class": "sql", "k": 3}], "default_k": 0}
    scheduler.follow(policy)
    started(scheduler, "sql-1", "b")

    both = scheduler.plan({"sql-1": 3, "b": 0})
    drafts = SimpleNamespace(req_ids=["b", "sql-1"], draft_token_ids=[[1, 2, 3], [4, 5, 6]])
    scheduler.update_draft_token_ids(drafts)
    alone = scheduler.plan({"b": 0})

    assert both.num_spec_tokens_to_schedule == 3
    assert drafts.draft_token_ids == [[], [4, 5, 6]]
    assert alone.num_spec_tokens_to_schedule == 0


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (a_config(method="dflash"), "dflash drafts a fixed number"),
        (a_config(full_graphs=True), "full CUDA graphs"),
        (SimpleNamespace(speculative_config=None), "does not speculate"),
    ],
)
def test_where_a_step_must_draft_alike_only_its_drafts_are_cut(config, said):
    assert said in why_not_whole(config)
    assert why_not_whole(a_config()) == ""


def test_where_a_configuration_is_not_the_one_that_is_known_drafts_are_cut_all_the_same(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(vllm_standins, "a_config", SimpleNamespace)
    scheduler = Scheduler(tmp_path, request_k=True)
    policy = {"policy": 4, "kind": "table", "table": [], "default_k": 1}
    scheduler.follow(policy)
    started(scheduler, "a")

    plan = scheduler.plan({"a": 3})
    drafts = SimpleNamespace(req_ids=["a"], draft_token_ids=[[1, 2, 3]])
    scheduler.update_draft_token_ids(drafts)

    assert scheduler.probe.on
    assert "cuts drafts and does not save their drafting" in caplog.text
    assert (plan.num_spec_tokens_to_schedule, drafts.draft_token_ids) == (4, [[1]])


def test_ranks_that_step_together_are_recorded_and_follow_no_policy(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(vllm_standins, "a_config", lambda: a_config(ranks=2))
    scheduler = Scheduler(tmp_path, request_k=True)
    policy = {"policy": 4, "kind": "blocks", "block_ms": 60_000, "share": 1.0}
    policy["arms"] = [{"name": "k0"}, {"name": "k4"}]
    scheduler.follow(policy)
    started(scheduler, "a")

    plan = scheduler.plan({"a": 3})
    drafts = SimpleNamespace(req_ids=["a"], draft_token_ids=[[1, 2, 3]])
    scheduler.update_draft_token_ids(drafts)
    scheduler.finish_step(plan)

    assert (plan.num_spec_tokens_to_schedule, drafts.draft_token_ids) == (4, [[1, 2, 3]])
    last = scheduler.records()[0][-1]
    assert (last.policy, last.pair, last.k) == (0, 0, [3])
    assert caplog.text.count("follows no policy here: data-parallel ranks step together") == 1


def test_a_rule_may_ask_for_the_name_that_the_model_is_served_under(tmp_path, monkeypatch):
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps({"rules": [{"class": "large", "model": "^big$"}]}))
    config = a_config()
    config.model_config = SimpleNamespace(served_model_name="big")
    monkeypatch.setattr("vllm_standins.a_config", lambda: config)

    scheduler = Scheduler(tmp_path, classes=rules)
    scheduler.add("a")

    (admitted,) = scheduler.records()[1]
    assert RingReader.open(scheduler.path).names(NAME_CLASS)[admitted.class_] == "large"


def test_tokens_for_a_sequence_that_is_gone_are_padding(scheduler):
    started(scheduler, "a", "b")
    first, second = scheduler.plan({"a": 1, "b": 1}), scheduler.plan({"a": 1, "b": 2})
    scheduler.finish_step(first, ended={"a": 1})
    scheduler.finish_step(second)

    last = scheduler.records()[0][-1]
    assert (last.k, last.padded_tokens) == ([2], 2)


def test_what_the_scheduler_throws_away_is_padding(scheduler):
    started(scheduler, "a", "b", "c")
    scheduler.finish_step(scheduler.plan({"a": 2, "b": 3, "c": 1}), accepted={"b": 3})
    plan = scheduler.plan({"a": 2, "b": 3, "c": 1})
    scheduler.finish_step(plan, accepted={"a": 1, "b": 3}, dropped=("b",), ended={"c": 1})

    first, last = scheduler.records()[0][1:]
    assert (first.k, first.padded_tokens) == ([2, 3, 1], 0)
    assert (last.k, last.accepted, last.emitted) == ([2, 1], [1, 0], [2, 1])
    assert (last.contexts, last.padded_tokens) == ([11, 11], 4)
    assert last.requests == [first.requests[0], first.requests[2]]
    assert last.ends == [End.NONE, End.LENGTH]


def test_a_requests_rounds_are_written_before_its_end(scheduler):
    started(scheduler, "a", "b")
    scheduler.finish_step(scheduler.plan({"a": 1, "b": 1}))
    request = scheduler.requests["a"]
    scheduler.leave(request)

    scheduler.probe.finished([request])

    reader = RingReader.open(scheduler.path)
    flush_rings()
    records = [decode(record) for record in reader.pull(Cursor(), 1 << 40)[0]]
    assert isinstance(records[-2], RingRound)
    assert len(records[-2].k) == 2
    assert records[-1].ended_at > 0


def test_another_signature_is_named():
    class Other:
        def schedule(self, when):
            pass

    check(Other, {"schedule": ("self",)}, "1.0")
    with pytest.raises(NotSupported, match=r"Other\.schedule takes self, when"):
        check(Other, {"schedule": ("self", "throttle")}, "1.0")
    with pytest.raises(NotSupported, match=r"has no Other\.add_request"):
        check(Other, {"add_request": ("self",)}, "1.0")


def test_after_a_fault_nothing_of_the_engine_is_held_and_what_was_recorded_is_written(scheduler):
    started(scheduler, "a", "b")
    scheduler.finish_step(scheduler.plan({"a": 3, "b": 0}), accepted={"a": 2})
    held = [weakref.ref(request) for request in scheduler.running]
    scheduler.probe.after_update(None, None, b"", {})  # what is no plan

    scheduler.leave(scheduler.requests["a"])
    scheduler.leave(scheduler.requests["b"])
    gc.collect()

    assert not scheduler.probe.on
    assert [ref() for ref in held] == [None, None]
    reader = RingReader.open(scheduler.path)
    flush_rings()
    records = [decode(record) for record in reader.pull(Cursor(), 1 << 40)[0]]
    assert [len(r.requests) for r in records if isinstance(r, RingRound)] == [0, 2]
    assert "round" in reader.fault_text


def test_an_engine_that_ends_is_held_by_nothing_of_ours(tmp_path):
    scheduler = Scheduler(tmp_path)
    started(scheduler, "a")
    held = [weakref.ref(scheduler), weakref.ref(scheduler.probe)]

    scheduler.probe.close()
    scheduler.probe.close()
    path = scheduler.path
    del scheduler
    gc.collect()

    assert [ref() for ref in held] == [None, None]
    assert RingReader.open(path).ended


def written(scheduler):
    """Rounds that a sidecar would see now."""
    reader = RingReader.open(scheduler.path)
    records = [decode(record) for record in reader.pull(Cursor(), 1 << 40)[0]]
    return sum(isinstance(record, RingRound) for record in records)


def test_rounds_are_written_together_and_at_once_where_nothing_runs(scheduler):
    started(scheduler, "a", "b")
    counts = []
    for _ in range(70):
        scheduler.finish_step(scheduler.plan({"a": 1, "b": 1}))
        counts.append(written(scheduler))
    scheduler.finish_step(scheduler.plan({"a": 1, "b": 1}), ended={"a": 1, "b": 1})

    assert counts == sorted(counts)
    assert all(behind <= TOGETHER for behind in (n + 2 - c for n, c in enumerate(counts)))
    assert written(scheduler) == 72


@pytest.mark.parametrize(("ended", "within_ms"), [({}, 500), ({"a": 1}, 100)])
def test_steps_are_written_within_a_time_and_sooner_once_a_request_has_ended(
    tmp_path, monkeypatch, ended, within_ms
):
    clock = ManualClock()
    for name in ("monotonic_ns", "unix_ns"):
        monkeypatch.setattr(SystemClock, name, staticmethod(getattr(clock, name)))
    scheduler = Scheduler(tmp_path)
    started(scheduler, "a", "b")
    scheduler.finish_step(scheduler.plan({"a": 1, "b": 1}), ended=ended)
    while not written(scheduler):
        clock.pass_ms(25)
        scheduler.finish_step(scheduler.plan({"b": 0}))
        scheduler.plan({"b": 0})

    assert clock.now_ns - 1_000_000_000 == within_ms * 1_000_000


def test_an_engine_that_asks_for_no_bitmask_writes_all_the_same(scheduler):
    started(scheduler, "a")
    for _ in range(2 * TOGETHER):
        plan = scheduler.plan({"a": 0})
        scheduler.probe.due = False  # as if nobody had called `flush`
        scheduler.finish_step(plan)

    assert written(scheduler) >= 2 * TOGETHER


def test_a_request_that_comes_under_the_id_of_one_that_ended_is_another(scheduler):
    started(scheduler, "a", "b")
    scheduler.finish_step(scheduler.plan({"a": 1, "b": 1}), ended={"a": 1})
    scheduler.add("a", prompt=20)
    scheduler.finish_step(scheduler.plan({"b": 0}, prompts=("a",)))
    scheduler.finish_step(scheduler.plan({"a": 0, "b": 0}))

    rounds, requests = scheduler.records()
    assert rounds[-1].contexts == [20, 12]
    assert [r.prompt_tokens for r in requests if not r.ended_at] == [10, 10, 20]


@given(st.data())
def test_contexts_are_those_that_each_sequence_had_when_its_round_began(tmp_path_factory, data):
    """Against the lengths of vLLM's own lists at that time, however late a step is read."""
    scheduler = Scheduler(tmp_path_factory.mktemp("rings"))
    wanted, number = [], 0
    for _ in range(data.draw(st.integers(1, 30))):
        running = [request.request_id for request in scheduler.running]
        new = data.draw(st.integers(0, 2 if len(running) < 6 else 0))
        for _ in range(new):
            number += 1
            scheduler.add(str(number), prompt=data.draw(st.integers(1, 9)))
        drafts = {id_: data.draw(st.integers(0, 4)) for id_ in running}
        if not drafts and not new:
            continue
        plan = scheduler.plan(drafts, tuple(str(number - n) for n in range(new)))
        accepted = {id_: data.draw(st.integers(0, k)) for id_, k in drafts.items()}
        ended = {id_: 1 for id_ in running if data.draw(st.integers(0, 9)) == 0}
        dropped = tuple(id_ for id_ in running if data.draw(st.integers(0, 9)) == 0)
        kept = [id_ for id_ in running if id_ not in dropped]
        wanted.append([scheduler.requests[id_].num_tokens - 1 for id_ in kept])
        scheduler.finish_step(
            plan, accepted, {id_: r for id_, r in ended.items() if id_ in kept}, dropped=dropped
        )

    rounds = scheduler.records()[0]
    assert [round_.contexts for round_ in rounds] == wanted
    assert all(sum(r.emitted) == sum(r.accepted) + len(r.accepted) for r in rounds)


def test_a_rounds_age_in_its_block_is_that_of_its_end_not_of_its_writing(tmp_path, monkeypatch):
    clock = ManualClock()
    for name in ("monotonic_ns", "unix_ns"):
        monkeypatch.setattr(SystemClock, name, staticmethod(getattr(clock, name)))
    scheduler = Scheduler(tmp_path, request_k=True)
    policy = {"policy": 4, "kind": "blocks", "block_ms": 60_000, "share": 1.0}
    policy["arms"] = [{"name": "k0"}]
    scheduler.follow(policy)
    started(scheduler, "a")
    for _ in range(3):
        clock.pass_ms(7)
        scheduler.finish_step(scheduler.plan({"a": 0}))
    clock.pass_ms(1000)

    rounds = scheduler.records()[0]
    assert [round_.block_age_ms for round_ in rounds] == [0, 7, 14, 21]
    assert [round_.started_at - rounds[0].started_at for round_ in rounds[1:]] == [
        0,
        7_000_000,
        14_000_000,
    ]
