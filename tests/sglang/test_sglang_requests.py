"""The SGLang adapter's requests, from the queue to their end."""

import math
from array import array
from hashlib import blake2b
from types import SimpleNamespace

import pytest
from sglang_serving import rules

from specscope_hook.adapters.sglang_requests import _SHAPES
from specscope_hook.columns import End
from specscope_hook.digest import token_digest


def test_a_request_is_written_at_admission_and_at_its_end(engine):
    req = engine.request("a", prompt=17, max_new_tokens=9)

    ring = engine.serve(req, costs_us={"prompt": 2000})

    admission, end = ring.requests
    assert (admission.ended_at, end.reason) == (0, End.LENGTH)
    assert (end.prompt_tokens, end.requested_output, end.cached_tokens) == (17, 9, 3)
    assert (end.output_tokens, end.digest) == (9, token_digest([7] * 9))
    assert (end.temperature, end.top_p, end.guided) == (0.5, 1.0, 0)
    assert end.ttft_ms >= 2
    assert end.queue_ms + end.prefill_ms == pytest.approx(end.ttft_ms)
    assert end.ttft_ms + end.decode_ms == pytest.approx(end.e2e_ms)


def test_how_it_ended_is_said_in_our_words(engine):
    def aborts(scheduler):
        scheduler.abort(gone)

    asked, itself = engine.request("s", stop_token_ids={9}), engine.request("e")
    gone, long = engine.request("g"), engine.request("l", max_new_tokens=5)
    special = {"s": 9, "e": 2}

    ring = engine.serve(
        asked, itself, gone, long,
        tokens=lambda req, place: special.get(req.rid, 7) if place == 4 else 7,
        events={3: aborts},
    )  # fmt: skip

    assert sorted(end.reason for end in ring.ends) == sorted(
        [End.STOP, End.EOS, End.ABORT, End.LENGTH]
    )


def test_one_that_is_aborted_while_it_waits_has_an_end_and_no_rounds(engine):
    scheduler = engine.start()
    req = engine.request("a")
    scheduler._add_request_to_queue(req)
    scheduler.abort(req)

    ring = engine.serve(scheduler=scheduler)

    (end,) = ring.ends
    assert (end.reason, end.output_tokens, ring.rounds) == (End.ABORT, 0, [])
    assert math.isnan(end.queue_ms)
    assert scheduler._specscope._requests.running == {}


def test_one_that_the_queue_refuses_has_an_end(engine):
    ring = engine.serve(engine.request("a"), queue_is_full=True)

    assert [end.reason for end in ring.ends] == [End.ABORT]


def test_the_engines_own_health_checks_are_nobodys_requests(engine):
    ring = engine.serve(engine.request("HEALTH_CHECK_1"), engine.request("a"))

    assert len(ring.ends) == 1
    assert {len(r.requests) for r in ring.rounds} == {1}


def test_greedy_is_temperature_0_though_the_engine_says_1(engine):
    ring = engine.serve(engine.request("a", temperature=1.0, top_k=1))

    assert ring.ends[0].temperature == 0


def test_rules_give_a_request_its_class(engine, tmp_path, monkeypatch):
    path = rules(
        tmp_path,
        {"class": "sql", "extra": {"route": "sql"}},
        {"class": "acme", "adapter": "^acme"},
        {"class": "tools", "guided": True},
    )
    monkeypatch.setenv("SPECSCOPE_CLASSES", str(path))
    scheduler = engine.start()
    known = {"id-1": SimpleNamespace(lora_name="acme-1")}
    scheduler.tp_worker.model_runner.lora_manager = SimpleNamespace(lora_refs=known)
    adapted = engine.request("b")
    adapted.lora_id = "id-1"
    reqs = [
        engine.request("a", custom_params={"route": "sql"}),
        adapted,
        engine.request("c", json_schema="{}"),
        engine.request("d"),
    ]

    ring = engine.serve(*reqs, scheduler=scheduler)

    names = [ring.classes[request.class_] for request in ring.requests if not request.ended_at]
    assert names == ["sql", "acme", "tools", "unlabelled"]


def test_requests_that_must_have_one_output_share_their_content(engine):
    greedy = {"temperature": 1.0, "top_k": 1}
    other = engine.request("c", **greedy)
    other.origin_input_ids[0] = 6
    processed = engine.request("p", **greedy)
    processed.custom_logit_processor = "code"
    seen = engine.request("i", **greedy)
    seen.multimodal_inputs = object()
    reqs = [
        engine.request("a", **greedy),
        engine.request("b", stop_strs=None, **greedy),
        other,
        engine.request("d", stop_strs=["x"], **greedy),
        engine.request("e", stop_regex_strs=["x"], **greedy),
        engine.request("f", stop_token_ids={9, 1, 17}, **greedy),
        engine.request("g", stop_token_ids={17, 9, 1}, **greedy),
        engine.request("s", temperature=0.7),
        processed,
        seen,
    ]

    ring = engine.serve(*reqs)

    a, b, c, d, e, f, g, *none = [each.content for each in ring.requests if not each.ended_at]
    assert a == b != 0
    assert f == g
    assert len({a, c, d, e, f}) == 5
    assert none == [0, 0, 0]
    ends = {each.request: each for each in ring.ends}
    for each in ring.requests:
        assert ends[each.request].content == each.content
        assert ends[each.request].digest != 0


@pytest.mark.parametrize("salt", ["one", "two"])
def test_the_salt_of_the_settings_makes_contents_comparable_between_replicas(
    engine, monkeypatch, salt
):
    monkeypatch.setenv("SPECSCOPE_SALT", salt)
    req = engine.request("a", temperature=1.0, top_k=1)

    ring = engine.serve(req)

    shape = dict.fromkeys(_SHAPES) | {"max_new_tokens": 20}
    assert ring.ends[0].content == content_with(salt, [5] * 10, "", False, *shape.values())


def content_with(salt, prompt, *settings):
    """As `Recorder.content_hash` makes it, from nothing of its own."""
    text = array("I", prompt).tobytes() + repr(settings).encode()
    raw = blake2b(text, digest_size=8, key=salt.encode()).digest()
    return int.from_bytes(raw, "little")
