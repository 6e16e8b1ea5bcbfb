"""The reference engine's adapter: its reports, value by value, on the ring."""

import json
import math
from dataclasses import replace

import pytest
from engine.tiny_models import tiny_model
from hook_fakes import a_boot, drained

from specscope.engine import api
from specscope.engine.api import EngineInfo
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.engine import Engine
from specscope_hook.adapters import reference_plugin
from specscope_hook.adapters.reference import ReferenceObserver
from specscope_hook.adapters.reference_plugin import PolicyGate, register
from specscope_hook.blocks import Blocks
from specscope_hook.columns import End
from specscope_hook.digest import token_digest
from specscope_hook.payload import decode
from specscope_hook.recorder import UNKNOWN_U32, Recorder
from specscope_hook.ring import NAME_CLASS, Ring, RingReader


@pytest.fixture
def rig(tmp_path):
    ring = Ring.create(tmp_path / "a.ring", a_boot(), 1 << 16)
    return Recorder(ring, salt="s"), RingReader.open(ring.path)


def a_request(id_="a", label="sql"):
    params = api.SamplingParams(temperature=0.5, top_p=0.75, max_new_tokens=64)
    return api.RequestInfo(id_, label, 17, params, 1_700_000_000_000_000_000)


def a_report(**values):
    plain = {
        "started_at": 1_700_000_000_000_000_000,
        "wall_us": 100.0,
        "draft_us": 20.0,
        "verify_us": 50.0,
        "sample_us": 10.0,
        "idle_us": 5.0,
        "catchup_us": 3.0,
        "prefill_us": 12.0,
        "timing_source": "host",
        "waiting": 4,
        "prefill_tokens": 17,
        "padded_tokens": 2,
        "preempted": 0,
        "requests": ["a", "b"],
        "contexts": [20, 30],
        "k": [4, 0],
        "accepted": [3, 0],
        "emitted": [4, 1],
        "ends": ["none", "eos"],
    }
    return api.RoundReport(**plain | values)


def test_a_round_and_its_requests_arrive_value_by_value(rig):
    recorder, reader = rig
    observer = ReferenceObserver(recorder)
    observer.admitted(a_request("a", "sql"))
    observer.admitted(a_request("b", "prose"))

    observer.round_begins()
    observer.ended(
        api.RequestEnd(a_request("b", "prose"), 3, [7, 8, 9], 1.0, 2.0, 3.0, 4.0, 8.0, 1, "eos")
    )
    observer.round_ended(a_report())

    first, second, end, round_ = (decode(record) for record in drained(reader)[0])
    names = reader.names(NAME_CLASS)
    assert [names[r.class_] for r in (first, second)] == ["sql", "prose"]
    assert (first.prompt_tokens, first.requested_output) == (17, 64)
    assert (first.temperature, first.top_p, first.cached_tokens) == (0.5, 0.75, 0)
    assert (end.request, end.output_tokens, end.preemptions) == (second.request, 3, 1)
    assert (end.queue_ms, end.prefill_ms, end.ttft_ms, end.decode_ms, end.e2e_ms) == (1, 2, 3, 4, 8)
    assert (end.reason, end.digest) == (End.EOS, token_digest([7, 8, 9]))
    assert round_.requests == [first.request, second.request]
    assert [names[id_] for id_ in round_.classes] == ["sql", "prose"]
    report = a_report()
    for name in ("wall_us", "draft_us", "idle_us", "catchup_us", "prefill_us", "k", "emitted"):
        assert getattr(round_, name) == getattr(report, name)
    assert round_.ends == [End.NONE, End.EOS]


def test_a_report_of_another_shape_detaches_and_raises_nothing(rig):
    recorder, reader = rig
    observer = ReferenceObserver(recorder)

    observer.round_ended(object())
    observer.admitted(None)
    observer.ended(None)

    assert "reference engine, round" in reader.fault_text
    assert drained(reader)[0] == []


def test_equal_texts_have_equal_digests_and_other_texts_others():
    assert token_digest([1, 23]) == token_digest([1, 23])
    assert token_digest([1, 23]) != token_digest([12, 3])
    assert token_digest([-1, 23]) not in (token_digest([1, 23]), token_digest([-1, 24]))


def content_of(rig, id_, prompt=(1, 2, 3), **settings):
    recorder, reader = rig
    params = api.SamplingParams(max_new_tokens=64, **settings)
    ReferenceObserver(recorder).admitted(
        api.RequestInfo(id_, "sql", len(prompt), params, 1_700_000_000_000_000_000, "", prompt)
    )
    return decode(drained(reader)[0][-1]).content


