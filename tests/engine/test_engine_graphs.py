"""Rounds filled up to few shapes and replayed: the same texts, in tensors that keep their place.

A GPU is not at hand: EagerReplay computes where a graph would be replayed, all else is the same.
"""

import random
from typing import ClassVar

import pytest
import torch
from engine.tiny_models import Record, near, prompts, random_gate, run, tiny_model
from hypothesis import given
from hypothesis import strategies as st

from specscope.engine.api import SamplingParams, fixed_gate
from specscope.engine.decode import graphs as graphs_module
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.drafters.ngram import NgramDrafter
from specscope.engine.decode.engine import Engine
from specscope.engine.decode.graphs import CaptureFailed, EagerReplay, Graphs
from specscope.engine.decode.timing import HostTimer
from specscope.engine.model.layout import Buckets, pack

LENGTHS = (1, 2, 3, 5, 9, 14, 30, 7, 2)


def params_of(mode):
    def params(i):
        if mode == "mixed":
            own = ("greedy", "rejection", "coupled")[i % 3]
            return SamplingParams(
                1.0, top_p=(1.0, 0.9)[i % 2], seed=i, max_new_tokens=10 + i, mode=own
            )
        return SamplingParams(1.0, seed=i, max_new_tokens=10 + i, mode=mode)

    return params


CASES = [
    (0, "mixed", 1), (1, "greedy", 0), (3, "coupled", 1), (5, "rejection", 1), (5, "mixed", 0),
    ("random", "greedy", 1), ("random", "mixed", 0), ("random", "mixed", 1),
]  # fmt: skip


@pytest.mark.parametrize(("k", "mode", "depth"), CASES)
def test_replayed_rounds_emit_what_rounds_as_they_are_emit(target, draft, k, mode, depth):
    texts = prompts(LENGTHS)

    plain, replayed = (
        run(
            target, ModelDrafter(draft), texts, params_of(mode), k_max=5, slots=5, depth=depth,
            gate=random_gate(5) if k == "random" else k, graphs=graphs,
        )
        for graphs in (False, True)
    )  # fmt: skip

    assert replayed.texts == plain.texts
    assert [r.accepted for r in replayed.rounds] == [r.accepted for r in plain.rounds]


@pytest.mark.parametrize("depth", [0, 2])
def test_a_host_side_drafter_is_replayed_too(target, depth):
    texts = [[1, 2, 3, 4] * 5, [7] * 9, *prompts((3, 20))]
    params = SamplingParams(max_new_tokens=30)

    plain, replayed = (
        run(target, NgramDrafter(), texts, params, gate=4, depth=depth, graphs=graphs)
        for graphs in (False, True)
    )

    assert replayed.texts == plain.texts
    assert any(sum(report.accepted) for report in plain.rounds)


def engine_of(target, draft, slots=6, k_max=4, gate=None, record=None):
    engine = Engine(
        target, ModelDrafter(draft), k_max=k_max, slots=slots, capacity=90,
        gate=gate or fixed_gate(k_max), observers=[record or Record()], graphs=True,
    )  # fmt: skip
    for index, text in enumerate(prompts((4, 9, 2, 12, 6)[:slots])):
        engine.submit(str(index), text, SamplingParams(1.0, seed=index, max_new_tokens=60))
    return engine


def test_rows_of_nobody_write_into_the_spare_row_alone(target, draft):
    gate = random_gate(4)
    engine = engine_of(target, draft, slots=6, gate=gate)
    for _ in range(4):
        engine.step()
    assert len(engine.rows) == 5
    # The sixth row is free. It is in every round, since five are filled up to six.
    caches = [engine.target.cache, engine.drafter.cache]
    for cache in caches:
        cache.keys[:, 5:] = cache.values[:, 5:] = 1e6
    engine.state.lengths[5], engine.state.room[5] = 7, 43
    before = engine.state.tokens[5, :7].clone()

    for _ in range(6):
        engine.step()

    for cache in caches:
        assert (cache.keys[:, 5] == 1e6).all()
        assert (cache.values[:, 5] == 1e6).all()
        assert (cache.keys[:, 6] != 1e6).any()
    assert engine.state.lengths[5] == 7
    assert engine.state.room[5] == 43
    assert engine.state.tokens[5, :7].equal(before)
    assert engine.state.lengths[6] == 1
    assert engine.state.room[6] == 0


class Counting(EagerReplay):
    """Keeps the graphs in the order in which they are captured."""

    captured: ClassVar[list["Counting"]] = []

    def __init__(self, work):
        super().__init__(work)
        Counting.captured.append(self)


@pytest.fixture
def captured(monkeypatch):
    Counting.captured = []
    monkeypatch.setattr(graphs_module, "EagerReplay", Counting)
    return Counting.captured


