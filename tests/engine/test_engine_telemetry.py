"""What the engine tells, through the hook and the sidecar's rows: no column is empty by neglect."""

from dataclasses import replace

import pytest
from engine.head_plants import random_head
from engine.tiny_models import Record, prompts
from hook.hook_fakes import drained

from specscope.engine.api import EngineInfo, SamplingParams, fixed_gate
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.drafters.eagle import EagleDrafter
from specscope.engine.decode.engine import Engine
from specscope.engine.pair import card_of
from specscope_agent.loss import Losses
from specscope_agent.origin import Origin
from specscope_agent.source import Source
from specscope_agent.transpose import transpose
from specscope_hook.adapters import reference_plugin
from specscope_hook.adapters.reference import ReferenceObserver
from specscope_hook.adapters.reference_plugin import boot_of
from specscope_hook.attach import attach
from specscope_hook.ring import RingReader
from specscope_hook.settings import HookSettings

NEVER = {
    # No device, no price or tenant given, not sparse, one length; the sidecar writes the end.
    "boot": {
        "driver",
        "gpu_type",
        "price_per_hour",
        "experts",
        "ended_at",
        "k_schedule",
        "tenant",
    },
    "round": {"dram_active", "dram_window_ms"},  # of the device, by the sidecar
    "request_part": set(),
    "request": {"adapter"},  # the engine has none
}


@pytest.fixture(params=["model", "eagle"])
def told(target, draft, tmp_path, request):
    """A tight engine's life inside one block: its own record, and the rows that were made of it."""
    settings = HookSettings.from_env({"SPECSCOPE_RINGS": str(tmp_path)})
    head = random_head()
    models = {"model": (ModelDrafter(draft), draft), "eagle": (EagleDrafter(head, target), head)}
    drafter, drafting = models[request.param]
    card = {"target": card_of(target), "draft": card_of(drafting)}
    info = EngineInfo("tiny", "tiny-draft", request.param, 3, 4, "float64", "cpu", card, 4, 130)
    ring, recorder = attach(settings, boot_of(info, settings))
    reader = RingReader.open(ring.path)
    recorder.block(1, 7, "k4")
    record = Record()
    engine = Engine(
        target, drafter, k_max=4, slots=4, capacity=100, gate=fixed_gate(3),
        observers=[record, ReferenceObserver(recorder)], cache_tokens=130, prefill_tokens=16,
    )  # fmt: skip
    for index, text in enumerate(prompts((20, 30, 40, 5, 25, 9))):
        params = SamplingParams(1.0, top_p=0.9, seed=index, max_new_tokens=55)
        engine.submit(str(index), text, params, label="sql", session="s")
        if index == 0:
            engine.submit("aborted", [1] * 60, SamplingParams(1.0, max_new_tokens=9), "sql", "s")
    while engine.step():
        if [row.info.id for row in engine.rows][-1:] == ["aborted"] and engine.rows[-1].unread:
            engine.abort("aborted")
    assert not reader.fault_text
    origin = Origin.of(reader)
    losses = Losses(Source.of(origin.boot), 0)
    tables = transpose(*drained(reader), origin, losses=losses)
    assert not losses.rows
    return record, recorder, origin, tables


def rows(table):
    return table.to_pylist()


def test_columns_that_are_always_null_are_those_that_the_engine_cannot_know(told):
    _, _, origin, tables = told

    empty = {"boot": {name for name, value in origin.boot.items() if value is None}}
    for name, table in tables.items():
        empty[name] = {c for c in table.column_names if table[c].null_count == len(table)}
    assert empty == NEVER


def test_every_round_arrives_with_its_own_numbers(told):
    record, _, _, tables = told

    stored = rows(tables["round"])
    assert len(stored) == len(record.rounds)
    for row, report in zip(stored, record.rounds, strict=True):
        for name in ("waiting", "prefill_tokens", "padded_tokens", "preempted", "timing_source"):
            assert row[name] == getattr(report, name)
        parts = ("wall", "draft", "verify", "sample", "idle", "catchup", "prefill")
        for name in (f"{part}_us" for part in parts):
            assert row[name] == pytest.approx(getattr(report, name), rel=1e-6)
        assert row["batch"] == len(report.requests)
        assert row["n_kv"] == sum(report.contexts)
        assert (row["proposed"], row["accepted"]) == (sum(report.k), sum(report.accepted))
        assert row["emitted"] == sum(report.emitted)
        assert (row["policy"], row["pair"], row["arm"]) == (1, 7, "k4")
    assert sum(row["preempted"] for row in stored) > 0
    assert sum(row["prefill_tokens"] for row in stored) > 0


def test_a_request_that_was_put_back_has_parts_that_end_so_and_adds_up(told):
    record, recorder, _, tables = told

    parts = rows(tables["request_part"])
    ended = {row["request"]: row for row in rows(tables["request"]) if row["ended_at"] is not None}
    assert len(ended) == len(record.ends)
    for id, end in record.ends.items():
        request = recorder.request_hash(id)
        own = sorted((p for p in parts if p["request"] == request), key=lambda p: p["first_seq"])
        stored = ended[request]
        assert stored["preemptions"] == end.preemptions
        assert stored["reason"] == end.reason
        assert stored["output_tokens"] == end.output_tokens
        assert stored["queue_ms"] == pytest.approx(end.queue_ms, rel=1e-5)
        assert stored["prefill_ms"] == pytest.approx(end.prefill_ms, rel=1e-5)
        assert [p["end"] for p in own].count("preempt") == end.preemptions
        if end.output_tokens:
            assert own[-1]["end"] == end.reason
        emitted = sum(sum(p["emitted"] or [a + 1 for a in p["accepted"]]) for p in own)
        assert emitted == end.output_tokens
    assert sum(row["preemptions"] for row in ended.values()) > 0


def test_a_request_that_produced_nothing_has_no_first_token_rather_than_one_at_once(told):
    record, recorder, _, tables = told

    end = record.ends["aborted"]
    (stored,) = (
        row
        for row in rows(tables["request"])
        if row["request"] == recorder.request_hash("aborted") and row["ended_at"] is not None
    )
    assert (end.reason, end.output_tokens, end.ttft_ms, end.decode_ms) == ("abort", 0, None, None)
    assert stored["ttft_ms"] is stored["decode_ms"] is None
    assert stored["prefill_ms"] > 0


@pytest.mark.parametrize(
    ("device", "uuids"), [("cpu", []), ("cuda", ["GPU-0"]), ("cuda:0", ["GPU-0"])]
)
def test_an_engine_on_a_gpu_says_on_which(monkeypatch, device, uuids):
    found = {"gpu_type": "H200", "gpu_uuids": ["GPU-0"]}
    monkeypatch.setattr(reference_plugin, "cuda_devices", lambda: found)
    card = {"parameters": 1, "active_parameters": 1, "bytes_per_weight": 2}
    card |= {"kv_bytes_per_token": 4, "layers": 1}
    info = EngineInfo("t", "ngram", "ngram", 3, 4, "bfloat16", device, {"target": card})

    boot = boot_of(replace(info, slots=16, cache_tokens=9000), HookSettings.from_env({}))

    assert (boot.largest_batch, boot.lookahead_slots) == (16, 4)
    assert (boot.cache_blocks, boot.block_size) == (9000, 1)
    assert boot_of(info, HookSettings.from_env({})).block_size is None
    assert boot.gpu_uuids == uuids
    assert boot.gpu_type == ("H200" if uuids else None)
