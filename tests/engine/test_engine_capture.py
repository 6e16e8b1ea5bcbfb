"""What is captured before the first request, and what counts as a capture that failed.

CUDA's side of a capture is played by a few stand-ins: a GPU is not at hand.
"""

from types import SimpleNamespace

import pytest
import torch
from engine.test_engine_graphs import LENGTHS, Unread, captured, engine_of, params_of
from engine.tiny_models import Record, prompts, random_gate, run

from specscope.engine.api import SamplingParams, fixed_gate
from specscope.engine.decode import engine as engine_module
from specscope.engine.decode import graphs as graphs_module
from specscope.engine.decode import in_flight as rounds_module
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.drafters.ngram import NgramDrafter
from specscope.engine.decode.engine import Engine
from specscope.engine.decode.graphs import (
    CaptureFailed,
    CudaReplay,
    EagerReplay,
    Graphs,
    graphs_for,
)
from specscope.engine.decode.timing import CudaTimer, HostTimer
from specscope.engine.errors import BadSetting
from specscope.engine.model.layout import Buckets

__all__ = ["captured"]  # a fixture


def accelerator_error(code, text="CUDA error: something"):
    error = torch.AcceleratorError(text)
    error.error_code = code
    return error


@pytest.fixture
def cuda(monkeypatch):
    """As much of torch.cuda as a capture touches; the last end of it raises what a test says."""

    class Capture:
        end = None
        mode = None

        def __init__(self, graph, pool, stream, capture_error_mode):
            Capture.mode, Capture.on = capture_error_mode, (pool, stream)

        def __enter__(self):
            Capture.stream = "side"

        def __exit__(self, *_):
            if Capture.end is not None:
                raise Capture.end
            Capture.stream = "main"

    Capture.stream = "main"
    monkeypatch.setattr(torch.cuda, "graph", Capture)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: Capture.stream)
    monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: setattr(Capture, "stream", stream))
    return Capture


SPOILT = accelerator_error(901, "CUDA error: operation failed due to a previous error")


@pytest.mark.parametrize(
    ("raised", "at_the_end", "seen"),
    [
        (accelerator_error(900), SPOILT, CaptureFailed),
        (accelerator_error(906), None, CaptureFailed),
        (None, SPOILT, CaptureFailed),
        (RuntimeError("Cannot copy between CPU and CUDA tensors during capture"), SPOILT,
         CaptureFailed),
        (accelerator_error(710, "device-side assert while capturing"), SPOILT,
         torch.AcceleratorError),
        (torch.OutOfMemoryError("out of memory, some of it in captured graphs"), None,
         torch.OutOfMemoryError),
        (torch.OutOfMemoryError("out of memory"), SPOILT, torch.OutOfMemoryError),
        (RuntimeError("the size of tensor a must match"), SPOILT, RuntimeError),
        (None, accelerator_error(700), torch.AcceleratorError),
    ],
)  # fmt: skip
def test_only_what_may_not_be_captured_counts_as_such(cuda, raised, at_the_end, seen):
    def work(parts):
        if raised is not None:
            raise raised

    cuda.end = at_the_end
    with pytest.raises((RuntimeError, CaptureFailed)) as caught:
        CudaReplay(work)

    assert caught.type is seen
    assert seen is CaptureFailed or caught.value is (raised or at_the_end)
    assert cuda.stream == "main"
    assert cuda.mode == "thread_local"  # a server's other threads go on


def test_all_graphs_of_an_engine_share_a_pool_and_a_stream_of_its_own_gpu(cuda, monkeypatch):
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: f"a stream of {device}")
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    graphs = graphs_for("cuda:1", Buckets(4, 4, 64), HostTimer())
    used = []

    for _ in range(2):
        graphs._capture(lambda parts: ())
        used.append(cuda.on)

    assert used[0] == used[1]
    assert used[0][1] == "a stream of cuda:1"


