"""A newer engine changes the parameters of a method that an adapter wraps: serving goes on.

Each wrapped method of each adapter meets each change. Either the wrapper still reads the right
values, or the adapter refuses the engine with one line; the engine's own call never fails.
"""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import pytest

from specscope_hook.adapters import sglang, sglang_worker, vllm, vllm_lengths, vllm_worker
from specscope_hook.adapters.vllm_worker import WorkerProbe
from specscope_hook.errors import NotSupported
from specscope_hook.plugin import read_arguments
from specscope_hook.settings import HookSettings
from specscope_hook.timers import HostTimer

VLLM = {
    "update_from_output": ["scheduler_output", "model_runner_output"],
    "schedule": [],
    "get_grammar_bitmask": ["scheduler_output"],
    "add_request": ["request"],
    "finish_requests": ["request_ids", "finished_status"],
    "update_draft_token_ids": ["draft_token_ids"],
    "_update_after_schedule": ["scheduler_output"],
}
SGLANG = {
    "__init__": ["server_args", "port_args"],
    "run_event_loop": [],
    "_add_request_to_queue": ["req", "is_retracted"],
    "send_abort_output": ["abort_req", "req"],
    "run_batch": ["batch", "pp_proxy_tensors"],
    "process_batch_result": ["batch", "result"],
    "on_idle": [],
}
SGLANG_WORKERS = {
    "forward_batch_generation": ["batch"],
    "verify": ["batch"],
    "draft": ["batch"],
    "_draft_extend_for_decode": ["batch", "batch_result"],
    "_prepare_for_speculative_decoding": ["batch"],
}
RUNNER = {
    "execute_model": ["scheduler_output", "intermediate_tensors"],
    "sample_tokens": ["grammar_output"],
    "_model_forward": ["input_ids"],
    "propose_draft_token_ids": ["output"],
}


def added_last(names):
    return ", ".join([*names, "added=None"])


def added_first(names):
    return ", ".join(["added", *names])


def added_by_name_only(names):
    return ", ".join([*names, "*", "added"])


def reordered(names):
    return ", ".join(reversed(names))


def renamed(names):
    return ", ".join(f"new_{name}" for name in names)


def last_removed(names):
    return ", ".join(names[:-1])


def positional_only(names):
    return ", ".join([*names, "/"] if names else [])


CHANGES = [
    added_last,
    added_first,
    added_by_name_only,
    reordered,
    renamed,
    last_removed,
    positional_only,
]


class Output:
    """Of vLLM's runner, as far as a wrapper looks at it itself."""

    sampled_token_ids = ()


VALUES = {
    name: object() for names in (VLLM, SGLANG, RUNNER) for of in names.values() for name in of
} | {"model_runner_output": Output()}


def a_method(name, parameters, bound=False):
    """A method that gives back all that it was called with, by its own names."""
    declared = ", ".join(filter(None, ["" if bound else "self", parameters]))
    space = {}
    exec(f"def {name}({declared}): return dict(locals())", space)
    return space[name]


def calls_of(method, bound=False):
    """The calls that a newer engine may make: by position as far as possible, and by name."""
    parameters = list(inspect.signature(method).parameters.values())[0 if bound else 1 :]
    args = [value_of(p.name) for p in parameters if p.kind is not p.KEYWORD_ONLY]
    only = {p.name: value_of(p.name) for p in parameters if p.kind is p.KEYWORD_ONLY}
    yield args, only
    if not any(p.kind is p.POSITIONAL_ONLY for p in parameters):
        yield [], {p.name: value_of(p.name) for p in parameters}


def value_of(name):
    return VALUES.setdefault(name.removeprefix("new_"), object())


def refusal(check, owner, methods):
    """Why an adapter refuses this class; nothing if it does not."""
    try:
        check(owner, methods, "9.9")
    except NotSupported as error:
        return str(error)
    return ""


class Seen:
    """A probe that keeps what it is told; like the real one, it never raises."""

    def __init__(self):
        self.values = []

    def __getattr__(self, name):
        return lambda *values: self.values.extend(values)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", VLLM)
def test_vllms_scheduler_serves_whatever_became_of_a_method(name, change):
    methods = {each: a_method(each, ", ".join(names)) for each, names in VLLM.items()}
    methods[name] = a_method(name, change(VLLM[name]))
    scheduler = type("Scheduler", (), {"_specscope": False, **methods})
    if reason := refusal(vllm.check, scheduler, vllm._SCHEDULER):
        assert f"Scheduler.{name}" in reason
        assert set(vllm._SCHEDULER[name]) - set(inspect.signature(methods[name]).parameters)
        return
    vllm._wrap_scheduler(scheduler)
    for probe in (False, Seen()):
        engine = scheduler()
        engine._specscope = probe
        lever = vllm_lengths.LEVERS.get(name)
        if probe and lever:
            levers = vllm_lengths.Lengths(engine, None, None, lambda what, call, value: call(value))
            levers._before(name, "", probe.seen)
        for args, kwargs in calls_of(methods[name]):
            plain = methods[name](engine, *args, **kwargs)
            assert getattr(engine, name)(*args, **kwargs) == plain
            if probe:
                read = [value_of(each) for each in vllm._SCHEDULER[name]]
                told = [v for v in probe.values if not isinstance(v, dict | bytes)]
                assert list(dict.fromkeys(told)) == sorted(read, key=told.index)
                probe.values.clear()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", RUNNER)
