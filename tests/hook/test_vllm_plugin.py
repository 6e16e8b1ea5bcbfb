"""What vLLM's plug-in does as it is loaded: silent unless asked for, one line where it cannot."""

import logging
import os
import sys
from types import ModuleType, SimpleNamespace

import pytest

from specscope_hook.adapters import vllm as adapter
from specscope_hook.adapters.vllm import register
from specscope_hook.adapters.vllm_lengths import LEVERS


class Scheduler:
    """The methods that are wrapped, with vLLM's parameters."""

    def __init__(self, vllm_config):
        self.vllm_config = vllm_config

    def update_from_output(self, scheduler_output, model_runner_output):
        return "updated"

    def schedule(self, throttle_prefills=False):
        return "scheduled"

    def get_grammar_bitmask(self, scheduler_output):
        return "bitmask"

    def add_request(self, request):
        return "added"

    def finish_requests(self, request_ids, finished_status):
        return "finished"

    def update_draft_token_ids(self, draft_token_ids):
        return "drafts"

    def _update_after_schedule(self, scheduler_output):
        return "settled"


class Worker:
    """Of a worker's wrapper, the method after which its runner is wrapped."""

    def initialize_from_config(self, kv_cache_configs):
        return "initialized"


@pytest.fixture
def engine(monkeypatch):
    """A vLLM of these classes, as the plug-in imports it; its version may be changed."""
    scheduler = type("Scheduler", (Scheduler,), dict(vars(Scheduler)))
    worker = type("WorkerWrapperBase", (Worker,), dict(vars(Worker)))
    found = ModuleType("vllm")
    found.__version__ = "0.32.0"
    modules = {
        "vllm": found,
        "vllm.v1": ModuleType("v1"),
        "vllm.v1.core": ModuleType("core"),
        "vllm.v1.core.sched": ModuleType("sched"),
        "vllm.v1.core.sched.scheduler": SimpleNamespace(Scheduler=scheduler),
        "vllm.v1.worker": ModuleType("worker"),
        "vllm.v1.worker.worker_base": SimpleNamespace(WorkerWrapperBase=worker),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return SimpleNamespace(module=found, scheduler=scheduler, worker=worker)


@pytest.fixture
def rings(monkeypatch, tmp_path):
    monkeypatch.setenv("SPECSCOPE_RINGS", str(tmp_path))
    monkeypatch.setenv("VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY", "")  # what the plug-in changes
    return tmp_path


def untouched(engine):
    return not hasattr(engine.scheduler, "_specscope") and not any(
        hasattr(method, "__wrapped__") for method in vars(engine.scheduler).values()
    )


def lines(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_without_the_variable_nothing_is_touched_and_nothing_said(engine, caplog, monkeypatch):
    monkeypatch.delenv("SPECSCOPE_RINGS", raising=False)

    register()

    assert untouched(engine)
    assert lines(caplog) == []


def test_every_method_that_is_checked_is_wrapped_once_and_those_of_a_policy_not_yet(engine, rings):
    register()
    register()

    for name in LEVERS:
        assert vars(engine.scheduler)[name] is vars(Scheduler)[name]
    for name in set(adapter._SCHEDULER) - set(LEVERS):
        wrapped = vars(engine.scheduler)[name]
        assert wrapped.__wrapped__ is vars(Scheduler)[name], name
    assert (
        engine.worker.initialize_from_config.__wrapped__ is vars(Worker)["initialize_from_config"]
    )


def test_a_scheduler_that_cannot_be_recorded_serves_as_before_and_one_line_says_so(
    engine, rings, caplog
):
    register()
    scheduler = engine.scheduler("a configuration that is none")

    assert scheduler.schedule() == "scheduled"
    assert scheduler.update_from_output(None, None) == "updated"
    assert scheduler.get_grammar_bitmask(None) == "bitmask"
    assert scheduler.add_request(None) == "added"
    assert scheduler.finish_requests(None, None) == "finished"
    assert scheduler.update_draft_token_ids(None) == "drafts"
    assert scheduler._update_after_schedule(None) == "settled"
    (line,) = lines(caplog)
    assert line.startswith("specscope is not attached, serving goes on: ")


def test_another_version_with_the_same_methods_is_recorded_and_named(engine, rings, caplog):
    engine.module.__version__ = "0.33.0"

    register()

    assert not untouched(engine)
    assert lines(caplog) == ["specscope was tested with vLLM 0.32.x, not 0.33.0"]


@pytest.mark.parametrize("name", [*adapter._SCHEDULER, *adapter._WORKER])
def test_a_version_that_lacks_a_method_is_left_alone_and_one_line_names_it(
    engine, rings, caplog, monkeypatch, name
):
    owner = engine.scheduler if name in adapter._SCHEDULER else engine.worker
    for each in (owner, *owner.__bases__):
        monkeypatch.delattr(each, name)
    engine.module.__version__ = "1.0"

    register()

    assert not hasattr(engine.scheduler, "_specscope")
    (line,) = lines(caplog)
    assert line.startswith("specscope is not attached, serving goes on: vLLM 1.0 has no ")
    assert f"{owner.__name__}.{name}" in line


@pytest.mark.parametrize(
    ("setting", "value"), [("SPECSCOPE_RING_BYTES", "much"), ("SPECSCOPE_REQUEST_K", "perhaps")]
)
def test_a_setting_that_means_nothing_is_one_line(
    engine, rings, caplog, monkeypatch, setting, value
):
    monkeypatch.setenv(setting, value)

    register()

    assert untouched(engine)
    (line,) = lines(caplog)
    assert setting in line
    assert "serving goes on" in line


def test_an_engine_that_is_not_the_one_we_know_is_one_line(engine, rings, caplog, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm.v1.worker.worker_base", None)

    register()

    assert untouched(engine)
    (line,) = lines(caplog)
    assert "serving goes on" in line


def test_each_engine_ends_its_own_ring_first_and_its_shutdown_is_wrapped_once(
    engine, rings, monkeypatch
):
    class EngineCore:
        def __init__(self, scheduler):
            self.scheduler = scheduler

        def shutdown(self):
            return list(closed)

    class Probe:
        def __init__(self, scheduler, settings, boot):
            self.number = len(cores)

        def close(self):
            closed.append(self.number)

    closed, cores, original = [], [], EngineCore.shutdown
    monkeypatch.setitem(sys.modules, "vllm.v1.engine", ModuleType("engine"))
    core = SimpleNamespace(EngineCore=EngineCore)
    monkeypatch.setitem(sys.modules, "vllm.v1.engine.core", core)
    monkeypatch.setattr(adapter, "vllm_boot", lambda *_: None)
    monkeypatch.setattr(adapter, "SchedulerProbe", Probe)
    engine.scheduler.kv_cache_config = None
    register()
    for _ in range(3):
        cores.append(EngineCore(engine.scheduler(None)))

    assert cores[1].shutdown() == [1]
    assert cores[0].shutdown() == [1, 0]
    assert EngineCore.shutdown.__wrapped__ is original


@pytest.mark.parametrize(
    ("before", "after"), [("", "SPECSCOPE_"), ("AWS_", "AWS_,SPECSCOPE_"), ("SPECSCOPE_",) * 2]
)
def test_ray_workers_get_the_settings_of_the_hook(engine, rings, monkeypatch, before, after):
    monkeypatch.setenv("VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY", before)

    register()

    assert os.environ["VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY"] == after
