"""The vLLM adapter in a worker: stand-ins with the real runners' method names and order.

The V1 runner itself is run in tests/vllm; of the V2 runner only this shape has been run.
"""

import math
import pickle
from types import SimpleNamespace

import pytest
from hook_fakes import ManualClock

from specscope_hook.adapters.vllm_adaptive import AdmittedDrafts
from specscope_hook.adapters.vllm_worker import WorkerProbe
from specscope_hook.timers import HostTimer, StepReader


def a_plan(tokens=5):
    return SimpleNamespace(total_num_scheduled_tokens=tokens)


def an_output():
    return SimpleNamespace(req_ids=["a"], sampled_token_ids=[[1]])


class FirstRunner:
    """V1: drafts after sampling and before or after its bookkeeping."""

    def __init__(self, clock):
        self.clock = clock

    def execute_model(self, scheduler_output, intermediate_tensors=None):
        self.clock.pass_ms(1)
        if scheduler_output.total_num_scheduled_tokens:
            self._model_forward()
            self.clock.pass_ms(2)

    def _model_forward(self):
        self.clock.pass_ms(10)

    def sample_tokens(self, grammar_output):
        self._sample(None, None)
        self.propose_draft_token_ids(None)
        self._bookkeeping_sync(None)
        return an_output()

    def _sample(self, logits, metadata):
        self.clock.pass_ms(3)

    def _bookkeeping_sync(self, output):
        self.clock.pass_ms(4)

    def propose_draft_token_ids(self, output):
        self.clock.pass_ms(5)


class SecondRunner:
    """V2: a speculator of its own, and an output that is asked for later."""

    def __init__(self, clock):
        self.clock = clock
        self.speculator = SimpleNamespace(propose=lambda: clock.pass_ms(5))

    def execute_model(self, scheduler_output, dummy_run=False):
        self.clock.pass_ms(12)

    def sample_tokens(self, grammar_output):
        self.sample()
        self.speculator.propose()
        later = an_output()
        return SimpleNamespace(get_output=lambda: later)

    def sample(self):
        self.clock.pass_ms(7)


@pytest.fixture
def clock():
    return ManualClock()


def carried(output):
    """An output's tag, its steps in microseconds, the source and the fault, as the scheduler reads
    them."""
    tag, steps, source, fault, _ = output._specscope
    reader = StepReader()
    return tag, [tuple(reader.read(step)) for step in steps], source, fault


def probed(runner, clock):
    probe = WorkerProbe(runner, HostTimer(clock))
    probe._wrap_runner()
    return probe


def test_the_first_runners_step_is_timed_from_its_forward_pass_to_its_logits(clock):
    runner = FirstRunner(clock)
    probed(runner, clock)

    reader, known = StepReader(), []
    for _ in range(2):
        runner.execute_model(a_plan())
        tag, steps, source, fault, _ = runner.sample_tokens(None)._specscope
        known += map(reader.read, steps)

    assert (tag, source, fault) == (2, 0, "")
    assert [step.tag for step in known] == [1, 2]
    assert math.isnan(known[0].idle_us)
    assert known[1][1:] == (5000, 12_000, 7000, 1000)


def test_what_crosses_a_process_is_plain_values_and_nothing_that_is_looked_up_by_name(clock):
    runner = FirstRunner(clock)
    probed(runner, clock)
    runner.execute_model(a_plan())

    sent = pickle.dumps(runner.sample_tokens(None)._specscope)

    assert b"specscope" not in sent
    assert pickle.loads(sent)[0] == 1


def test_the_second_runners_numbers_ride_on_the_output_that_is_asked_for_later(clock):
    runner = SecondRunner(clock)
    probed(runner, clock)

    runner.execute_model(a_plan())
    output = runner.sample_tokens(None)

    assert not hasattr(output, "_specscope")
    tag, ((step, draft, verify, sample, _),), _, _ = carried(output.get_output())
    assert (tag, step) == (1, 1)
    assert (draft, verify, sample) == (5000, 12_000, 7000)


def test_warm_up_and_dummy_batches_are_not_steps(clock):
    first, second = FirstRunner(clock), SecondRunner(clock)
    probed(first, clock)
    probed(second, clock)

    first.execute_model(a_plan(tokens=0))
    output = first.sample_tokens(None)
    second.execute_model(a_plan(), dummy_run=True)
    later = second.sample_tokens(None).get_output()

    assert not hasattr(output, "_specscope")
    assert not hasattr(later, "_specscope")


def test_a_broken_timer_reaches_the_scheduler_as_a_fault_once_and_nothing_else_does(clock):
    runner = FirstRunner(clock)
    timer = HostTimer(clock)

    def broken(*_):
        raise RuntimeError("planted")

    timer.moment = timer.seal = timer.taken = broken
    probe = WorkerProbe(runner, timer)
    probe._wrap_runner()
    outputs = []
    for _ in range(3):
        runner.execute_model(a_plan())
        outputs.append(runner.sample_tokens(None))

    assert "planted" in outputs[0]._specscope[3]
    assert not any(hasattr(output, "_specscope") for output in outputs[1:])