def test_graphs_are_captured_between_requests_alone(target, draft, captured):
    engine = engine_of(target, draft)
    while engine.step():
        assert engine.idle or engine.capture() == 0
        assert not captured

    shapes = engine.graphs.shapes
    assert {key[0][0] for key in shapes} == {"noise", "draft", "verify"}
    assert engine.graphs.replayed == 0
    assert engine.capture(1) == len(captured) == 1
    assert engine.capture() == len(shapes) - 1
    assert engine.capture() == 0
    for index, text in enumerate(prompts((4, 9, 2, 12, 6))):
        engine.submit(str(index), text, SamplingParams(1.0, seed=index, max_new_tokens=60))
    before = engine.graphs.eager
    while engine.step():
        pass
    assert engine.graphs.eager == before
    assert engine.graphs.replayed > 100


def test_under_a_random_gate_nearly_all_parts_of_rounds_are_replays(target, draft):
    """32 rows, capacity 1024, a random k in 0..4 for every row and round, read a round late."""
    engine = Engine(
        target, ModelDrafter(draft), k_max=4, slots=32, capacity=200, gate=random_gate(4),
        graphs=True, depth=1,
    )  # fmt: skip
    engine.warm_up(range(5), [SamplingParams(1.0)], rows=[32])
    graphs, rng = engine.graphs, random.Random(5)
    graphs.replayed = graphs.eager = 0
    for index in range(40):
        text = prompts((rng.randint(1, 30),), seed=index)[0]
        engine.submit(str(index), text, SamplingParams(1.0, seed=index, max_new_tokens=60))
    for _ in range(40):
        engine.step()

    assert graphs.replayed / (graphs.replayed + graphs.eager) >= 0.95
    assert len(graphs.shapes) < 100


def test_a_mixed_gate_packs_what_its_rows_bring(target, draft):
    buckets = Buckets(slots=32, k_max=4, capacity=200)

    def tokens(ks):
        return pack(tuple(k + 1 for k in ks), "cpu", 0, buckets).shape.tokens

    assert tokens([4] * 32) == 160
    assert tokens([4, 0] * 16) == 96
    assert tokens([4] + [0] * 31) == 48
    assert tokens([0] * 20) == 32


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=40).filter(any),
    st.integers(0, 9),
    st.integers(0, 30),
)
def test_a_filled_packing_holds_the_plain_one_and_nobody(widths, more_k, more_slots):
    slots, k_max = len(widths) + more_slots, max(widths) - 1 + more_k
    buckets = Buckets(slots, k_max, 4096)
    plain, filled = pack(tuple(widths), "cpu"), pack(tuple(widths), "cpu", 0, buckets)
    n, shape = sum(widths), filled.shape
    width = k_max + 1 if max(widths) > 1 else 1

    assert filled.token_rows[:n].equal(plain.token_rows)
    assert (filled.token_rows[n:] == slots).all()
    assert filled.offsets[:n].equal(plain.offsets)
    assert filled.last[: len(widths)].tolist() == [width - 1 for width in widths]
    assert (filled.last[len(widths) :] == -1).all()
    assert len(widths) <= shape.rows <= min(slots, 2 * len(widths))
    assert shape.width == width
    assert n <= shape.tokens <= max(1.5 * n, shape.rows)
    one = filled.rectangle
    grid = torch.arange(shape.tokens) if one.grid is None else one.grid
    places = torch.arange(shape.tokens) if one.places is None else one.places
    # Where a token's result lies in the rectangle is where its query was put.
    assert grid[places[:n]].equal(torch.arange(n))
    assert (places[:n] // shape.width).equal(plain.token_rows)


@pytest.mark.parametrize("size", [1, 7, 64, 65, 100, 129, 4000, 4096])
def test_few_extents_cover_all_lengths(size):
    extent = Buckets(4, 4, 4096).extent(size)

    assert size <= extent <= max(64, 2 * size)
    assert {Buckets(4, 4, 4096).extent(n) for n in range(1, 4097)} == {*Buckets(4, 4, 4096).extents}
    assert len(Buckets(4, 4, 4096).extents) == 7


def test_a_capture_that_fails_leaves_rounds_as_they_are_and_says_so(target, draft, monkeypatch):
    class Failing(EagerReplay):
        def __init__(self, work):
            raise CaptureFailed("operation not permitted when stream is capturing")

    texts, params = prompts(LENGTHS), params_of("coupled")
    plain = run(target, ModelDrafter(draft), texts, params, gate=3)
    monkeypatch.setattr(graphs_module, "EagerReplay", Failing)

    with pytest.warns(UserWarning, match="CUDA graphs are off: operation not permitted"):
        broken = run(target, ModelDrafter(draft), texts, params, gate=3, graphs=True)

    assert broken.texts == plain.texts


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, RuntimeError])
def test_whatever_else_goes_wrong_in_a_capture_ends_the_step(target, draft, error, monkeypatch):
    class Failing(EagerReplay):
        def __init__(self, work):
            raise error("device-side assert triggered")

    monkeypatch.setattr(graphs_module, "EagerReplay", Failing)
    texts, params = prompts(LENGTHS), params_of("coupled")

    with pytest.raises(error, match="device-side assert"):
        run(target, ModelDrafter(draft), texts, params, gate=3, graphs=True)


