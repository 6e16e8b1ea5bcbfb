"""Where the SGLang adapter attaches, what it says of the engine, and when it stays away."""

import importlib
import logging
import math

import pytest

from specscope_hook.adapters.sglang import register
from specscope_hook.columns import TimingSource


@pytest.fixture
def lines(caplog):
    """Lines of ours that an operator would see."""
    caplog.set_level(logging.WARNING)

    def said():
        found = [r for r in caplog.records if r.name.endswith("specscope")]
        assert all(r.exc_info is None for r in found)
        return [r.getMessage() for r in found]

    return said


def served(engine, **plan):
    """Whether the engine served two requests, however the hook is."""
    reqs = [engine.request("a"), engine.request("b", max_new_tokens=6)]
    ring = engine.serve(*reqs, **plan)
    assert [len(req.output_ids_through_stop) for req in reqs] == [20, 6]
    return ring


def test_the_boot_says_what_serves(engine, lines):
    ring = served(engine)

    said = {name: ring.boot[name] for name in ("engine", "engine_version", "target", "draft")}
    assert said == {
        "engine": "sglang",
        "engine_version": "0.5.23",
        "target": "org/target",
        "draft": "org/draft",
    }
    assert (ring.boot["method"], ring.boot["k_max"], ring.boot["quantisation"]) == (
        "eagle",
        3,
        "bfloat16",
    )
    assert (ring.boot["kv_bytes_per_token"], ring.boot["layers"]) == (128, 4)
    assert lines() == []


@pytest.mark.parametrize(
    ("algorithm", "method", "k", "draft"),
    [("NONE", "none", 0, None), ("NGRAM", "ngram", 3, None), ("STANDALONE", "draft_model", 3, "x")],
)
def test_the_method_is_called_as_it_is_elsewhere(engine, algorithm, method, k, draft):
    boot = served(engine, algorithm=algorithm).boot

    assert (boot["method"], boot["k_max"], bool(boot["draft"])) == (method, k, bool(draft))


def test_adaptive_speculation_counts_with_its_longest_draft(engine):
    class Controller:
        candidate_steps = (0, 1, 7)

    boot = served(engine, adaptive=Controller()).boot

    assert (boot["k_max"], boot["k_schedule"]) == (7, "adaptive, 0 1 7")


@pytest.mark.parametrize("value", [None, "off"])
def test_without_a_directory_for_rings_nothing_is_touched(engine, monkeypatch, lines, value):
    monkeypatch.delenv("SPECSCOPE_RINGS")
    if value:
        monkeypatch.setenv("SPECSCOPE_RINGS", value)
    scheduler = importlib.import_module("sglang.srt.managers.scheduler").Scheduler
    before = dict(vars(scheduler))

    ring = served(engine)

    assert (ring, lines(), dict(vars(scheduler))) == (None, [], before)


def test_in_a_process_without_sglang_registering_is_silent_but_for_a_line(monkeypatch, lines):
    monkeypatch.setenv("SPECSCOPE_RINGS", "/nowhere")

    register()

    (line,) = lines()
    assert "serving goes on" in line


def test_one_of_the_ranks_that_step_together_records(engine, lines):
    engine.bags["parallel"].attn_tp_rank = 1

    assert served(engine) is None
    assert lines() == []


def refused_by(**bags):
    def change(engine, monkeypatch):
        for name, values in bags.items():
            vars(engine.bags[name]).update(values)

    return change


def refused_by_model(engine, monkeypatch):
    module = importlib.import_module("sglang.srt.managers.scheduler")
    init = module.Scheduler.__init__

    def __init__(self, server_args, port_args):  # noqa: N807
        init(self, server_args, port_args)
        self.is_generation = False

    monkeypatch.setattr(module.Scheduler, "__init__", __init__)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (refused_by(parallel={"pp_size": 2}), "pipeline"),
        (refused_by(disagg={"disaggregation_mode": "decode"}), "disaggregated"),
        (refused_by_model, "does not generate"),
        (lambda *_: None, "DFLASH"),
    ],
)
def test_what_is_not_known_is_refused_with_a_sentence(engine, monkeypatch, lines, change, why):
    change(engine, monkeypatch)

    ring = served(engine, algorithm="DFLASH" if why == "DFLASH" else "EAGLE")

    (line,) = lines()
    assert ring is None
    assert why in line