def test_vllms_model_runner_serves_whatever_became_of_a_method(name, change, caplog):
    runner = SimpleNamespace(device=SimpleNamespace(type="cpu"))
    for each, names in RUNNER.items():
        parameters = change(names) if each == name else ", ".join(names)
        setattr(runner, each, a_method(each, parameters, bound=True))
    before = dict(vars(runner))

    WorkerProbe.attach(SimpleNamespace(model_runner=runner))

    hooked = getattr(runner, name) is not before[name]
    assert len(caplog.records) == (0 if hooked else 1)
    assert hooked or vars(runner) == before  # all of them, or none
    for args, kwargs in calls_of(before[name], bound=True):
        assert getattr(runner, name)(*args, **kwargs) == before[name](*args, **kwargs)


def test_a_step_is_seen_wherever_its_plan_stands_among_the_parameters():
    plan = SimpleNamespace(total_num_scheduled_tokens=1)
    for parameters, args, kwargs in (
        ("scheduler_output, dummy_run=False", (plan,), {}),
        ("added, scheduler_output, dummy_run=False", (None, plan), {}),
        ("dummy_run, *, scheduler_output", (False,), {"scheduler_output": plan}),
    ):
        steps = []
        original = a_method("execute_model", parameters, bound=True)
        vllm_worker._steps_only(original, lambda *a, to=steps, **k: to.append((a, k)))(
            *args, **kwargs
        )
        assert steps == [(args, kwargs)]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", SGLANG)
def test_sglangs_scheduler_serves_whatever_became_of_a_method(name, change, tmp_path, monkeypatch):
    monkeypatch.setattr(sglang, "_attach", lambda scheduler, settings: None)
    methods = {each: a_method(each, ", ".join(names)) for each, names in SGLANG.items()}
    methods[name] = a_method(name, change(SGLANG[name]))
    scheduler = type("Scheduler", (), methods)
    settings = HookSettings(tmp_path, "r0", 1 << 20)
    if reason := refusal(sglang.check, scheduler, sglang.METHODS):
        assert f"Scheduler.{name}" in reason
        assert set(sglang.METHODS[name]) - set(inspect.signature(methods[name]).parameters)
        return
    hook = sglang._hooks(scheduler, settings)[name]
    for probe in (False, Seen()):
        engine = SimpleNamespace(_specscope=probe)
        for args, kwargs in calls_of(methods[name]):
            plain = methods[name](engine, *args, **kwargs)
            given = hook(methods[name], engine, *args, **kwargs)
            assert given == (None if name == "__init__" else plain)
            if probe:
                read = [value_of(each) for each in sglang.METHODS[name]]
                told = [value for value in probe.values if not isinstance(value, dict)]
                assert all(any(value is each for each in told) for value in read)
                probe.values.clear()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", SGLANG_WORKERS)
def test_sglangs_workers_serve_whatever_became_of_a_method(name, change):
    method = a_method(name, change(SGLANG_WORKERS[name]))
    probe = object.__new__(sglang_worker.WorkerProbe)
    worker = object()
    probe.timer, probe._target, probe._worker = HostTimer(), worker, worker
    probe._guard = lambda what, call, *args: call(*args)
    probe._stepping = probe._decoding = True
    probe._verifying = False
    around = [probe._around_draft, probe._around_verify, probe._around_target, probe._around_whole]
    for hook in around:
        for args, kwargs in calls_of(method):
            assert hook(method, worker, *args, **kwargs) == method(worker, *args, **kwargs)


def test_a_parameter_that_a_call_leaves_out_reads_as_its_default():
    def method(self, plan, dummy_run=True, *, later=3):
        return None

    read = read_arguments(method, "plan", "dummy_run", "later")

    assert read(("self", "plan"), {}) == ["plan", True, 3]
    assert read(("self",), {"later": 4, "plan": 1}) == [1, True, 4]
    assert read(("self",), {}) == [None, True, 3]


@pytest.mark.parametrize("parameters", ["*args", "**plan", "*plan", "other"])
def test_a_parameter_that_a_method_does_not_name_is_refused(parameters):
    with pytest.raises(NotSupported, match="not plan"):
        read_arguments(a_method("schedule", parameters), "plan")


def test_a_method_without_a_signature_is_refused():
    unreadable = SimpleNamespace(__signature__="none")

    with pytest.raises(NotSupported, match="no signature"):
        read_arguments(unreadable, "plan")