WARM = [SamplingParams(), SamplingParams(1.0)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("k", [0, 3])
def test_what_was_warmed_up_is_not_captured_while_requests_wait(
    target, draft, k, temperature, captured
):
    def life(graphs):
        record = Record()
        engine = Engine(
            target, ModelDrafter(draft), k_max=4, slots=5, capacity=90, gate=fixed_gate(k),
            observers=[record], graphs=graphs,
        )  # fmt: skip
        shapes = engine.warm_up({k}, WARM)
        before = len(captured)
        for index, text in enumerate(prompts((4, 50, 2, 12, 6, 30, 1))):
            engine.submit(str(index), text, SamplingParams(temperature, seed=index))
        while engine.step():
            pass
        return record.texts, shapes, before, len(captured)

    plain, none, _, _ = life(False)
    texts, shapes, before, after = life(True)

    assert none == 0
    # 1, 2, 4 or 5 rows, of 64 positions or all 96, greedy or sampled: verified, and with a draft
    # two kinds of drafting steps. Noise has no extent, and greedy rounds have no noise.
    assert shapes == 4 * 2 * 2 * (3 if k else 1) + 4
    assert after == before == shapes
    assert texts == plain


def test_the_largest_graphs_are_captured_first_and_room_is_left_for_others(
    target, draft, monkeypatch
):
    engine = Engine(
        target, ModelDrafter(draft), k_max=4, slots=6, capacity=90, gate=fixed_gate(4), graphs=True
    )
    monkeypatch.setattr(rounds_module, "MOST_SHAPES", 24)

    assert 12 <= engine.warm_up({0, 4}) <= 14

    verified = [key[0] for key in engine.graphs.shapes if key[0][0] == "verify"]
    sizes = [(shape.rows, extent, shape.tokens) for _, shape, extent, _ in verified]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == (6, 96, 30)


def test_a_warm_up_captures_a_copy_for_every_round_that_may_be_unread(target, draft, monkeypatch):
    monkeypatch.setattr(graphs_module, "EagerReplay", Unread)
    Unread.made.clear()
    engine = Engine(
        target, ModelDrafter(draft), k_max=2, slots=1, capacity=60, gate=fixed_gate(2), depth=1,
        graphs=True,
    )  # fmt: skip

    shapes = engine.warm_up({2}, rows=[1])

    # The first drafting step and verification once, noise in no greedy round.
    assert shapes == len({id(entry) for entry in engine.graphs.shapes.values()}) == 3
    assert len(Unread.made) == 2 * shapes
    assert {made.replays for made in Unread.made} == {1}


def test_prompt_lookup_is_warmed_up_with_made_up_proposals(target, captured):
    record = Record()
    engine = Engine(
        target, NgramDrafter(3, 1), k_max=3, slots=1, capacity=60, gate=fixed_gate(3),
        observers=[record], graphs=True,
    )  # fmt: skip
    engine.warm_up({3, 0})
    before, eager = len(captured), engine.graphs.eager
    engine.submit("0", [7] * 20, SamplingParams(max_new_tokens=30))
    while engine.step():
        pass

    assert max(k for report in record.rounds for k in report.k) == 3
    # Of a mixture of 0 and 3, one row may bring any number of tokens up to 4.
    assert before == len(captured)
    assert engine.graphs.eager == eager


def test_a_warm_up_leaves_nothing_behind_that_an_earlier_life_or_a_later_one_could_see(
    target, draft
):
    def life(engine, record):
        for index, text in enumerate(prompts((4, 50, 2, 12, 6))):
            engine.submit(f"{index}", text, SamplingParams(1.0, seed=index, max_new_tokens=20))
        for _ in range(3):
            engine.step()
        engine.abort("1")  # on the device its row still counts as alive
        while engine.step():
            pass
        return dict(record.texts)

    record = Record()
    engine = Engine(
        target, ModelDrafter(draft), k_max=4, slots=3, capacity=90, gate=fixed_gate(4),
        observers=[record], graphs=True,
    )  # fmt: skip
    first = life(engine, record)
    engine.warm_up({4}, WARM)
    assert (engine.state.lengths == 1).all()

    assert life(engine, record) == first


def test_graphs_are_not_captured_under_running_requests(target, draft):
    engine = engine_of(target, draft)

    with pytest.raises(BadSetting, match="before the first request"):
        engine.warm_up({4})


def test_no_round_draws_from_a_generator_that_a_graph_would_have_to_know(target, draft):
    before = torch.random.get_rng_state()

    run(target, ModelDrafter(draft), prompts(LENGTHS), params_of("mixed"), gate=3)

    assert torch.random.get_rng_state().equal(before)


def test_an_engine_works_on_its_own_device_whatever_the_threads_is(target, draft, monkeypatch):
    entered = []

    class Device:
        def __enter__(self):
            entered.append(True)

        def __exit__(self, *_):
            entered.pop()

    monkeypatch.setattr(engine_module, "on_device", lambda device: Device())
    seen = []

    def gate(sequences, _):
        seen.append(len(entered))
        return [2] * len(sequences)

    run(target, ModelDrafter(draft), prompts((3, 5)), SamplingParams(), gate=gate)

    assert set(seen) == {1}
    assert not entered


class LateEvent:
    """A CUDA event of which one sees only at the third look that it has passed.

    One inside a graph must be read before it is recorded again.
    """

    now_us = 0
    made = 0

    def __init__(self, enable_timing, external=False):
        LateEvent.made += 1
        self.external, self.unread = external, False

    def record(self):
        assert not (self.external and self.unread)
        self.unread = True
        LateEvent.now_us += 10
        self.at, self.looks = LateEvent.now_us, 0

    def query(self):
        self.looks += 1
        return self.looks > 2

    def elapsed_time(self, later):
        self.unread = later.unread = False
        return 1e-3 * (later.at - self.at)


class PlayedReplay(CudaReplay):
    """A graph that is played: capturing marks its parts, replaying does the work."""

    def __init__(self, work):
        def capture(parts):
            for name in ("verify", "sample"):
                with parts.part(name):
                    pass
            return ()

        super().__init__(capture)
        for mark in self.inside.marks:
            mark.start.unread = mark.stop.unread = False  # a capture records nothing
        self.eager, self.graph = EagerReplay(work), self

    def replay(self, timer=None):
        if timer is not None:
            return super().replay(timer)
        # As the graph: its nodes record the events, and its outputs are written.
        for mark in self.inside.marks:
            mark.start.record()
            mark.stop.record()
        self.outputs = self.eager.replay(HostTimer())
        return None


def in_graphs(engine):
    """Events that belong to graphs."""
    copies = [copy for shape in engine.graphs.shapes.values() for copy in shape.copies]
    return sum(2 * len(copy.inside.marks) for copy in copies)


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_rounds_on_a_played_gpu_say_the_same_and_their_times_add_up(
    target, draft, depth, warm, cuda, monkeypatch
):
    texts, params = prompts(LENGTHS), params_of("mixed")
    plain = run(target, ModelDrafter(draft), texts, params, gate=random_gate(4), depth=depth)
    LateEvent.now_us = LateEvent.made = 0
    monkeypatch.setattr(torch.cuda, "Event", LateEvent)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=lambda: None))
    monkeypatch.setattr(rounds_module, "timer_for", lambda *_: CudaTimer())
    monkeypatch.setattr(
        rounds_module, "graphs_for", lambda _, buckets, timer, __: Graphs(
            buckets, PlayedReplay, timer
        ),
    )  # fmt: skip
    record = Record()
    engine = Engine(
        target, ModelDrafter(draft), k_max=4, slots=4, capacity=120, gate=random_gate(4),
        observers=[record], depth=depth,
    )  # fmt: skip
    if warm:
        engine.warm_up({0, 4}, [SamplingParams(), SamplingParams(1.0, mode="rejection")])
    began, made, before = LateEvent.now_us, LateEvent.made, in_graphs(engine)
    for index, text in enumerate(texts):
        engine.submit(str(index), text, params(index))
    for _ in range(500):
        engine.step()

    assert record.texts == plain.texts
    assert {report.timing_source for report in record.rounds} == {"cuda"}
    for report in record.rounds:
        parts = (report.prefill_us, report.catchup_us, report.draft_us, report.verify_us,
                 report.sample_us, report.idle_us, report.launch_us)  # fmt: skip
        assert min(parts) >= 0
        assert sum(parts) - report.launch_us == pytest.approx(report.wall_us)
        assert report.launch_us <= report.idle_us + 1e-6
    walls = sum(report.wall_us for report in record.rounds)
    lasted = LateEvent.now_us - began - 10  # from the first event to the last
    assert walls == pytest.approx(lasted) if depth == 0 else walls <= lasted + 1e-6
    own = LateEvent.made - made - (in_graphs(engine) - before)
    assert own <= 40 * (depth + 1)  # whatever is not in a graph is used again
    assert not engine.timer.open
    assert engine.graphs.replayed > 100 or not warm