def test_shapes_beyond_the_most_run_as_they_are(target, draft, monkeypatch):
    monkeypatch.setattr(graphs_module, "MOST_SHAPES", 2)
    texts, params = prompts(LENGTHS), params_of("coupled")

    plain, few = (
        run(target, ModelDrafter(draft), texts, params, gate=random_gate(4), graphs=graphs)
        for graphs in (False, True)
    )

    assert few.texts == plain.texts


class Unread:
    """A replay whose marks stay unread for as long as a test says."""

    made: ClassVar[list["Unread"]] = []

    def __init__(self, work):
        self.free, self.replays = True, 0
        self.outputs = work(HostTimer())
        Unread.made.append(self)

    def ready(self):
        return self.free

    def replay(self, timer):
        assert self.free
        self.free, self.replays = False, self.replays + 1
        return self.outputs


def test_a_graph_is_not_replayed_before_its_marks_are_read():
    Unread.made.clear()
    graphs = Graphs(Buckets(4, 4, 64), Unread, HostTimer())

    def once():
        work = lambda inputs, parts: (inputs[0] + 1,)  # noqa: E731
        return graphs.run("work", work, [(torch.ones(2), (2,))])

    once()
    for copies in (1, 2):
        assert graphs.capture() == 1
        assert len(Unread.made) == copies
        once()
        once()
    Unread.made[0].free = True
    once()

    assert [copy.replays for copy in Unread.made] == [2, 1]
    assert (graphs.replayed, graphs.eager) == (3, 3)


def test_inputs_smaller_than_their_size_are_copied_into_its_corner():
    graphs = Graphs(Buckets(4, 4, 64), EagerReplay, HostTimer())
    rng = random.Random(0)
    for attempt in range(5):
        if attempt == 1:
            graphs.capture()
        given = torch.tensor([[rng.random() for _ in range(3)] for _ in range(2)])

        (out,) = graphs.run("twice", lambda inputs, _: (2 * inputs[0],), [(given, (4, 5))])

        assert out.shape == (4, 5)
        assert out[:2, :3].equal(2 * given)


def test_float32_models_differ_by_rounding_alone():
    target = tiny_model(0, dtype=torch.float32)
    draft = near(target, 0.05)
    texts = prompts(LENGTHS)

    plain, replayed = (
        run(target, ModelDrafter(draft), texts, params_of("greedy"), gate=2, graphs=graphs)
        for graphs in (False, True)
    )

    assert replayed.texts == plain.texts


class Clock:
    """Stands still but while a test's models run."""

    now = 0

    def monotonic_ns(self):
        return self.now

    unix_ns = monotonic_ns


def test_work_in_a_graph_is_its_parts_and_no_launch(target, draft):
    clock, record = Clock(), Record()

    class Slow(ModelDrafter):
        def draw(self, *args):
            clock.now += 5_000_000
            return super().draw(*args)

    engine = Engine(
        target, Slow(draft), k_max=2, slots=1, capacity=60, gate=fixed_gate(2),
        observers=[record], graphs=True, clock=clock,
    )  # fmt: skip
    for id in ("eager", "replayed"):
        engine.submit(id, [1, 2, 3], SamplingParams(max_new_tokens=30))
        while engine.step():
            pass
        assert engine.capture() == (3 if id == "eager" else 0)

    assert {report.draft_us for report in record.rounds} == {10_000}
    assert {report.launch_us for report in record.rounds} == {0}
    assert {report.idle_us for report in record.rounds} == {0}


def test_the_time_of_a_capture_is_in_no_round(target, draft, monkeypatch):
    clock, record = Clock(), Record()

    class Slow(EagerReplay):
        def __init__(self, work):
            super().__init__(work)
            clock.now += 70_000_000

    monkeypatch.setattr(graphs_module, "EagerReplay", Slow)
    engine = Engine(
        target, ModelDrafter(draft), k_max=2, slots=1, capacity=60, gate=fixed_gate(2),
        observers=[record], graphs=True, clock=clock,
    )  # fmt: skip
    for id in ("eager", "replayed"):
        engine.submit(id, [1, 2, 3], SamplingParams(max_new_tokens=30))
        while engine.step():
            pass
        engine.capture()

    assert clock.now == 3 * 70_000_000
    assert {report.wall_us for report in record.rounds} == {0}