def test_requests_share_a_content_where_they_must_share_their_output(rig):
    coupled = {"temperature": 1.0, "seed": 5, "mode": "coupled"}

    assert content_of(rig, "a") == content_of(rig, "b", seed=9) != 0
    assert content_of(rig, "c", **coupled) == content_of(rig, "d", **coupled) != 0
    assert content_of(rig, "e", prompt=(1, 2)) != content_of(rig, "f")
    assert content_of(rig, "g", **coupled | {"seed": 6}) != content_of(rig, "h", **coupled)
    assert content_of(rig, "i", temperature=1.0, mode="rejection") == 0


def test_a_policy_that_fails_detaches_and_leaves_the_engine_its_own_k(rig):
    recorder, reader = rig

    class Broken(Blocks):
        def turn(self):
            raise OSError("no page")

    gate = PolicyGate(Broken(recorder._ring, recorder, "r0", "b0"), 3, 8)
    sequence = api.SequenceState(a_request(), 20, 3)

    answers = [gate([sequence, sequence], 0) for _ in range(2)]

    assert answers == [[3, 3], [3, 3]]
    assert not recorder.on
    assert "reference engine, policy" in reader.fault_text


def test_an_engine_whose_rounds_are_not_recorded_runs_its_own_k(rig):
    recorder, reader = rig
    policy = {"policy": 1, "kind": "blocks", "arms": [{"name": "k0"}], "block_ms": 1000, "share": 1}
    reader.control_write(json.dumps(policy))
    gate = PolicyGate(Blocks(recorder._ring, recorder, "r0", "b0"), 3, 8)
    observer = ReferenceObserver(recorder)
    sequence = api.SequenceState(a_request(), 20, 3)
    before = gate([sequence], 0)

    observer.round_ended(object())

    assert (before, gate([sequence], 0)) == ([0], [3])
    assert "reference engine, round" in reader.fault_text


def test_a_detached_observer_holds_nothing(rig):
    recorder, reader = rig
    observer = ReferenceObserver(recorder)
    for number in range(5):
        observer.admitted(a_request(str(number)))
    before = len(drained(reader)[0])

    recorder.detach("planted")
    for number in range(5, 50):
        observer.round_begins()
        observer.admitted(a_request(str(number)))

    assert (observer._running, observer._leaving) == ({}, {})
    assert len(drained(reader)[0]) == before


def test_a_request_that_leaves_the_queue_has_an_end_and_was_never_admitted(rig):
    recorder, reader = rig
    engine = Engine(
        tiny_model(0), ModelDrafter(tiny_model(1)), k_max=2, slots=1, capacity=60,
        gate=api.fixed_gate(2), observers=[ReferenceObserver(recorder)],
    )  # fmt: skip
    recorder.block(7, 9, "k0")
    for name in "ab":
        params = api.SamplingParams(max_new_tokens=6)
        engine.submit(name, [1, 2, 3], params, label="sql", session="s")
    engine.step()

    engine.abort("b")
    while engine.step():
        pass

    records = [decode(record) for record in drained(reader)[0]]
    queued = recorder.request_hash("b")
    (gone,) = [r for r in records if getattr(r, "request", 0) == queued]
    (first, last) = [r for r in records if getattr(r, "request", 0) == recorder.request_hash("a")]
    assert (gone.reason, gone.output_tokens, gone.digest) == (End.ABORT, 0, 0)
    assert (gone.policy, gone.pair, gone.arm, gone.last_pair) == (0, 0, 255, 9)
    assert gone.cached_tokens == UNKNOWN_U32
    times = (gone.queue_ms, gone.prefill_ms, gone.ttft_ms, gone.decode_ms)
    assert all(math.isnan(time) for time in times)
    assert gone.e2e_ms > 0
    same = ("class_", "session", "prompt_tokens", "requested_output", "content")
    assert all(getattr(gone, name) == getattr(first, name) for name in same)
    assert (first.pair, last.reason, last.output_tokens) == (9, End.LENGTH, 6)


INFO = EngineInfo(
    target="t",
    draft="",
    method="ngram",
    k=2,
    k_max=4,
    dtype="float32",
    device="cpu",
    card={
        "target": {
            "parameters": 9,
            "active_parameters": 9,
            "bytes_per_weight": 4.0,
            "kv_bytes_per_token": 64,
            "layers": 1,
        }
    },
)


def test_a_served_engines_ring_is_ended_with_its_process(tmp_path, monkeypatch):
    at_exit = []
    monkeypatch.setattr(reference_plugin.atexit, "register", at_exit.append)
    monkeypatch.setenv("SPECSCOPE_RINGS", str(tmp_path))

    observers, gate = register(INFO)
    reader = RingReader.open(next(tmp_path.glob("*.ring")))

    assert (len(observers), gate([], 0)) == (1, [])
    assert not reader.ended
    for call in at_exit:
        call()
    assert reader.ended


def test_an_engine_that_the_plug_in_does_not_understand_is_served_unrecorded(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setenv("SPECSCOPE_RINGS", str(tmp_path))

    assert register(replace(INFO, card={})) is None
    assert "serving goes on" in caplog.text
    assert list(tmp_path.iterdir()) == []