def test_another_version_with_the_same_methods_is_recorded_and_named(engine, sglang, lines):
    sglang.__version__ = "0.6.1"

    ring = served(engine)

    (line,) = lines()
    assert "0.6.1" in line
    assert ring.boot["engine_version"] == "0.6.1"
    assert len(ring.ends) == 2


@pytest.mark.parametrize("name", ["run_batch", "process_batch_result", "send_abort_output"])
def test_an_engine_without_one_of_the_methods_serves_unhooked(engine, sglang, lines, name):
    scheduler = importlib.import_module("sglang.srt.managers.scheduler").Scheduler
    method = getattr(scheduler, name)
    delattr(scheduler, name)
    register()
    setattr(scheduler, name, method)

    reqs = [engine.request("a")]
    ring = engine.serve(*reqs, scheduler=engine.build())

    (line,) = lines()
    assert ring is None
    assert f"has no Scheduler.{name}" in line
    assert len(reqs[0].output_ids) == 20 or reqs[0].finished()


def test_an_engine_whose_method_takes_something_else_serves_unhooked(engine, monkeypatch, lines):
    scheduler = importlib.import_module("sglang.srt.managers.scheduler").Scheduler
    monkeypatch.setattr(scheduler, "process_batch_result", lambda self, outcome, batch: None)

    register()

    (line,) = lines()
    assert "process_batch_result takes self, outcome, batch, not result" in line


def test_a_worker_that_is_not_as_known_costs_the_times_and_nothing_else(engine, monkeypatch, lines):
    module = importlib.import_module("sglang.srt.speculative.eagle_worker_v2")

    def draft(self, a_batch, *, with_topology=False):
        pass

    monkeypatch.setattr(module.EagleDraftWorker, "draft", draft)

    ring = served(engine)

    (line,) = lines()
    assert "EagleDraftWorker.draft takes self, a_batch" in line
    assert all(math.isnan(r.verify_us) and math.isnan(r.idle_us) for r in ring.rounds)
    assert all(r.wall_us > 0 for r in ring.rounds)
    assert sum(sum(r.emitted) for r in ring.rounds) == 19 + 5


def test_a_worker_that_another_plug_in_went_around_too_late_is_said(engine, lines):
    scheduler = engine.start()
    second = engine.build()  # its workers are of the same classes, gone around already

    assert scheduler._specscope
    assert second._specscope
    assert ["did not let us" in line for line in lines()] == [True]


def test_a_directory_that_is_not_there_is_said_and_served(engine, monkeypatch, lines):
    monkeypatch.setenv("SPECSCOPE_RINGS", str(engine.directory / "missing" / "deeper"))

    assert served(engine) is None
    (line,) = lines()
    assert "serving goes on" in line


def test_a_device_without_a_clock_costs_the_times_and_nothing_else(engine, monkeypatch, lines):
    scheduler = importlib.import_module("sglang.srt.managers.scheduler").Scheduler
    monkeypatch.setattr(scheduler, "device", "npu", raising=False)
    init = scheduler.__init__

    def __init__(self, server_args, port_args):  # noqa: N807
        init(self, server_args, port_args)
        self.device = "npu"

    monkeypatch.setattr(scheduler, "__init__", __init__)

    ring = served(engine)

    assert ["no clock is known for a npu" in line for line in lines()] == [True]
    assert all(math.isnan(r.verify_us) for r in ring.rounds)
    assert {r.timing_source for r in ring.rounds} == {TimingSource.HOST}