def test_a_runner_that_lacks_a_method_is_left_alone():
    runner = SimpleNamespace(
        device=SimpleNamespace(type="cpu"), execute_model=print, sample_tokens=print
    )

    WorkerProbe.attach(SimpleNamespace(model_runner=runner))

    assert runner.execute_model is runner.sample_tokens is print


def test_a_step_without_a_draft_has_no_draft_time(clock):
    runner = FirstRunner(clock)
    runner.sample_tokens = lambda grammar: (runner._sample(None, None), an_output())[1]
    probed(runner, clock)

    runner.execute_model(a_plan())
    output = runner.sample_tokens(None)

    assert math.isnan(carried(output)[1][0][1])


def test_times_that_no_output_takes_are_not_kept_for_ever(clock):
    runner = FirstRunner(clock)  # a pipeline stage but the last: it has no output to put them on
    inner = runner.sample_tokens
    runner.sample_tokens = lambda grammar: (inner(grammar), None)[1]
    probe = probed(runner, clock)

    for _ in range(1000):
        runner.execute_model(a_plan())
        assert runner.sample_tokens(None) is None

    assert probe.on
    assert len(probe._timer._sealed) < 100


def test_steps_that_come_to_no_end_are_not_kept_for_ever_nor_mixed_with_the_next(clock):
    runner = FirstRunner(clock)
    probe = probed(runner, clock)

    for _ in range(1000):
        runner.execute_model(a_plan())
    kept = len(probe._timer._sealed)
    tag, steps, _, _ = carried(runner.sample_tokens(None))

    assert kept < 100
    assert (tag, steps[-1][2]) == (1000, 12_000)


@pytest.mark.parametrize(
    ("method", "follows", "k", "called"),
    [
        ("ngram", True, 0, False),
        ("ngram", True, 2, True),
        ("ngram", False, 0, True),
        ("draft_model", True, 0, True),
        ("suffix", True, 0, True),
    ],
)
def test_ngram_lookup_alone_is_skipped_at_k_0_and_only_where_policies_are_followed(
    method, follows, k, called
):
    calls = []

    class Runner(FirstRunner):
        def propose_draft_token_ids(self, scheduler_output, sampled_token_ids):
            calls.append(k)
            return [[9] * k for _ in sampled_token_ids]

    runner = Runner(ManualClock())
    runner.speculative_config = SimpleNamespace(method=method)
    WorkerProbe.attach(SimpleNamespace(model_runner=runner), follows=follows)
    plan = SimpleNamespace(total_num_scheduled_tokens=2, num_spec_tokens_to_schedule=k)

    drafts = runner.propose_draft_token_ids(plan, [[1], [2]])

    assert drafts == [[9] * k, [9] * k]
    assert bool(calls) == called


class Counts:
    """A tensor of the device, whose copy holds its values once the device has come so far."""

    def __init__(self, values):
        self.values = values

    def to(self, device, non_blocking):
        assert (device, non_blocking) == ("cpu", True)
        return self

    def tolist(self):
        return self.values


class Manager:
    """vLLM's AdaptiveVerificationManager, as far as it is touched."""

    num_bonus_tokens = 1

    def __init__(self):
        self.ends = [0]

    def reallocate_drafts(self, req_ids, idx_mapping):
        return Counts(self.ends), None, None, None


class Event:
    """One that has happened, or not."""

    def __init__(self, happened):
        self.happened = happened

    def record(self):
        pass

    def query(self):
        return self.happened


@pytest.mark.parametrize("happened", [True, False])
def test_under_adaptive_verification_the_drafts_that_the_target_checks_ride_along(clock, happened):
    runner = SecondRunner(clock)
    manager = runner.adaptive_verification = Manager()
    probe = probed(runner, clock)
    probe._admitted = AdmittedDrafts(manager, lambda: Event(happened))

    manager.ends = [0, 3, 4]
    runner.execute_model(a_plan())
    manager.reallocate_drafts(["a", "b"], idx_mapping=None)
    first = runner.sample_tokens(None)
    runner.execute_model(a_plan())  # of prompts alone: nothing is admitted
    second = runner.sample_tokens(None)

    assert first.get_output()._specscope[4] == ({"a": 2, "b": 0} if happened else None)
    assert second.get_output()._specscope[4] is None


def test_another_manager_is_left_alone_and_times_are_taken_all_the_same(clock, caplog):
    runner = SecondRunner(clock)
    runner.device = SimpleNamespace(type="cpu")
    runner.adaptive_verification = SimpleNamespace(reallocate_drafts=print)

    WorkerProbe.attach(SimpleNamespace(model_runner=runner))

    assert runner.adaptive_verification.reallocate_drafts is print
    assert len(caplog.records) == 1
    assert runner.sample_tokens.__name__ == "timed"
